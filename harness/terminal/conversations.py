"""The conversations of a chat at a terminal: the one that the next message belongs to, and those that are stored."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harness.errors import HarnessError
from harness.messages import Message
from harness.stores.base import Stores
from harness.stores.records import SessionSummary
from harness.terminal.assembly import Kernel
from harness.terminal.left_behind import end_interrupted, last_sign, open_questions, unfinished
from harness.terminal.listing import when
from harness.terminal.lookup import CHAT, only

LISTED: Final = 20
_MOST: Final = 1000
_PREFIX: Final = f"{CHAT}/"


class CannotResume(HarnessError):
    """A conversation that cannot be continued here and now; the message says why."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A conversation that is the current one again. `cut_off`: what its last turn was at when its terminal died."""

    id: str
    turns: int
    messages: Sequence[Message]
    cut_off: str = ""


class Conversations:
    """Begins and continues conversations; one is open in a single terminal at a time."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._id = self._fresh()

    @property
    def id(self) -> str:
        """The current conversation, as a person names it."""
        return self._id

    @property
    def key(self) -> str:
        """The current conversation, as it is stored."""
        return _PREFIX + self._id

    def begin(self) -> None:
        """Begin another one."""
        self._go_to(self._fresh())

    async def stored(self) -> Sequence[SessionSummary]:
        """The conversations of terminals, the last used first, as many as a person looks through."""
        return await _stores(self._kernel).index.summaries(prefix=_PREFIX, limit=LISTED)

    async def resume(self, beginning: str) -> Resumed:
        """Continue the conversation whose id begins so. A turn that a dead terminal has left behind is ended.

        Raises `CannotResume`, `WrongId` and StoreError; then the current conversation stays.
        """
        stores, claims = _stores(self._kernel), self._kernel.claims
        found = await stores.index.summaries(prefix=_PREFIX + beginning, limit=_MOST)
        turns = {summary.key.removeprefix(_PREFIX): summary.turns for summary in found}
        found_id = only(turns, beginning, "conversation")
        key = _PREFIX + found_id
        if key == self.key:
            raise CannotResume(f"{found_id} is the conversation that you are in.")
        if not claims.take(key):
            raise CannotResume(f"{found_id} is open in another terminal: leave it there first.")
        try:
            cut_off = await self._end_left_behind(stores, key)
            session = await stores.sessions.load(key)
        except BaseException:
            claims.release(key)
            raise
        self._go_to(found_id)
        return Resumed(found_id, turns[found_id], session.messages, cut_off)

    async def _end_left_behind(self, stores: Stores, key: str) -> str:
        """End what is unfinished; what that was, in words."""
        words: list[str] = []
        for record in await unfinished(stores, key):
            if not self._kernel.claims.is_proof:
                # Its terminal may be on another machine and well: a turn that lives is never silent for so long.
                settings = self._kernel.settings
                dead_at = await last_sign(stores, record) + settings.run_timeout_s + settings.approval_timeout_s
                if time.time() < dead_at:
                    raise CannotResume(
                        "Its last turn has not ended: another terminal may be at work on it. It counts as interrupted "
                        f"when nothing is heard of it until {when(dead_at)}."
                    )
            tools = open_questions(await stores.traces.read(record.id))
            await end_interrupted(self._kernel.engine, stores, record)
            words.append(f"waited for permission ({', '.join(tools)})" if tools else "was at work")
        return ", ".join(words)

    def _fresh(self) -> str:
        while not self._kernel.claims.take(_PREFIX + (fresh := secrets.token_hex(4))):
            pass
        return fresh

    def _go_to(self, other: str) -> None:
        self._kernel.claims.release(self.key)
        self._id = other


def _stores(kernel: Kernel) -> Stores:
    if kernel.stores is None:
        raise CannotResume("Only a chat at a terminal keeps its conversations.")
    return kernel.stores
