"""`UnitOfWork` in SQL: each kind of change to the statements of its own store."""

from collections.abc import Callable

from harness.stores import approvals, calls, cards, sessions, tasks, traces
from harness.stores.base import AppendMessages, Change, ParkedRun
from harness.stores.database import Database
from harness.stores.records import CallRecord, CallStep, CardRecord, TaskRecord, TaskStep
from harness.stores.writer import Operation


class SqlUnitOfWork:
    """See `UnitOfWork`. `now` gives Unix seconds."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    async def commit(self, *changes: Change) -> None:
        """See `UnitOfWork`."""
        at = self._now()
        if operations := [operation for change in changes if (operation := _operation(change, at)) is not None]:
            await self._database.write(*operations)


def _operation(change: Change, at: float) -> Operation | None:
    match change:
        case AppendMessages():
            return sessions.appending(change, at)
        case ParkedRun():
            return approvals.parking(change, at)
        case TaskRecord():
            return tasks.putting(change)
        case TaskStep():
            return tasks.stepping(change)
        case CallRecord():
            return calls.proposing(change)
        case CallStep():
            return calls.stepping(change)
        case CardRecord():
            return cards.opening(change)
        case _:
            return traces.keeping(change) if change.stored else None
