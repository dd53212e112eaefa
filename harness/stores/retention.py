"""`Retention` in SQL: what is deleted goes in small transactions, so that no other write waits long."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from harness.status import TaskStatus
from harness.stores.database import Database
from harness.stores.schema import (
    approvals,
    cards,
    events,
    grants,
    journal,
    messages,
    parked_runs,
    sessions,
    tasks,
    writers,
)
from harness.stores.statements import fetch
from harness.stores.writer import Operation

CHUNK: Final = 100
_OVER: Final = [status.value for status in TaskStatus if status.is_terminal]


class SqlRetention:
    """See `Retention`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def purge(self, *, before: float) -> int:
        """See `Retention`."""
        at_work = sa.select(tasks.c.session_key).where(tasks.c.status.not_in(_OVER))
        old_sessions = sa.select(sessions.c.key).where(sessions.c.updated_at < before, sessions.c.key.not_in(at_work))
        last_use = sa.func.coalesce(tasks.c.ended_at, tasks.c.created_at)
        old_tasks = sa.select(tasks.c.id).where(tasks.c.status.in_(_OVER), last_use < before)
        deleted = await self._in_chunks(lambda keys: Operation(_delete_old_sessions, (keys, before)), old_sessions)
        deleted += await self._in_chunks(lambda ids: Operation(_delete_tasks, ids), old_tasks)
        await self._database.write(Operation(_delete_expired, before))
        return deleted

    async def forget_session(self, session_key: str) -> None:
        """See `Retention`."""
        await self._database.write(Operation(_delete_session, session_key))
        of_session = sa.select(tasks.c.id).where(tasks.c.session_key == session_key)
        await self._in_chunks(lambda ids: Operation(_delete_tasks, ids), of_session)

    async def forget_user(self, user: str) -> None:
        """See `Retention`."""
        if not user:
            return
        asked = sa.select(tasks.c.session_key).where(tasks.c.requester == user).distinct()
        for row in await self._database.read(lambda c: fetch(c, asked)):
            await self._database.write(Operation(_delete_conversation, row.session_key))
        of_user = sa.select(tasks.c.id).where(tasks.c.requester == user)
        await self._in_chunks(lambda ids: Operation(_delete_tasks, ids), of_user)
        await self._database.write(Operation(_delete_grants_of, user))

    async def _in_chunks(self, deleting: Callable[[list[str]], Operation], query: sa.Select[Any]) -> int:
        """Delete what the query names until it names nothing more."""
        deleted = 0
        chunk = query.limit(CHUNK)
        while found := [row[0] for row in await self._database.read(lambda c: fetch(c, chunk))]:
            await self._database.write(deleting(found))
            deleted += len(found)
        return deleted


async def _delete_old_sessions(
    connection: AsyncConnection, groups: Sequence[tuple[list[str], float]]
) -> Sequence[None]:
    for keys, before in groups:
        # Looked at again: one of them may have been used since.
        old = sa.delete(sessions).where(sessions.c.key.in_(keys), sessions.c.updated_at < before)
        deleted = [row.key for row in await fetch(connection, old.returning(sessions.c.key))]
        await connection.execute(sa.delete(messages).where(messages.c.session_key.in_(deleted)))
    return [None] * len(groups)


async def _delete_conversation(connection: AsyncConnection, keys: Sequence[str]) -> Sequence[None]:
    await connection.execute(sa.delete(sessions).where(sessions.c.key.in_(keys)))
    await connection.execute(sa.delete(messages).where(messages.c.session_key.in_(keys)))
    return [None] * len(keys)


async def _delete_session(connection: AsyncConnection, keys: Sequence[str]) -> Sequence[None]:
    """All that names the session, but for its tasks; what was permitted for the session alone goes too."""
    await _delete_conversation(connection, keys)
    for table in (journal, cards, approvals, parked_runs, grants):
        await connection.execute(sa.delete(table).where(table.c.session_key.in_(keys)))
    return [None] * len(keys)


async def _delete_tasks(connection: AsyncConnection, groups: Sequence[Sequence[str]]) -> Sequence[None]:
    """A task with all that hangs on it."""
    ids = [task_id for group in groups for task_id in group]
    await connection.execute(sa.delete(tasks).where(tasks.c.id.in_(ids)))
    for table in (events, journal, cards, approvals, parked_runs):
        await connection.execute(sa.delete(table).where(table.c.task_id.in_(ids)))
    return [None] * len(groups)


async def _delete_grants_of(connection: AsyncConnection, users: Sequence[str]) -> Sequence[None]:
    await connection.execute(sa.delete(grants).where(grants.c.user_id.in_(users)))
    return [None] * len(users)


async def _delete_expired(connection: AsyncConnection, times: Sequence[float]) -> Sequence[None]:
    """Grants that were over by then, closed cards and answered questions of no known task, and writers long gone."""
    for before in times:
        await connection.execute(sa.delete(grants).where(grants.c.expires_at < before))
        await connection.execute(sa.delete(writers).where(writers.c.at < before))
        closed = cards.c.state == "closed"
        await connection.execute(sa.delete(cards).where(closed, cards.c.closed_at < before))
        answered = approvals.c.status != "pending"
        await connection.execute(sa.delete(approvals).where(answered, approvals.c.expires_at < before))
    return [None] * len(times)
