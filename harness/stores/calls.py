"""`Journal` in SQL."""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from harness.errors import InvalidTransition
from harness.stores.codec import CALL, RECORD_VERSION, TEXT
from harness.stores.database import Database
from harness.stores.records import CALL_STEPS, CallRecord, CallState, CallStep
from harness.stores.schema import journal
from harness.stores.statements import Rows, fetch
from harness.stores.writer import Operation

_LOCK: Final = (
    sa.select(journal.c.task_id, journal.c.call_id, journal.c.state)
    .where(journal.c.task_id.in_(sa.bindparam("tasks", expanding=True)))
    .where(journal.c.call_id.in_(sa.bindparam("calls", expanding=True)))
    .order_by(journal.c.task_id, journal.c.call_id)
    .with_for_update()
)
_STEP: Final = (
    sa.update(journal)
    .where(
        journal.c.task_id == sa.bindparam("b_task"),
        journal.c.call_id == sa.bindparam("b_call"),
        journal.c.state == sa.bindparam("b_before"),
    )
    .values(
        state=sa.bindparam("b_state"),
        result=sa.bindparam("b_result"),
        is_error=sa.bindparam("b_is_error"),
        started_at=sa.func.coalesce(sa.bindparam("b_started_at", type_=sa.Double), journal.c.started_at),
        ended_at=sa.func.coalesce(sa.bindparam("b_ended_at", type_=sa.Double), journal.c.ended_at),
    )
)


class SqlJournal:
    """See `Journal`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def propose(self, calls: Sequence[CallRecord]) -> None:
        """See `Journal`."""
        if calls:
            await self._database.write(*map(proposing, calls))

    async def step(self, steps: Sequence[CallStep]) -> None:
        """See `Journal`."""
        if steps:
            await self._database.write(*map(stepping, steps))

    async def doubt(self, task_id: str, *, at: float) -> Sequence[CallRecord]:
        """See `Journal`."""
        (rows,) = await self._database.write(Operation(_doubt, (task_id, at)))
        return [_record(row) for row in sorted(rows, key=lambda row: (row.proposed_at, row.position))]

    async def of_task(self, task_id: str) -> Sequence[CallRecord]:
        """See `Journal`."""
        query = sa.select(journal).where(journal.c.task_id == task_id)
        query = query.order_by(journal.c.proposed_at, journal.c.position)
        return [_record(row) for row in await self._database.read(lambda c: fetch(c, query))]


def proposing(call: CallRecord) -> Operation:
    """A new call for a unit of work."""
    return Operation(_propose, call)


def stepping(step: CallStep) -> Operation:
    """A step of a call for a unit of work."""
    return Operation(_step, step)


async def _propose(connection: AsyncConnection, calls: Sequence[CallRecord]) -> Sequence[None]:
    rows: list[dict[str, Any]] = []
    for position, call in enumerate(calls):
        _require(call.state in CALL_STEPS[None], call.call.id, None, call.state)
        rows.append(
            {
                "task_id": call.task_id,
                "call_id": call.call.id,
                "session_key": call.session_key,
                "state": call.state,
                "digest": call.digest,
                "side_effects": call.side_effects,
                "body": CALL.encode(call.call),
                "result": TEXT.encode(call.result),
                "is_error": call.is_error,
                "position": position,
                "proposed_at": call.proposed_at,
                "started_at": call.started_at,
                "ended_at": call.ended_at,
                "v": RECORD_VERSION,
            }
        )
    await connection.execute(sa.insert(journal), rows)
    return [None] * len(calls)


async def _step(connection: AsyncConnection, steps: Sequence[CallStep]) -> Sequence[None]:
    """Lock the rows, check each step against its call, write; several steps of one call follow one another."""
    wanted = {"tasks": sorted({step.task_id for step in steps}), "calls": sorted({step.call_id for step in steps})}
    rows = await fetch(connection, _LOCK, wanted)
    states: dict[tuple[str, str], CallState] = {(row.task_id, row.call_id): row.state for row in rows}
    written: list[dict[str, Any]] = []
    for step in steps:
        place = step.task_id, step.call_id
        before = states.get(place)
        _require(before is not None and step.to in CALL_STEPS[before], step.call_id, before, step.to)
        states[place] = step.to
        written.append(
            {
                "b_task": step.task_id,
                "b_call": step.call_id,
                "b_before": before,
                "b_state": step.to,
                "b_result": TEXT.encode(step.result),
                "b_is_error": step.is_error,
                "b_started_at": step.at if step.to == "started" else None,
                "b_ended_at": None if CALL_STEPS[step.to] else step.at,
            }
        )
    await connection.execute(_STEP, written)
    return [None] * len(steps)


async def _doubt(connection: AsyncConnection, doubts: Sequence[tuple[str, float]]) -> Sequence[Rows]:
    return [
        await fetch(
            connection,
            sa.update(journal)
            .where(journal.c.task_id == task_id, journal.c.state == "started")
            .values(state="in_doubt", ended_at=at)
            .returning(*journal.c),
        )
        for task_id, at in doubts
    ]


def _require(possible: bool, call_id: str, before: CallState | None, to: CallState) -> None:  # noqa: FBT001
    if not possible:
        raise InvalidTransition(f"call {call_id!r} cannot go from {before or 'unknown'} to {to}")


def _record(row: Any) -> CallRecord:
    return CallRecord(
        call=CALL.decode(row.body, row.v),
        task_id=row.task_id,
        session_key=row.session_key,
        side_effects=row.side_effects,
        proposed_at=row.proposed_at,
        digest=row.digest,
        state=row.state,
        result=TEXT.decode(row.result),
        is_error=row.is_error,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
