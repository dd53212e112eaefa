"""A conversation as one run adds to it."""

import asyncio
from collections.abc import Sequence

from harness.errors import VersionConflict
from harness.messages import Message
from harness.stores.base import Session, SessionStore


class SessionLog:
    """Appends for one run: one at a time, each on top of the last, all under the run's fence."""

    def __init__(self, store: SessionStore, session: Session, fence: int) -> None:
        self.session = session
        self._store = store
        self._fence = fence
        self._lock = asyncio.Lock()

    async def append(self, messages: Sequence[Message]) -> None:
        """Add messages; raises `StaleFence` when another owner has written."""
        async with self._lock:
            try:
                self.session = await self._store.append(self.session, messages, fence=self._fence)
            except VersionConflict:
                # Cleared or added to from outside meanwhile: what this run has to add is still true.
                current = await self._store.load(self.session.key)
                self.session = await self._store.append(current, messages, fence=self._fence)
