"""`SessionStore` and `SessionIndex` in SQL."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from harness.errors import StaleFence, VersionConflict
from harness.messages import Message, UserMessage
from harness.stores.base import AppendMessages, Session
from harness.stores.codec import MESSAGE, RECORD_VERSION, check_version
from harness.stores.database import Database
from harness.stores.records import SessionSummary, title_of
from harness.stores.schema import messages, sessions
from harness.stores.statements import begins_with, fetch, insert_new
from harness.stores.writer import NotTogether, Operation

# One statement, so that the version and the messages belong together.
_LOAD: Final = (
    sa.select(sessions.c.version, sessions.c.fence, sessions.c.v, messages.c.body, messages.c.v.label("message_v"))
    .select_from(sessions.outerjoin(messages, sessions.c.key == messages.c.session_key))
    .where(sessions.c.key == sa.bindparam("wanted"))
    .order_by(messages.c.position)
)
_LOCK: Final = (
    sa.select(sessions)
    .where(sessions.c.key.in_(sa.bindparam("keys", expanding=True)))
    .order_by(sessions.c.key)
    .with_for_update()
)
_SAVE: Final = (
    sa.update(sessions)
    .where(
        sessions.c.key == sa.bindparam("b_key"),
        sessions.c.version == sa.bindparam("b_version"),
        sessions.c.fence <= sa.bindparam("b_fence"),
    )
    .values(
        version=sessions.c.version + 1,
        fence=sa.bindparam("b_fence"),
        length=sa.bindparam("b_length"),
        turns=sa.bindparam("b_turns"),
        title=sa.bindparam("b_title"),
        updated_at=sa.bindparam("b_at"),
    )
)
_FORGET: Final = sa.delete(messages).where(messages.c.session_key == sa.bindparam("b_key"))
_CLEAR: Final = (
    sa.update(sessions)
    .where(sessions.c.key == sa.bindparam("b_key"))
    .values(version=sessions.c.version + 1, length=0, turns=0, title="")
)


class SqlSessionStore:
    """See `SessionStore`. `now` gives Unix seconds."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    async def load(self, key: str) -> Session:
        """See `SessionStore`."""
        rows = await self._database.read(lambda c: fetch(c, _LOAD, {"wanted": key}))
        if not rows:
            return Session(key)
        check_version(rows[0].v)
        found = tuple([MESSAGE.decode(row.body, row.message_v) for row in rows if row.body is not None])
        return Session(key, found, rows[0].version, rows[0].fence)

    async def append(self, session: Session, messages: Sequence[Message], *, fence: int = 0) -> Session:
        """See `SessionStore`."""
        change = AppendMessages(session, tuple(messages), fence)
        await self._database.write(appending(change, self._now()))
        return change.after

    async def clear(self, key: str) -> None:
        """See `SessionStore`."""
        await self._database.write(Operation(_clear, key))

    async def summaries(self, *, prefix: str = "", limit: int = 100) -> Sequence[SessionSummary]:
        """See `SessionIndex`."""
        query = (
            sa.select(sessions)
            .where(sessions.c.length > 0, begins_with(sessions.c.key, prefix))
            .order_by(sessions.c.updated_at.desc(), sessions.c.key)
            .limit(limit)
        )
        rows = await self._database.read(lambda c: fetch(c, query))
        return [SessionSummary(row.key, row.title, row.turns, row.created_at, row.updated_at) for row in rows]


def appending(change: AppendMessages, at: float) -> Operation:
    """An append for a unit of work. `at`: Unix seconds."""
    return Operation(_append, (change, at))


async def _append(connection: AsyncConnection, stamped: Sequence[tuple[AppendMessages, float]]) -> Sequence[None]:
    """Lock the rows, check each append against its row, write."""
    times = {change.session.key: at for change, at in stamped}
    if len(times) < len(stamped):
        raise NotTogether("a session is appended to once per unit of work")
    rows = await _lock(connection, times)
    saves: list[dict[str, Any]] = []
    added: list[dict[str, Any]] = []
    for change, at in stamped:
        row = rows[change.session.key]
        _check(change, row)
        saves.append(_save(change, row, at))
        added.extend(
            {
                "session_key": row.key,
                "position": row.length + number,
                "body": MESSAGE.encode(message),
                "v": RECORD_VERSION,
            }
            for number, message in enumerate(change.messages)
        )
    await connection.execute(_SAVE, saves)
    if added:
        await connection.execute(sa.insert(messages), added)
    return [None] * len(stamped)


async def _lock(connection: AsyncConnection, times: Mapping[str, float]) -> dict[str, Any]:
    """The rows of these sessions by key, made where there are none; `times`: when each is used."""
    keys = sorted(times)
    rows = {row.key: row for row in await fetch(connection, _LOCK, {"keys": keys})}
    if missing := [key for key in keys if key not in rows]:
        # Another replica may make the same row at this moment; then that row is ours to lock.
        await insert_new(connection, sessions, [_new(key, times[key]) for key in missing])
        rows |= {row.key: row for row in await fetch(connection, _LOCK, {"keys": missing})}
    return rows


def _new(key: str, at: float) -> dict[str, Any]:
    return {
        "key": key,
        "version": 0,
        "fence": 0,
        "length": 0,
        "turns": 0,
        "title": "",
        "created_at": at,
        "updated_at": at,
        "v": RECORD_VERSION,
    }


def _save(change: AppendMessages, row: Any, at: float) -> dict[str, Any]:
    prompts = [message.text for message in change.messages if isinstance(message, UserMessage)]
    return {
        "b_key": row.key,
        "b_version": row.version,
        "b_fence": max(change.fence, row.fence),
        "b_length": row.length + len(change.messages),
        "b_turns": row.turns + len(prompts),
        "b_title": row.title or (title_of(prompts[0]) if prompts else ""),
        "b_at": at,
    }


def _check(change: AppendMessages, row: Any) -> None:
    check_version(row.v)
    if change.fence and change.fence < row.fence:
        raise StaleFence(f"session {row.key!r}: fence {change.fence} is older than {row.fence}")
    if change.session.version != row.version:
        raise VersionConflict(f"session {row.key!r} is at version {row.version}, not {change.session.version}")


async def _clear(connection: AsyncConnection, keys: Sequence[str]) -> Sequence[None]:
    parameters = [{"b_key": key} for key in sorted(set(keys))]
    await connection.execute(_CLEAR, parameters)
    await connection.execute(_FORGET, parameters)
    return [None] * len(keys)
