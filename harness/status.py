"""The two words that every part agrees on: where a task stands, and why a run stopped."""

from enum import StrEnum


class TaskStatus(StrEnum):
    """Where a task stands. The allowed steps between them are a table in `harness.task`."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_APPROVAL = "waiting_approval"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"

    @property
    def is_terminal(self) -> bool:
        """True when nothing can happen to the task any more."""
        return self in _TERMINAL


_TERMINAL = frozenset(
    {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELED, TaskStatus.TIMED_OUT, TaskStatus.INTERRUPTED}
)


class StopReason(StrEnum):
    """Why a run ended. Several reasons may lead to the same status: a spent budget is a failure."""

    FINISHED = "finished"
    MAX_TURNS = "max_turns"
    TIMEOUT = "timeout"
    CANCELED = "canceled"
    FAILED = "failed"
    BUDGET = "budget"
    INTERRUPTED = "interrupted"
