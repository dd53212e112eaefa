"""The transition table, whole, and what a reader of a task sees."""

import asyncio
import itertools

import pytest

from harness.admission import Origin, RunInput
from harness.errors import InvalidTransition
from harness.events import ModelDelta, RunEnded, RunStarted
from harness.messages import Usage
from harness.status import StopReason, TaskStatus
from harness.task import TRANSITIONS, Task

S = TaskStatus


def a_task() -> Task:
    return Task(RunInput("t1", "s", "hello", Origin()))


# Written out on purpose, as people think of it; the code has it as sets.
ALLOWED = {
    (None, S.QUEUED), (None, S.RUNNING),
    (S.QUEUED, S.QUEUED), (S.QUEUED, S.RUNNING), (S.QUEUED, S.CANCELED), (S.QUEUED, S.INTERRUPTED),
    (S.QUEUED, S.FAILED),
    (S.RUNNING, S.WAITING_APPROVAL), (S.RUNNING, S.COMPLETED), (S.RUNNING, S.FAILED), (S.RUNNING, S.CANCELED),
    (S.RUNNING, S.TIMED_OUT), (S.RUNNING, S.INTERRUPTED),
    (S.WAITING_APPROVAL, S.RUNNING), (S.WAITING_APPROVAL, S.COMPLETED), (S.WAITING_APPROVAL, S.FAILED),
    (S.WAITING_APPROVAL, S.CANCELED), (S.WAITING_APPROVAL, S.TIMED_OUT), (S.WAITING_APPROVAL, S.INTERRUPTED),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), list(itertools.product([None, *TaskStatus], TaskStatus)))
def test_every_step_is_either_in_the_table_or_refused(before: TaskStatus | None, after: TaskStatus) -> None:
    task = a_task()
    task.status = before
    if (before, after) in ALLOWED:
        assert task.step(after) is before
        assert task.status is after
    else:
        with pytest.raises(InvalidTransition):
            task.step(after)
        assert task.status is before


def test_nothing_follows_an_end() -> None:
    assert all(TRANSITIONS[status] == frozenset() for status in TaskStatus if status.is_terminal)


async def test_a_late_reader_gets_the_stored_events_and_then_live_ones() -> None:
    task = a_task()
    started = RunStarted(*task.next_envelope(), "s", "hello")
    task.record(started)
    task.record(ModelDelta(*task.next_envelope(), "lost: only published"))
    seen: list[str] = []

    async def read() -> None:
        async for event in task.events(after=0):
            seen.append(event.kind)

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    task.record(ModelDelta(*task.next_envelope(), "live"))
    end = RunEnded(*task.next_envelope(), S.COMPLETED, StopReason.FINISHED, "live", 1, Usage())
    task.record(end)
    task.finish(end)
    await asyncio.wait_for(reader, 5)
    assert seen == ["run:start", "model:delta", "run:end"]
    assert [event.kind async for event in task.events(after=started.seq)] == ["run:end"]


async def test_cancelling_a_waiter_does_not_cancel_the_task() -> None:
    task = a_task()
    waiter = asyncio.create_task(task.wait())
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert not task.is_done
    assert task.stop_reason is None
