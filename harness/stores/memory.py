"""Conversations in the memory of one process: for the terminal, for tests, and until a database is configured."""

from collections.abc import Sequence
from dataclasses import replace

from harness.errors import StaleFence, VersionConflict
from harness.messages import Message
from harness.stores.base import Session


class MemorySessionStore:
    """`SessionStore` on a dict. Everything is gone with the process."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    async def load(self, key: str) -> Session:
        """The conversation; an unknown key gives an empty one."""
        return self._sessions.get(key) or Session(key)

    async def append(self, session: Session, messages: Sequence[Message], *, fence: int = 0) -> Session:
        """Add messages; see `SessionStore.append`."""
        stored = await self.load(session.key)
        if fence and fence < stored.fence:
            raise StaleFence(f"session {session.key!r}: fence {fence} is older than {stored.fence}")
        if session.version != stored.version:
            raise VersionConflict(f"session {session.key!r} is at version {stored.version}, not {session.version}")
        new = Session(
            session.key,
            (*stored.messages, *messages),
            stored.version + 1,
            max(fence, stored.fence),
        )
        self._sessions[session.key] = new
        return new

    async def clear(self, key: str) -> None:
        """Forget the messages; the version goes on, so that an old writer cannot bring them back."""
        if stored := self._sessions.get(key):
            self._sessions[key] = replace(stored, messages=(), version=stored.version + 1)
