"""All stores over one SQL database: `async with open_stores(settings.database_url, data_dir) as stores`.

SQLite in a file, SQLite in memory and PostgreSQL are one implementation; in memory it serves as the short-lived form of
the stores that `harness.stores.memory` does not have.
"""

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.stores.address import parse_address
from harness.stores.approvals import SqlParkingStore
from harness.stores.base import Stores
from harness.stores.calls import SqlJournal
from harness.stores.cards import SqlCardLedger
from harness.stores.database import Database, open_database
from harness.stores.grants import SqlGrantStore
from harness.stores.retention import SqlRetention
from harness.stores.sessions import SqlSessionStore
from harness.stores.tasks import SqlTaskStore
from harness.stores.traces import SqlTraceStore
from harness.stores.unit_of_work import SqlUnitOfWork
from harness.stores.writer import PATIENCE_S


@dataclass(frozen=True, slots=True)
class SqlStores(Stores):
    """The same, with the database that they are in."""

    database: Database


@asynccontextmanager
async def open_stores(
    url: str | None,
    data_dir: Path,
    *,
    now: Callable[[], float] = time.time,
    patience_s: float = PATIENCE_S,
) -> AsyncGenerator[SqlStores]:
    """The stores of a database, made or updated as needed, for as long as the context lasts.

    `url`: `postgresql://user:password@host/database`, `sqlite:///path` or `sqlite:///:memory:`; None = the SQLite file
    `harness.db` in `data_dir`. `now` gives Unix seconds. `patience_s`: how long a read or a write may wait for a
    database that is locked or restarting, before it is a StoreError.

    Raises ConfigError for a wrong address, StoreError for a database that does not answer or that newer code has made.
    """
    async with open_database(parse_address(url, data_dir), patience_s=patience_s) as database:
        sessions = SqlSessionStore(database, now)
        yield SqlStores(
            sessions=sessions,
            index=sessions,
            grants=SqlGrantStore(database),
            parking=SqlParkingStore(database, now),
            tasks=SqlTaskStore(database),
            traces=SqlTraceStore(database),
            journal=SqlJournal(database),
            cards=SqlCardLedger(database),
            retention=SqlRetention(database),
            unit=SqlUnitOfWork(database, now),
            database=database,
        )
