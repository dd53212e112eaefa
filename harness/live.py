"""A task of this process together with what shows it, and each step of it: written down first, then published."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from harness.errors import InvalidTransition, StaleFence, StoreError
from harness.events import Event, RunEnded, RunError, TaskStateChanged
from harness.messages import Usage
from harness.reporters.base import EventSink
from harness.run_state import RunState
from harness.status import StopReason, TaskStatus
from harness.stores.base import Change, Records
from harness.stores.records import TaskRecord, TaskStep
from harness.task import Task

log = structlog.stdlib.get_logger(__name__)

STATUS_OF: Final = {
    StopReason.FINISHED: TaskStatus.COMPLETED,
    StopReason.CANCELED: TaskStatus.CANCELED,
    StopReason.TIMEOUT: TaskStatus.TIMED_OUT,
    StopReason.INTERRUPTED: TaskStatus.INTERRUPTED,
    StopReason.FAILED: TaskStatus.FAILED,
    StopReason.MAX_TURNS: TaskStatus.FAILED,
    StopReason.BUDGET: TaskStatus.FAILED,
}


@dataclass(slots=True)
class LiveTask:
    """A task that this process works on, or keeps the card of. `is_known`: it has its row among the records.

    `owed`: what the store did not take when it ended. `talking` is held while something is published beside the work:
    questions to people, and their answers.
    """

    task: Task
    sink: EventSink
    records: Records | None = None
    is_known: bool = False
    now: Callable[[], float] = time.time
    owed: tuple[Change | Event, ...] = ()
    talking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def queued(self, position: int) -> None:
        """It waits, at this position."""
        before = self.task.step(TaskStatus.QUEUED)
        event = TaskStateChanged(*self.task.next_envelope(), before, TaskStatus.QUEUED, "", position)
        try:
            await self._commit(*self._made_known(TaskStatus.QUEUED), event)
        except StoreError:
            # The queue is the coordinator's: the request is not lost, and gets its row when it runs.
            self.is_known = False
            log.exception("a queued task could not be written down", task=self.task.id)
        await self.sink.publish(event)

    async def running(self, before: TaskStatus | None, *, fence: int, model: str) -> None:
        """The work begins, or goes on; the task's own step was taken already. Raises StoreError and `StaleFence`."""
        event = TaskStateChanged(*self.task.next_envelope(), before, TaskStatus.RUNNING)
        changes: list[Change] = [*self._made_known(before or TaskStatus.QUEUED)]
        step = TaskStep(self.task.id, TaskStatus.RUNNING, event.at, fence, model=model)
        await self._commit(*changes, step, event)
        await self.sink.publish(event)

    def waiting(self, fence: int) -> TaskStep:
        """Take the step to waiting for a person, and stage its event: what has to be written down for that."""
        before = self.task.step(TaskStatus.WAITING_APPROVAL)
        self.sink.stage(TaskStateChanged, before, TaskStatus.WAITING_APPROVAL)
        return TaskStep(self.task.id, TaskStatus.WAITING_APPROVAL, self.now(), fence)

    async def end(
        self, state: RunState | None, stop: StopReason, error: RunError | None = None, *, fence: int = 0
    ) -> RunEnded:
        """Take the last step, publish `run:end`, and return it. `state` is None when the run never began."""
        task = self.task
        status = STATUS_OF[stop]
        before = task.step(status)
        staged = self.sink.take()
        changed = TaskStateChanged(*task.next_envelope(), before, status, task.cancel_reason)
        if state is None:
            fields = (status, stop, "", 0, Usage(), error, task.stopped_by)
        else:
            steps = state.steps + (error is not None)
            fields = (status, stop, state.answer, steps, state.spent, error, task.stopped_by)
        end = RunEnded(*task.next_envelope(), *fields)
        if not task.is_lost:
            step = TaskStep(task.id, status, end.at, fence, None, end.answer, end.usage, stop, error)
            changes = (*self._made_known(before or TaskStatus.QUEUED), step, *staged, changed, end)
            try:
                await self._commit(*changes)
            except StaleFence:
                # Somebody else has taken over, and shows the end.
                task.is_lost = True
                self.sink.detach()
            except (StoreError, InvalidTransition):
                # Whatever the store does: the person is told how it ended, and the session is free again.
                log.exception("the end of a task could not be written down", task=task.id)
                self.owed = changes
        for event in (*staged, changed, end):
            await self.sink.publish(event)
        return end

    async def settle_owed(self) -> bool:
        """Write down what the store did not take at the end; False when it still does not."""
        try:
            await self._commit(*self.owed)
        except (InvalidTransition, StaleFence):
            pass  # it has its end already, written by this process or another one
        except StoreError:
            return False
        self.owed = ()
        return True

    def _made_known(self, status: TaskStatus) -> tuple[Change, ...]:
        if self.is_known:
            return ()
        self.is_known = True
        return (TaskRecord(self.task.run_input, status, self.now()),)

    async def _commit(self, *changes: Change | Event) -> None:
        if self.records is not None:
            await self.records.commit(*changes)
