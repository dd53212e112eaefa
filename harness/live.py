"""A task of this process together with what shows it, and the two things that are published for it."""

from dataclasses import dataclass

from harness.events import RunEnded, RunError, TaskStateChanged
from harness.messages import Usage
from harness.reporters.base import EventSink
from harness.run_state import RunState
from harness.status import StopReason, TaskStatus
from harness.task import Task

STATUS_OF = {
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
    """A task that this process works on, or keeps the card of."""

    task: Task
    sink: EventSink

    async def step(self, to: TaskStatus, *, reason: str = "", position: int = 0) -> None:
        """Take one step of the task and publish it."""
        before = self.task.step(to)
        await self.sink.emit(TaskStateChanged, before, to, reason, position)

    async def end(self, state: RunState | None, stop: StopReason, error: RunError | None = None) -> RunEnded:
        """Take the last step, publish `run:end`, and return it. `state` is None when the run never began."""
        task = self.task
        status = STATUS_OF[stop]
        await self.step(status, reason=task.cancel_reason)
        if state is None:
            fields = (status, stop, "", 0, Usage(), error, task.stopped_by)
        else:
            steps = state.steps + (error is not None)
            fields = (status, stop, state.answer, steps, state.usage, error, task.stopped_by)
        end = RunEnded(*task.next_envelope(), *fields)
        await self.sink.publish(end)
        return end
