"""`TaskStore` in SQL."""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from harness.errors import InvalidTransition, StaleFence, StoreError
from harness.status import StopReason, TaskStatus
from harness.stores.codec import RECORD_VERSION, RUN_ERROR, RUN_INPUT, TEXT, USAGE
from harness.stores.database import Database
from harness.stores.records import TaskRecord, TaskStep
from harness.stores.schema import tasks
from harness.stores.statements import fetch, insert_new
from harness.stores.writer import Operation
from harness.task import TRANSITIONS

_ENDS: Final = [status.value for status in TaskStatus if status.is_terminal]
_LOCK: Final = (
    sa.select(tasks.c.id, tasks.c.status, tasks.c.fence)
    .where(tasks.c.id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(tasks.c.id)
    .with_for_update()
)


def _kept(name: str) -> sa.ColumnElement[Any]:
    """The new value, or the old one where the step has none."""
    return sa.func.coalesce(sa.bindparam(f"b_{name}", type_=tasks.c[name].type), tasks.c[name])


_STEP: Final = (
    sa.update(tasks)
    .where(
        tasks.c.id == sa.bindparam("b_id"),
        tasks.c.status == sa.bindparam("b_before"),
        tasks.c.fence <= sa.bindparam("b_fence"),
    )
    .values(
        status=sa.bindparam("b_status"),
        fence=sa.bindparam("b_fence"),
        # The first start counts, also after a wait for a person.
        started_at=sa.func.coalesce(tasks.c.started_at, sa.bindparam("b_started_at", type_=sa.Double)),
        **{name: _kept(name) for name in ("model", "answer", "usage", "stop_reason", "error", "ended_at")},
    )
)
_SHOW: Final = (
    sa.update(tasks)
    .where(
        tasks.c.id == sa.bindparam("b_id"),
        tasks.c.status.not_in(_ENDS),
        sa.or_(sa.bindparam("b_fence", type_=sa.BigInteger) == 0, tasks.c.fence <= sa.bindparam("b_fence")),
    )
    .values(answer=sa.bindparam("b_answer"))
)


class SqlTaskStore:
    """See `TaskStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, record: TaskRecord) -> None:
        """See `TaskStore`."""
        await self._database.write(putting(record))

    async def step(self, step: TaskStep) -> None:
        """See `TaskStore`."""
        await self._database.write(stepping(step))

    async def show(self, task_id: str, answer: str, *, fence: int = 0) -> None:
        """See `TaskStore`."""
        shown = {"b_id": task_id, "b_answer": TEXT.encode(answer), "b_fence": fence}
        await self._database.write(Operation(_show, shown))

    async def get(self, task_id: str) -> TaskRecord | None:
        """See `TaskStore`."""
        found = await self._select(sa.select(tasks).where(tasks.c.id == task_id))
        return found[0] if found else None

    async def of_session(self, session_key: str, *, limit: int = 100) -> Sequence[TaskRecord]:
        """See `TaskStore`."""
        query = sa.select(tasks).where(tasks.c.session_key == session_key)
        return await self._select(query.order_by(tasks.c.created_at.desc(), tasks.c.id).limit(limit))

    async def unfinished(self, *, limit: int = 1000) -> Sequence[TaskRecord]:
        """See `TaskStore`."""
        query = sa.select(tasks).where(tasks.c.status.not_in(_ENDS))
        return await self._select(query.order_by(tasks.c.created_at, tasks.c.id).limit(limit))

    async def _select(self, query: sa.Select[Any]) -> Sequence[TaskRecord]:
        return [_record(row) for row in await self._database.read(lambda c: fetch(c, query))]


def putting(record: TaskRecord) -> Operation:
    """A new task for a unit of work."""
    return Operation(_put, record)


def stepping(step: TaskStep) -> Operation:
    """A step for a unit of work."""
    return Operation(_step, step)


async def _put(connection: AsyncConnection, records: Sequence[TaskRecord]) -> Sequence[None]:
    await insert_new(connection, tasks, [_row(record) for record in sorted(records, key=lambda record: record.id)])
    return [None] * len(records)


async def _step(connection: AsyncConnection, steps: Sequence[TaskStep]) -> Sequence[None]:
    """Lock the rows, check each step against its task, write; several steps of one task follow one another."""
    rows = await fetch(connection, _LOCK, {"ids": sorted({step.task_id for step in steps})})
    known = {row.id: (TaskStatus(row.status), int(row.fence)) for row in rows}
    written: list[dict[str, Any]] = []
    for step in steps:
        if step.task_id not in known:
            raise StoreError(f"task {step.task_id!r} is not known: put it first")
        before, fence = known[step.task_id]
        if step.fence and step.fence < fence:
            raise StaleFence(f"task {step.task_id!r}: fence {step.fence} is older than {fence}")
        # A run whose owner died before it was begun is begun again by the next owner.
        begun_again = step.to is before is TaskStatus.RUNNING and step.fence > fence
        if step.to not in TRANSITIONS[before] and not begun_again:
            raise InvalidTransition(f"task {step.task_id!r} cannot go from {before} to {step.to}")
        known[step.task_id] = step.to, max(step.fence, fence)
        written.append(_values(step, before, max(step.fence, fence)))
    await connection.execute(_STEP, written)
    return [None] * len(steps)


async def _show(connection: AsyncConnection, shown: Sequence[dict[str, Any]]) -> Sequence[None]:
    await connection.execute(_SHOW, sorted(shown, key=lambda values: values["b_id"]))
    return [None] * len(shown)


def _values(step: TaskStep, before: TaskStatus, fence: int) -> dict[str, Any]:
    return {
        "b_id": step.task_id,
        "b_before": before.value,
        "b_status": step.to.value,
        "b_fence": fence,
        "b_model": step.model,
        "b_answer": None if step.answer is None else TEXT.encode(step.answer),
        "b_usage": None if step.usage is None else USAGE.encode(step.usage),
        "b_stop_reason": step.stop_reason,
        "b_error": None if step.error is None else RUN_ERROR.encode(step.error),
        "b_started_at": step.at if step.to is TaskStatus.RUNNING else None,
        "b_ended_at": step.at if step.to.is_terminal else None,
    }


def _row(record: TaskRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "session_key": record.session_key,
        "requester": record.run.origin.requester,
        "status": record.status.value,
        "stop_reason": record.stop_reason,
        "fence": record.fence,
        "body": RUN_INPUT.encode(record.run),
        "answer": TEXT.encode(record.answer),
        "error": None if record.error is None else RUN_ERROR.encode(record.error),
        "usage": USAGE.encode(record.usage),
        "model": record.model,
        "created_at": record.created_at,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "v": RECORD_VERSION,
    }


def _record(row: Any) -> TaskRecord:
    return TaskRecord(
        run=RUN_INPUT.decode(row.body, row.v),
        status=TaskStatus(row.status),
        created_at=row.created_at,
        fence=row.fence,
        model=row.model,
        answer=TEXT.decode(row.answer),
        usage=USAGE.decode(row.usage),
        stop_reason=None if row.stop_reason is None else StopReason(row.stop_reason),
        error=None if row.error is None else RUN_ERROR.decode(row.error),
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
