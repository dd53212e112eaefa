"""What one run adds to its conversation, together with whatever else has to be written down at that moment."""

import asyncio
import time
from collections.abc import Callable, Sequence

from harness.errors import VersionConflict
from harness.messages import Message
from harness.stores.base import AppendMessages, Change, Records, Session, SessionStore
from harness.task_registry import TaskRegistry
from harness.uninterrupted import finished


class RunLog:
    """Appends for one run: one at a time, each on top of the last, all under the run's fence.

    With `records` the other changes of a call are committed together with its messages; without, there is nowhere to
    put them and they are left out. `registry` holds a write to its end when the run is canceled in the middle of it.
    """

    def __init__(
        self,
        sessions: SessionStore,
        session: Session,
        fence: int,
        registry: TaskRegistry,
        *,
        records: Records | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.fence = fence
        self._session = session
        self._sessions = sessions
        self._records = records
        self._registry = registry
        self._now = now
        self._lock = asyncio.Lock()

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation as far as it is written down."""
        return self._session.messages

    def now(self) -> float:
        """Unix seconds, for what is written down."""
        return self._now()

    async def add(self, messages: Sequence[Message], *changes: Change) -> None:
        """Write it all down, whole or not at all; durable when this returns.

        A caller that is canceled meanwhile waits for the write as well: whoever comes next in this conversation must
        find it there, and how long a store may take is limited by the store.
        Raises `StaleFence` when another owner has written, and StoreError when the store does not take it.
        """
        if messages or (changes and self._records is not None):
            await finished(self._registry.start(self._add(messages, changes), "write to the conversation"))

    async def _add(self, messages: Sequence[Message], changes: Sequence[Change]) -> None:
        async with self._lock:
            try:
                await self._append(messages, changes)
            except VersionConflict:
                # Cleared or added to from outside meanwhile: what this run has to add is still true.
                self._session = await self._sessions.load(self._session.key)
                await self._append(messages, changes)

    async def _append(self, messages: Sequence[Message], changes: Sequence[Change]) -> None:
        if self._records is None:
            self._session = await self._sessions.append(self._session, messages, fence=self.fence)
            return
        append = AppendMessages(self._session, tuple(messages), self.fence)
        if messages:
            changes = (append, *changes)
        await self._records.commit(*changes)
        if messages:
            self._session = append.after
