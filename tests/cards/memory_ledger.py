"""The card ledger in the memory of one process."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from harness.stores.records import CardRecord

KEPT: Final = 10_000


class MemoryCardLedger:
    """`harness.stores.base.CardLedger` on a dict. `keep`: how many records; the oldest of more are forgotten.

    No method waits for anything, so each is atomic on its event loop.
    """

    def __init__(self, *, keep: int = KEPT) -> None:
        self._keep = keep
        self._cards: dict[str, CardRecord] = {}

    async def open(self, card: CardRecord) -> None:
        """See `CardLedger`."""
        self._cards.setdefault(card.key, card)
        while len(self._cards) > self._keep:
            del self._cards[next(iter(self._cards))]

    async def posted(self, key: str, message_id: str) -> None:
        """See `CardLedger`."""
        if card := self._cards.get(key):
            state = "open" if card.state == "opening" else card.state
            self._cards[key] = replace(card, message_id=message_id, state=state)

    async def keep(self, key: str, text: str) -> None:
        """See `CardLedger`."""
        card = self._cards.get(key)
        if card is not None and card.state != "closed":
            self._cards[key] = replace(card, text=text)

    async def close(self, key: str, final: str, *, at: float, text: str | None = None) -> None:
        """See `CardLedger`."""
        card = self._cards.get(key)
        if card is not None and card.state != "closed":
            shown = card.text if text is None else text
            self._cards[key] = replace(card, state="closed", final=final, closed_at=at, text=shown)

    async def of_task(self, task_id: str) -> Sequence[CardRecord]:
        """See `CardLedger`."""
        return self._sorted(card for card in self._cards.values() if card.task_id == task_id)

    async def unfinished(self, *, limit: int = 1000) -> Sequence[CardRecord]:
        """See `CardLedger`."""
        return self._sorted(card for card in self._cards.values() if card.state != "closed")[:limit]

    @staticmethod
    def _sorted(cards: Iterable[CardRecord]) -> list[CardRecord]:
        return sorted(cards, key=lambda card: (card.opened_at, card.key))
