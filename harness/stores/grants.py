"""`GrantStore` in SQL."""

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from harness.approval import Grant
from harness.stores.codec import GRANT, RECORD_VERSION
from harness.stores.database import Database
from harness.stores.schema import grants
from harness.stores.statements import fetch, insert_or_replace
from harness.stores.writer import Operation

_OLDEST_FIRST: Final = (grants.c.created_at, grants.c.id)


class SqlGrantStore:
    """See `GrantStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, grant: Grant) -> None:
        """See `GrantStore`."""
        await self._database.write(Operation(_add, grant))

    async def find(self, digest: str, *, chat: str, user: str, session_key: str, now: float) -> Grant | None:
        """See `GrantStore`."""
        query = (
            sa.select(grants)
            .where(
                grants.c.digest == digest,
                grants.c.chat == chat,
                grants.c.user_id == user,
                grants.c.session_key.in_(["", session_key]),
                grants.c.expires_at > now,
            )
            .order_by(*_OLDEST_FIRST)
            .limit(1)
        )
        found = await self._select(query)
        return found[0] if found else None

    async def list(self, *, now: float, chat: str = "", user: str = "") -> Sequence[Grant]:
        """See `GrantStore`."""
        query = sa.select(grants).where(grants.c.expires_at > now).order_by(*_OLDEST_FIRST)
        if chat:
            query = query.where(grants.c.chat == chat)
        if user:
            query = query.where(grants.c.user_id == user)
        return await self._select(query)

    async def revoke(self, grant_id: str) -> bool:
        """See `GrantStore`."""
        (revoked,) = await self._database.write(Operation(_revoke, grant_id))
        return revoked

    async def _select(self, query: sa.Select[Any]) -> Sequence[Grant]:
        return [GRANT.decode(row.body, row.v) for row in await self._database.read(lambda c: fetch(c, query))]


async def _add(connection: AsyncConnection, added: Sequence[Grant]) -> Sequence[None]:
    rows = [
        {
            "id": grant.id,
            "digest": grant.digest,
            "chat": grant.chat,
            "user_id": grant.user,
            "session_key": grant.session_key,
            "created_at": grant.created_at,
            "expires_at": grant.expires_at,
            "body": GRANT.encode(grant),
            "v": RECORD_VERSION,
        }
        for grant in sorted(added, key=lambda grant: grant.id)
    ]
    await insert_or_replace(connection, grants, rows)
    return [None] * len(added)


async def _revoke(connection: AsyncConnection, ids: Sequence[str]) -> Sequence[bool]:
    # One after the other: of two that take the same grant back, one did it.
    return [
        bool(await fetch(connection, sa.delete(grants).where(grants.c.id == grant_id).returning(grants.c.id)))
        for grant_id in ids
    ]
