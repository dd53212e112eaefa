"""Silence is noticed, life is cheap, and a cancellation from outside is never taken for a timeout."""

import asyncio
import time

import pytest

from harness.watchdog import Watchdog

LONG = 30.0


async def silence() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("limits", [(0.03, LONG), (LONG, 0.03)])
async def test_silence_before_the_first_sign_and_between_two(limits: tuple[float, float]) -> None:
    first, idle = limits

    async def work() -> None:
        async with Watchdog(first=first, idle=idle) as dog:
            if idle < first:
                dog.alive()
            await silence()

    with pytest.raises(TimeoutError, match=r"0\.03 s"):
        await work()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0, "the cancellation is taken back, or the next timeout would be swallowed"


async def test_signs_of_life_keep_it_quiet_for_much_longer_than_the_limit() -> None:
    started = time.monotonic()
    async with Watchdog(first=0.2, idle=0.2) as dog:
        while time.monotonic() - started < 0.5:
            await asyncio.sleep(0.01)
            dog.alive()
    assert time.monotonic() - started >= 0.5, "it was left to run to its end"


async def test_a_sign_of_life_sets_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Watchdog(first=LONG, idle=LONG) as dog:
        loop = asyncio.get_running_loop()
        set_timers: list[object] = []
        monkeypatch.setattr(loop, "call_at", lambda *args, **kwargs: set_timers.append(args))
        for _ in range(1_000):
            dog.alive()
        monkeypatch.undo()
    assert set_timers == []


async def test_a_cancellation_from_outside_stays_one() -> None:
    async def work() -> None:
        async with Watchdog(first=LONG, idle=LONG):
            await silence()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled()


async def test_a_cancellation_at_the_moment_of_expiry_wins() -> None:
    async def work() -> None:
        async with Watchdog(first=0.02, idle=LONG):
            try:
                await silence()
            except asyncio.CancelledError:
                # The dog has just barked; before the body is left, somebody cancels the task as well.
                task.cancel()
                raise

    task = asyncio.create_task(work())
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled()


async def test_what_the_body_raises_comes_through() -> None:
    with pytest.raises(KeyError):
        async with Watchdog(first=LONG, idle=LONG):
            raise KeyError


async def test_an_error_while_cleaning_up_after_expiry_comes_through_and_the_task_is_whole() -> None:
    async def work() -> None:
        async with Watchdog(first=0.02, idle=LONG):
            try:
                await silence()
            finally:
                raise KeyError

    with pytest.raises(KeyError):
        await work()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_after_the_body_nothing_is_cancelled_any_more() -> None:
    async with Watchdog(first=0.02, idle=0.02):
        pass
    await asyncio.sleep(0.05)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_watchdog_inside_another_cancels_only_its_own_body() -> None:
    async with Watchdog(first=LONG, idle=LONG):
        with pytest.raises(TimeoutError):
            async with Watchdog(first=0.02, idle=LONG):
                await silence()
        await asyncio.sleep(0)


async def test_time_in_which_nobody_listened_is_no_silence() -> None:
    # As after Ctrl-Z and fg, or when the reader of a full pipe came back: what arrived meanwhile is still unread.
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    async with Watchdog(first=0.1, idle=0.1) as dog:
        loop.call_later(0.05, reader.feed_data, b"word")
        loop.call_soon(time.sleep, 0.25)
        assert await reader.read(4) == b"word"
        dog.alive()
