"""`ParkingStore` in SQL: runs that wait, and the questions they wait for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from harness.approval import Approval, Decision
from harness.stores.base import ParkedRun
from harness.stores.codec import APPROVAL, PARKED_RUN, RECORD_VERSION
from harness.stores.database import Database
from harness.stores.schema import approvals, parked_runs
from harness.stores.statements import Rows, fetch
from harness.stores.writer import Operation

_PENDING: Final = approvals.c.status == "pending"


@dataclass(frozen=True, slots=True)
class _Answer:
    approval_id: str
    decision: Decision
    by: str
    now: float


class SqlParkingStore:
    """See `ParkingStore`. `now` gives Unix seconds."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    async def park(self, parked: ParkedRun) -> None:
        """See `ParkingStore`."""
        await self._database.write(parking(parked, self._now()))

    async def find(self, approval: str) -> Approval | None:
        """See `ParkingStore`. Of several with one code the one that is still open, else the last asked."""
        query = (
            sa.select(approvals)
            .where(sa.or_(approvals.c.id == approval, approvals.c.code == approval.upper()))
            .order_by(sa.case((approvals.c.id == approval, 0), (_PENDING, 1), else_=2), approvals.c.asked_at.desc())
            .limit(1)
        )
        rows = await self._database.read(lambda c: fetch(c, query))
        return _approval(rows[0]) if rows else None

    async def decide(self, approval_id: str, decision: Decision, *, by: str, now: float) -> Approval | None:
        """See `ParkingStore`."""
        (rows,) = await self._database.write(Operation(_decide, _Answer(approval_id, decision, by, now)))
        return _approval(rows[0]) if rows else None

    async def expire(self, *, now: float) -> Sequence[Approval]:
        """See `ParkingStore`."""
        (rows,) = await self._database.write(Operation(_expire, now))
        return [_approval(row) for row in rows]

    async def parked(self, task_id: str) -> ParkedRun | None:
        """See `ParkingStore`."""
        # One statement, so that no decision falls between the run and its questions.
        query = (
            sa.select(parked_runs.c.body.label("run_body"), parked_runs.c.v.label("run_v"), *approvals.c)
            .select_from(parked_runs.outerjoin(approvals, parked_runs.c.task_id == approvals.c.task_id))
            .where(parked_runs.c.task_id == task_id)
        )
        rows = await self._database.read(lambda c: fetch(c, query))
        return _parked(rows[0].run_body, rows[0].run_v, rows) if rows else None

    async def ready(self) -> Sequence[str]:
        """See `ParkingStore`."""
        asked = sa.exists().where(approvals.c.task_id == parked_runs.c.task_id, _PENDING)
        query = sa.select(parked_runs.c.task_id).where(~asked).order_by(parked_runs.c.parked_at)
        return [row.task_id for row in await self._database.read(lambda c: fetch(c, query))]

    async def unpark(self, task_id: str) -> ParkedRun | None:
        """See `ParkingStore`."""
        (found,) = await self._database.write(Operation(_unpark, task_id))
        return found


def parking(parked: ParkedRun, at: float) -> Operation:
    """A run to park, for a unit of work. `at`: Unix seconds."""
    return Operation(_park, (parked, at))


async def _park(connection: AsyncConnection, runs: Sequence[tuple[ParkedRun, float]]) -> Sequence[None]:
    parked = [
        {
            "task_id": run.run.task_id,
            "session_key": run.run.session_key,
            "parked_at": at,
            "body": PARKED_RUN.encode(run),
            "v": RECORD_VERSION,
        }
        for run, at in runs
    ]
    await connection.execute(sa.insert(parked_runs), parked)
    if asked := [_row(approval, at) for run, at in runs for approval in run.approvals]:
        await connection.execute(sa.insert(approvals), asked)
    return [None] * len(runs)


async def _decide(connection: AsyncConnection, answers: Sequence[_Answer]) -> Sequence[Rows]:
    return [
        await fetch(
            connection,
            sa.update(approvals)
            .where(approvals.c.id == answer.approval_id, _PENDING, approvals.c.expires_at > answer.now)
            .values(
                status="denied" if answer.decision == "deny" else "allowed",
                decision=answer.decision,
                decided_by=answer.by,
            )
            .returning(*approvals.c),
        )
        for answer in answers
    ]


async def _expire(connection: AsyncConnection, times: Sequence[float]) -> Sequence[Rows]:
    return [
        await fetch(
            connection,
            sa.update(approvals)
            .where(_PENDING, approvals.c.expires_at <= now)
            .values(status="expired", decision="deny")
            .returning(*approvals.c),
        )
        for now in times
    ]


async def _unpark(connection: AsyncConnection, task_ids: Sequence[str]) -> Sequence[ParkedRun | None]:
    return [await _take(connection, task_id) for task_id in task_ids]


async def _take(connection: AsyncConnection, task_id: str) -> ParkedRun | None:
    # The row goes to one of many: the others find it deleted.
    taken = await fetch(
        connection,
        sa.delete(parked_runs).where(parked_runs.c.task_id == task_id).returning(parked_runs.c.body, parked_runs.c.v),
    )
    if not taken:
        return None
    asked = sa.select(approvals).where(approvals.c.task_id == task_id).order_by(approvals.c.id).with_for_update()
    parked = _parked(taken[0].body, taken[0].v, await fetch(connection, asked))
    await connection.execute(sa.update(approvals).where(approvals.c.task_id == task_id, _PENDING).values(status="void"))
    return parked


def _parked(body: str, version: int, rows: Rows) -> ParkedRun:
    """The run with its questions as they stand; rows of earlier questions of the task are passed over."""
    parked = PARKED_RUN.decode(body, version)
    now = {row.id: _approval(row) for row in rows if row.id is not None}
    return replace(parked, approvals=tuple(now.get(asked.id, asked) for asked in parked.approvals))


def _row(approval: Approval, at: float) -> dict[str, Any]:
    return {
        "id": approval.id,
        "code": approval.code.upper(),
        "task_id": approval.task_id,
        "session_key": approval.session_key,
        "status": approval.status,
        "decision": approval.decision,
        "decided_by": approval.decided_by,
        "asked_at": at,
        "expires_at": approval.expires_at,
        "body": APPROVAL.encode(approval),
        "v": RECORD_VERSION,
    }


def _approval(row: Any) -> Approval:
    asked = APPROVAL.decode(row.body, row.v)
    return replace(asked, status=row.status, decision=row.decision, decided_by=row.decided_by)
