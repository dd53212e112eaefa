"""The messages of one card, written down around each post, so that whoever takes the task over finds them again."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from harness.errors import StoreError
from harness.stores.base import CardLedger
from harness.stores.records import CardRecord

log = structlog.stdlib.get_logger(__name__)

KIND: Final = "kind"
_CARD: Final = "card"
_GONE: Final = "gone"


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a card's messages: number and id of each that stands.

    `in_doubt`: the number of one that may have been posted, under an id that nobody knows. `next_part`: the first
    number that was never used.
    """

    messages: tuple[tuple[int, str], ...] = ()
    in_doubt: int | None = None
    next_part: int = 0


class CardBook:
    """The pages of the ledger that belong to one card, which has a message or several, each with a number.

    `place`: the card's address, for whoever finds the page.

    A store that does not take a page keeps nobody from reading the answer: that is logged, and the card is shown all
    the same. `now` gives Unix seconds.
    """

    def __init__(
        self,
        ledger: CardLedger,
        task_id: str,
        session_key: str,
        place: Mapping[str, str],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._ledger = ledger
        self._task_id = task_id
        self._session_key = session_key
        self._place = {**place, KIND: _CARD}
        self._now = now
        self._written: set[int] = set()

    async def standing(self) -> Standing:
        """What an earlier owner of the task has posted."""
        try:
            records = await self._ledger.of_task(self._task_id)
        except StoreError:
            log.exception("the messages of a card could not be looked up", task=self._task_id)
            return Standing()
        cards = {_part(record): record for record in records if is_card(record)}
        standing = {part: record for part, record in sorted(cards.items()) if record.final != _GONE}
        self._written = set(standing)
        return Standing(
            tuple((part, record.message_id) for part, record in standing.items() if record.message_id),
            next((part for part, record in standing.items() if not record.message_id), None),
            max(cards, default=-1) + 1,
        )

    async def opening(self, part: int) -> None:
        """A message is about to be posted."""
        record = CardRecord(self._key(part), self._task_id, self._session_key, self._now(), self._place)
        self._written.add(part)
        try:
            await self._ledger.open(record)
        except StoreError:
            log.exception("a card could not be written down", task=self._task_id)

    async def posted(self, part: int, message: str) -> None:
        """It stands, under this id."""
        try:
            await self._ledger.posted(self._key(part), message)
        except StoreError:
            log.exception("a card could not be written down", task=self._task_id)

    async def closed(self, final: str) -> None:
        """The whole card shows its last state."""
        await self._close(final, sorted(self._written))

    async def gone(self, *parts: int) -> None:
        """These messages are deleted, or given up for others; all of them when none is named."""
        await self._close(_GONE, parts or sorted(self._written))

    async def _close(self, final: str, parts: Iterable[int]) -> None:
        try:
            for part in parts:
                self._written.discard(part)
                await self._ledger.close(self._key(part), final, at=self._now())
        except StoreError:
            log.exception("the end of a card could not be written down", task=self._task_id)

    def _key(self, part: int) -> str:
        return f"{_CARD}:{self._task_id}/{part}"


def is_card(record: CardRecord) -> bool:
    """Whether it is a message of a card, and not of a question."""
    return record.place.get(KIND) == _CARD


def _part(record: CardRecord) -> int:
    return int(record.key.rpartition("/")[2])
