"""One database: its engines, its writer, and the ways to read and write."""

import asyncio
import itertools
import os
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import StaticPool

from harness.errors import ConfigError, StoreError
from harness.stores.address import Address, PostgresAddress, SqliteAddress
from harness.stores.codec import RECORD_VERSION
from harness.stores.faults import is_wrong_address, passing, refusal
from harness.stores.migrate import migrate
from harness.stores.writer import PATIENCE_S, Operation, Writer

_T = TypeVar("_T")

_READERS: Final = 4
_CONNECT_S: Final = 5.0
_BUSY_S: Final = 0.2
"""How long SQLite itself waits for a lock; the writer and the readers come back until their time is up."""
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Database:
    """An open database. One per process and address."""

    address: Address
    writer: Writer
    _link: "_Link"
    _patience_s: float

    async def write(self, *operations: Operation) -> Sequence[Any]:
        """Do all of it durably, in one transaction; see `Writer.write`."""
        return await self.writer.write(*operations)

    async def read(self, query: Callable[[AsyncConnection], Awaitable[_T]]) -> _T:
        """The answer of a query, which may be asked again after a lost connection.

        It sees what was committed before. Each statement is a snapshot of its own, so what belongs together is asked
        with one. Raises StoreError when the database does not answer in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience_s
        while True:
            try:
                async with self._link.reading() as connection:
                    return await query(connection)
            except Exception as error:
                reason = passing(error)
                if reason is None:
                    raise refusal(error) from error
                if loop.time() >= deadline:
                    raise StoreError(f"{reason} (waited {self._patience_s:g} s)") from error
            await asyncio.sleep(_PAUSE_S)


@asynccontextmanager
async def open_database(address: Address, *, patience_s: float = PATIENCE_S) -> AsyncGenerator[Database]:
    """Open the database, bring its tables up to date, and close it again at the end.

    `patience_s`: how long a read or a write may wait for a database that is locked or restarting. Raises ConfigError
    when there can be no such database, StoreError when it does not answer or was made by newer code.
    """
    link = _sqlite(address) if isinstance(address, SqliteAddress) else _postgres(address, patience_s)
    try:
        await _prepare(link, address, patience_s)
        writer = Writer(link, patience_s=patience_s)
        try:
            yield Database(address, writer, link, patience_s)
        finally:
            await writer.aclose()
    finally:
        await link.dispose()


async def _prepare(link: "_Link", address: Address, patience_s: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while True:
        try:
            async with link.turn, link.writing.connect() as connection:
                await migrate(connection)
                await connection.commit()
            return
        except Exception as error:
            if is_wrong_address(error):
                raise ConfigError(f"{address}: {refusal(error)}") from error
            if (reason := passing(error)) is None:
                if isinstance(found := refusal(error), StoreError):
                    raise type(found)(f"{address}: {found}") from error
                raise
            if loop.time() >= deadline:
                raise StoreError(f"{address}: {reason} (waited {patience_s:g} s)") from error
        await asyncio.sleep(_PAUSE_S)


@dataclass(frozen=True, slots=True)
class _Link:
    """The engines. `shared`: readers use the writer's one connection, as a database in memory has no other."""

    writing: AsyncEngine
    readers: AsyncEngine
    shared: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    writer_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    marks: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def connect(self) -> AsyncConnection:
        """See `writer.Link`."""
        connection = self.writing.connect()
        await connection.start()
        return connection

    async def mark(self, connection: AsyncConnection) -> int | None:
        """See `writer.Link`."""
        if self.writing.dialect.name == "sqlite":
            # BEGIN is sent here, so that a lock held elsewhere shows before any work is done.
            await connection.begin()
            return None
        mark = next(self.marks)
        values = {"id": self.writer_id, "number": mark, "at": time.time(), "v": RECORD_VERSION}
        await connection.execute(_MARK, values)
        return mark

    async def was_committed(self, connection: AsyncConnection, mark: int) -> bool:
        """See `writer.Link`."""
        return await connection.scalar(_OUTCOME, {"id": self.writer_id}) == mark

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[AsyncConnection]:
        """A connection for one query."""
        if not self.shared:
            async with self.readers.connect() as connection:
                yield connection
            return
        async with self.turn, self.readers.connect() as connection:
            yield connection

    async def dispose(self) -> None:
        """Close every connection."""
        await self.writing.dispose()
        if self.readers is not self.writing:
            await self.readers.dispose()


# --- SQLite ----------------------------------------------------------------------------------------------------------


def _sqlite(address: SqliteAddress) -> _Link:
    if address.path is None:
        engine = create_async_engine("sqlite+aiosqlite:///:memory:", poolclass=StaticPool)
        _begin_with(engine, "BEGIN IMMEDIATE", ())
        return _Link(engine, engine, shared=True)
    _make_file(address)
    url = sa.URL.create("sqlite+aiosqlite", database=str(address.path))
    writing = create_async_engine(url, pool_size=1, max_overflow=0, connect_args={"timeout": _BUSY_S})
    # FULL: what was acknowledged survives a power cut too, at the price of one fsync per group.
    _begin_with(writing, "BEGIN IMMEDIATE", ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL"))
    readers = create_async_engine(url, pool_size=_READERS, max_overflow=0, connect_args={"timeout": _BUSY_S})
    _begin_with(readers, "BEGIN", ("PRAGMA query_only=1",))
    return _Link(writing, readers)


def _make_file(address: SqliteAddress) -> None:
    assert address.path is not None
    try:
        address.path.parent.mkdir(parents=True, exist_ok=True)
        # Conversations are nobody else's to read.
        os.close(os.open(address.path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise ConfigError(
            f"{address} cannot be written ({error.strerror}): correct DATABASE_URL or BOTS_DATA_DIR, or the "
            "permissions of that folder."
        ) from error


def _begin_with(engine: AsyncEngine, begin: str, pragmas: Sequence[str]) -> None:
    """Begin transactions ourselves: Python's driver begins none before the first write."""

    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(pragma)
        cursor.close()

    def begun(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine.sync_engine, "connect", connected)
    event.listen(engine.sync_engine, "begin", begun)


# --- PostgreSQL ------------------------------------------------------------------------------------------------------

_MARK: Final = sa.text(
    "INSERT INTO harness_writers (id, number, at, v) VALUES (:id, :number, :at, :v)"
    " ON CONFLICT (id) DO UPDATE SET number = excluded.number, at = excluded.at"
)
# FOR UPDATE: while the transaction is still open somewhere its row is locked, and this waits for its end. (The server's
# own pg_xact_status would not do: after a crash it may give the number of a lost transaction to another one.)
_OUTCOME: Final = sa.text("SELECT number FROM harness_writers WHERE id = :id FOR UPDATE")


def _postgres(address: PostgresAddress, patience_s: float) -> _Link:
    url = sa.URL.create(
        "postgresql+asyncpg",
        username=address.user,
        password=address.password,
        host=None if address.host.startswith("/") else address.host,
        port=address.port,
        database=address.database,
    )
    arguments: dict[str, Any] = {"timeout": _CONNECT_S, "command_timeout": max(patience_s, _CONNECT_S)}
    if address.host.startswith("/"):
        arguments["host"] = address.host
    if address.sslmode:
        arguments["ssl"] = address.sslmode
    writing = create_async_engine(url, pool_size=1, max_overflow=0, connect_args=arguments)
    event.listen(writing.sync_engine, "connect", _durably)
    # A query is one statement: a transaction around it would only cost two more round trips.
    readers = create_async_engine(
        url, pool_size=_READERS, max_overflow=0, connect_args=arguments, isolation_level="AUTOCOMMIT"
    )
    return _Link(writing, readers)


def _durably(connection: Any, _record: object) -> None:
    # A server may be set to acknowledge before it has written; a stricter setting than `on` is left alone.
    cursor = connection.cursor()
    cursor.execute(
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    )
    cursor.close()
    connection.commit()
