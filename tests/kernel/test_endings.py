"""Every task ends, whatever breaks at its end: the store, a new owner, a tool that does not stop."""

import asyncio
from collections.abc import Sequence

import pytest

from harness.admission import RunInput
from harness.errors import StaleFence
from harness.events import Event, RunEnded
from harness.messages import Message, UserMessage
from harness.providers.script import Call, Hang, Say
from harness.reporters.recording import RecordingReporter
from harness.runtime import Started
from harness.status import StopReason, TaskStatus
from harness.stores.base import Session
from harness.stores.memory import MemorySessionStore
from harness.tools.base import by_name, tool
from harness.tools.executor import ToolExecutor
from tests.kernel.rig import kernel

HELLO = [Say("Hello "), Say("there.")]


class Detachable(RecordingReporter):
    """Knows whether it was told that somebody else shows the task."""

    detached = False

    def detach(self) -> None:
        self.detached = True


def failing(store: MemorySessionStore, error: Exception) -> None:
    """From now on, what the model says cannot be stored; what people say can."""
    append = store.append

    async def refuse(session: Session, messages: Sequence[Message], *, fence: int = 0) -> Session:
        if isinstance(messages[0], UserMessage):
            return await append(session, messages, fence=fence)
        raise error

    store.append = refuse  # type: ignore[method-assign]


# Where the store fails: after the answer, and after a stop in the middle of one.
@pytest.mark.parametrize("stopped", [False, True])
async def test_a_new_owner_in_the_store_means_write_nothing_more(stopped: bool) -> None:
    rig = kernel([[Say("half"), Hang()] if stopped else HELLO])
    failing(rig.store, StaleFence("another owner"))
    reporter = Detachable()
    outcome = await rig.runtime.start("s", "go", reporter)
    assert isinstance(outcome, Started)
    if stopped:
        await _until(reporter, "model:delta")
        outcome.task.cancel("stop")
    await asyncio.wait_for(outcome.task.wait(), 5)
    assert outcome.task.is_lost
    assert reporter.detached, "the other owner shows how it went on"
    assert outcome.task.error is None, "losing a task is no fault"


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_store_that_breaks_in_any_way_ends_the_task_and_frees_the_session(stopped: bool) -> None:
    rig = kernel([[Say("half"), Hang()] if stopped else HELLO, HELLO])
    good = rig.store.append
    failing(rig.store, RuntimeError("disk on fire"))
    task, reporter = await rig.start("go")
    if stopped:
        await _until(reporter, "model:delta")
        task.cancel("stop")
    status = await asyncio.wait_for(task.wait(), 5)
    assert status is (TaskStatus.CANCELED if stopped else TaskStatus.FAILED)
    assert [event.kind for event in reporter.events].count("run:end") == 1
    rig.store.append = good  # type: ignore[method-assign]
    again, _ = await asyncio.wait_for(rig.run("again"), 5)
    assert again.status is TaskStatus.COMPLETED


async def test_a_stop_frees_the_session_even_when_a_tool_ignores_it() -> None:
    let_go, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Goes on."""
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return ""

    rig = kernel([[Call("stubborn")], HELLO])
    rig.runtime._engine._executor = ToolExecutor(by_name([stubborn]), stop_grace_s=0.02)
    task, reporter = await rig.start("go")
    await _until(reporter, "tool:start")
    await asyncio.sleep(0)
    task.cancel("stop")
    assert await asyncio.wait_for(task.wait(), 5) is TaskStatus.CANCELED
    again, _ = await asyncio.wait_for(rig.run("again"), 5)
    assert again.status is TaskStatus.COMPLETED
    let_go.set()
    await asyncio.wait_for(ended.wait(), 5)


async def test_a_reader_that_comes_between_the_last_event_and_the_end_is_not_left_waiting() -> None:
    rig = kernel([HELLO])
    found: list[list[Event]] = []
    readers: list[asyncio.Task[None]] = []

    class Late(RecordingReporter):
        async def emit(self, event: Event) -> None:
            if isinstance(event, RunEnded):
                readers.append(asyncio.create_task(read()))
                await asyncio.sleep(0)  # the reader looks now; `run:end` is out, the task is not done

    async def read() -> None:
        found.append([event async for event in outcome.task.events()])

    outcome = await rig.runtime.start("s", "go", Late())
    assert isinstance(outcome, Started)
    await outcome.task.wait()
    await asyncio.wait_for(asyncio.gather(*readers), 5)
    assert [event.kind for event in found[0]].count("run:end") == 1


async def test_two_cancellations_at_once_end_it_once() -> None:
    rig = kernel([[Say("half"), Hang()]])
    task, reporter = await rig.start("go")
    await _until(reporter, "model:delta")
    worker = task._worker
    assert worker is not None
    task.cancel("stop")
    worker.cancel()
    await asyncio.sleep(0)
    worker.cancel()
    assert await asyncio.wait_for(task.wait(), 5) is TaskStatus.CANCELED
    assert reporter.kinds.count("run:end") == 1
    assert task.end is not None
    assert task.end.stop_reason is StopReason.CANCELED
    assert [type(m).__name__ for m in (await rig.store.load("s")).messages] == ["UserMessage", "AssistantMessage"]


async def test_a_broken_maker_of_reporters_takes_no_session_with_it() -> None:
    rig = kernel([HELLO])

    def broken(_run: RunInput) -> RecordingReporter:
        raise KeyError("no such platform")

    rig.runtime._factory._reporter_for = broken
    with pytest.raises(KeyError):
        await rig.runtime.start("s", "go")
    task, _ = await asyncio.wait_for(rig.run("again"), 5)
    assert task.status is TaskStatus.COMPLETED


async def _until(reporter: RecordingReporter, kind: str) -> None:
    async with asyncio.timeout(5):
        while kind not in reporter.kinds:
            await asyncio.sleep(0)
