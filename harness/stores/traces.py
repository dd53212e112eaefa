"""`TraceStore` in SQL."""

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from harness.events import Event
from harness.stores.codec import EVENT, RECORD_VERSION
from harness.stores.database import Database
from harness.stores.schema import events as table
from harness.stores.statements import fetch
from harness.stores.writer import Operation

_INSERT: Final = sa.insert(table)
_LAST: Final = sa.select(sa.func.max(table.c.seq)).where(table.c.task_id == sa.bindparam("task"))


class SqlTraceStore:
    """See `TraceStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, events: Sequence[Event]) -> None:
        """See `TraceStore`."""
        if kept := [keeping(event) for event in events if event.stored]:
            await self._database.write(*kept)

    async def read(self, task_id: str, *, after: int = 0, limit: int = 10_000) -> Sequence[Event]:
        """See `TraceStore`."""
        query = (
            sa.select(table.c.body, table.c.v)
            .where(table.c.task_id == task_id, table.c.seq > after)
            .order_by(table.c.seq)
            .limit(limit)
        )
        return [EVENT.decode(row.body, row.v) for row in await self._database.read(lambda c: fetch(c, query))]

    async def last_seq(self, task_id: str) -> int:
        """See `TraceStore`."""
        return await self._database.read(lambda c: c.scalar(_LAST, {"task": task_id})) or 0


def keeping(event: Event) -> Operation:
    """An event for a unit of work."""
    return Operation(_keep, event)


async def _keep(connection: AsyncConnection, events: Sequence[Event]) -> Sequence[None]:
    rows = [
        {"task_id": event.task_id, "seq": event.seq, "body": EVENT.encode(event), "v": RECORD_VERSION}
        for event in events
    ]
    await connection.execute(_INSERT, rows)
    return [None] * len(events)
