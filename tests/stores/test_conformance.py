"""Every store under the public suites."""

import pytest

from harness.stores.base import CardLedger, GrantStore, ParkingStore, SessionStore, Stores
from harness.stores.memory import MemoryGrantStore, MemoryParkingStore, MemorySessionStore
from harness.testing.record_suite import RecordSuite
from harness.testing.store_suite import GrantSuite, ParkingSuite, SessionSuite
from harness.testing.whole_suite import WholeSuite


class TestMemory(SessionSuite, GrantSuite, ParkingSuite):
    @pytest.fixture
    def sessions(self) -> SessionStore:
        return MemorySessionStore()

    @pytest.fixture
    def grants(self) -> GrantStore:
        return MemoryGrantStore()

    @pytest.fixture
    def parking(self) -> ParkingStore:
        return MemoryParkingStore()


class TestSql(SessionSuite, GrantSuite, ParkingSuite, RecordSuite, WholeSuite):
    @pytest.fixture
    def sessions(self, stores: Stores) -> SessionStore:
        return stores.sessions

    @pytest.fixture
    def grants(self, stores: Stores) -> GrantStore:
        return stores.grants

    @pytest.fixture
    def parking(self, stores: Stores) -> ParkingStore:
        return stores.parking

    @pytest.fixture
    def cards(self, stores: Stores) -> CardLedger:
        return stores.cards
