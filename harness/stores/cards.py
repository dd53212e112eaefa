"""`CardLedger` in SQL."""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from harness.stores.codec import PLACE, RECORD_VERSION, TEXT, check_version
from harness.stores.database import Database
from harness.stores.records import CardRecord
from harness.stores.schema import cards
from harness.stores.statements import fetch, insert_new
from harness.stores.writer import Operation

_KEY: Final = cards.c.key == sa.bindparam("b_key")
_POSTED: Final = (
    sa.update(cards)
    .where(_KEY)
    .values(
        message_id=sa.bindparam("b_message_id"),
        state=sa.case((cards.c.state == "opening", "open"), else_=cards.c.state),
    )
)
_KEEP: Final = sa.update(cards).where(_KEY, cards.c.state != "closed").values(text=sa.bindparam("b_text"))
_CLOSE: Final = (
    sa.update(cards)
    .where(_KEY, cards.c.state != "closed")
    .values(
        state="closed",
        final=sa.bindparam("b_final"),
        closed_at=sa.bindparam("b_at"),
        text=sa.func.coalesce(sa.bindparam("b_text", type_=sa.Text), cards.c.text),
    )
)


class SqlCardLedger:
    """See `CardLedger`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self, card: CardRecord) -> None:
        """See `CardLedger`."""
        await self._database.write(opening(card))

    async def posted(self, key: str, message_id: str) -> None:
        """See `CardLedger`."""
        await self._database.write(Operation(_posted, {"b_key": key, "b_message_id": message_id}))

    async def keep(self, key: str, text: str) -> None:
        """See `CardLedger`."""
        await self._database.write(Operation(_keep, {"b_key": key, "b_text": TEXT.encode(text)}))

    async def close(self, key: str, final: str, *, at: float, text: str | None = None) -> None:
        """See `CardLedger`."""
        last = None if text is None else TEXT.encode(text)
        await self._database.write(Operation(_close, {"b_key": key, "b_final": final, "b_at": at, "b_text": last}))

    async def of_task(self, task_id: str) -> Sequence[CardRecord]:
        """See `CardLedger`."""
        return await self._select(sa.select(cards).where(cards.c.task_id == task_id))

    async def unfinished(self, *, limit: int = 1000) -> Sequence[CardRecord]:
        """See `CardLedger`."""
        return await self._select(sa.select(cards).where(cards.c.state.in_(["opening", "open"])).limit(limit))

    async def _select(self, query: sa.Select[Any]) -> Sequence[CardRecord]:
        ordered = query.order_by(cards.c.opened_at, cards.c.key)
        return [_record(row) for row in await self._database.read(lambda c: fetch(c, ordered))]


def opening(card: CardRecord) -> Operation:
    """A new card for a unit of work."""
    return Operation(_open, card)


async def _open(connection: AsyncConnection, opened: Sequence[CardRecord]) -> Sequence[None]:
    rows = [
        {
            "key": card.key,
            "task_id": card.task_id,
            "session_key": card.session_key,
            "state": card.state,
            "message_id": card.message_id,
            "place": PLACE.encode(card.place),
            "text": TEXT.encode(card.text),
            "final": card.final,
            "opened_at": card.opened_at,
            "closed_at": card.closed_at,
            "v": RECORD_VERSION,
        }
        for card in sorted(opened, key=lambda card: card.key)
    ]
    await insert_new(connection, cards, rows)
    return [None] * len(opened)


async def _posted(connection: AsyncConnection, changes: Sequence[dict[str, Any]]) -> Sequence[None]:
    return await _update(connection, _POSTED, changes)


async def _keep(connection: AsyncConnection, changes: Sequence[dict[str, Any]]) -> Sequence[None]:
    return await _update(connection, _KEEP, changes)


async def _close(connection: AsyncConnection, changes: Sequence[dict[str, Any]]) -> Sequence[None]:
    return await _update(connection, _CLOSE, changes)


async def _update(
    connection: AsyncConnection, statement: sa.Update, changes: Sequence[dict[str, Any]]
) -> Sequence[None]:
    # Stable: of two changes of one card the later one is the last.
    await connection.execute(statement, sorted(changes, key=lambda values: values["b_key"]))
    return [None] * len(changes)


def _record(row: Any) -> CardRecord:
    check_version(row.v)
    return CardRecord(
        key=row.key,
        task_id=row.task_id,
        session_key=row.session_key,
        opened_at=row.opened_at,
        place=PLACE.decode(row.place),
        state=row.state,
        message_id=row.message_id,
        text=TEXT.decode(row.text),
        final=row.final,
        closed_at=row.closed_at,
    )
