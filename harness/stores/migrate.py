"""Brings the tables of a database up to date, under a lock that holds across processes.

alembic is loaded only when there is something to do: a database that is up to date is known by its version alone.
"""

import asyncio
import threading
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from harness.errors import SchemaTooNew, StoreError
from harness.stores.schema import HEAD

SCRIPTS: Final = Path(__file__).parent / "migrations"
VERSION_TABLE: Final = "harness_version"
"""Not alembic's usual name: the database may be shared with other programs that use alembic."""
# Any number that no other program takes: "harness" in hexadecimal.
_LOCK: Final = 0x6861726E657373
_PAUSE_S: Final = 0.01
# alembic keeps the migration it is at in a global: two databases that open in one process would get each other's steps.
# No asyncio lock, which belongs to one event loop.
_one_at_a_time = threading.Lock()


async def migrate(connection: AsyncConnection) -> None:
    """Make or update the tables in the connection's transaction, which the caller commits.

    Raises `SchemaTooNew` when the database was made by newer code.
    """
    while not _one_at_a_time.acquire(blocking=False):
        await asyncio.sleep(_PAUSE_S)
    try:
        # On SQLite the transaction itself is the lock: it begins with the right to write.
        if connection.dialect.name == "postgresql":
            await connection.execute(sa.text("SET LOCAL lock_timeout = '5s'"))
            await connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        await connection.run_sync(_migrate)
    finally:
        _one_at_a_time.release()


def _migrate(connection: sa.Connection) -> None:
    found = _version(connection)
    if found == HEAD:
        return
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise SchemaTooNew(
            f"its tables have version {found!r}, and this version of the program knows them up to {HEAD!r}: upgrade "
            "the program, or name another database in DATABASE_URL"
        )
    command.upgrade(config, "head")


def _version(connection: sa.Connection) -> str | None:
    """The version of the tables, None when there are none."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    try:
        return connection.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}"))  # noqa: S608 - a constant
    except SQLAlchemyError as error:
        raise StoreError(f"its version cannot be read ({type(error).__name__}): restore a backup") from error
