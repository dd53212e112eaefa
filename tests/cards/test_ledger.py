"""The card ledger in memory keeps the contract of the one in the database."""

from dataclasses import replace

import pytest

from harness.stores.base import CardLedger
from harness.testing.record_suite import CardSuite
from tests.cards.memory_ledger import MemoryCardLedger


class TestMemoryLedger(CardSuite):
    @pytest.fixture
    def cards(self) -> CardLedger:
        return MemoryCardLedger()

    async def test_the_oldest_are_forgotten(self) -> None:
        ledger = MemoryCardLedger(keep=2)
        for n in range(3):
            await ledger.open(replace(self.card, key=f"k{n}"))
        assert [card.key for card in await ledger.unfinished()] == ["k1", "k2"]
