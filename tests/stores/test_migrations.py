"""The tables: made once, by one, as the code describes them."""

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from harness.errors import StoreError
from harness.messages import UserMessage
from harness.stores.migrate import SCRIPTS, VERSION_TABLE
from harness.stores.schema import HEAD, metadata
from harness.stores.sql import open_stores


async def test_the_migrations_make_the_tables_that_the_code_describes(url: str, tmp_path: Path) -> None:
    def differences(connection: sa.Connection) -> Any:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        return compare_metadata(context, metadata)

    async with open_stores(url, tmp_path) as stores:
        assert await stores.database.read(lambda connection: connection.run_sync(differences)) == []


def test_the_version_that_the_code_names_is_the_last_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


async def test_many_that_start_at_once_make_the_tables_once(url: str, tmp_path: Path) -> None:
    async def start(number: int) -> None:
        async with open_stores(url, tmp_path) as stores:
            await stores.sessions.append(await stores.sessions.load(f"s{number}"), [UserMessage("hello")])
            assert len((await stores.sessions.load(f"s{number}")).messages) == 1

    await asyncio.gather(*(start(number) for number in range(6)))


async def test_what_was_kept_is_there_at_the_next_start(tmp_path: Path) -> None:
    async with open_stores(None, tmp_path / "new" / "folder") as stores:
        kept = await stores.sessions.append(await stores.sessions.load("s"), [UserMessage("hello")])
    async with open_stores(None, tmp_path / "new" / "folder") as stores:
        assert await stores.sessions.load("s") == kept
    file = tmp_path / "new" / "folder" / "harness.db"
    assert file.stat().st_mode & 0o077 == 0, "conversations are nobody else's to read"


async def test_a_database_of_newer_code_is_refused_and_left_alone(tmp_path: Path) -> None:
    async with open_stores(None, tmp_path):
        pass
    with sqlite3.connect(tmp_path / "harness.db") as connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    connection.close()
    with pytest.raises(StoreError, match=r"version '9999'.*upgrade the program"):
        async with open_stores(None, tmp_path):
            pass
    connection = sqlite3.connect(tmp_path / "harness.db")
    assert connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall() == [("9999",)]
    connection.close()


async def test_a_row_of_newer_code_is_refused(tmp_path: Path) -> None:
    async with open_stores(None, tmp_path) as stores:
        session = await stores.sessions.append(await stores.sessions.load("s"), [UserMessage("hello")])
        connection = sqlite3.connect(tmp_path / "harness.db")
        with connection:
            connection.execute("UPDATE harness_sessions SET v = 2")
        connection.close()
        with pytest.raises(StoreError, match="upgrade the program"):
            await stores.sessions.load("s")
        with pytest.raises(StoreError, match="upgrade the program"):
            await stores.sessions.append(session, [UserMessage("again")])


async def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "harness.db").write_text("This is a text file, and a long one at that. " * 100)
    with pytest.raises(StoreError, match=r"harness\.db: .*no SQLite database"):
        async with open_stores(None, tmp_path):
            pass


async def test_nothing_heavy_is_loaded_before_it_is_needed(tmp_path: Path) -> None:
    async with open_stores(None, tmp_path):
        pass
    code = f"""
import asyncio, pathlib, sys
import harness.runtime, harness.stores.base, harness.stores.memory, harness.stores.records
assert "sqlalchemy" not in sys.modules, "the kernel without a database"
from harness.stores.sql import open_stores
async def main():
    async with open_stores(None, pathlib.Path({str(tmp_path)!r})):
        assert "alembic" not in sys.modules, "a database that is up to date"
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stderr=subprocess.PIPE)
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
