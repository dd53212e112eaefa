"""What a database can answer instead of doing its work, and what to make of it. Pure.

Three sorts: what passes by itself (locked, restarting, a deadlock) is tried again; what is wrong with the database or
with what it was given is a StoreError with a sentence that says what to do; all else is a bug and stays what it is.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from typing import Final

from harness.errors import HarnessError, StoreError

_LOCKED_SQLITE: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_SQLITE: Final[Mapping[int, str]] = {
    sqlite3.SQLITE_FULL: "the disk of the database is full: free some space",
    sqlite3.SQLITE_READONLY: "the database cannot be written: check the permissions of its file and folder",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened: check its path and the permissions of its folder",
    sqlite3.SQLITE_IOERR: "the disk of the database fails: check it, and restore a backup if need be",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged: restore a backup",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database: name another one",
}
# By SQLSTATE; two characters stand for a whole class.
_PASSING: Final[Mapping[str, str]] = {
    "08": "the connection to the database was lost",
    "40": "another replica wrote the same rows at the same moment",
    "53300": "the database has too many connections: raise its max_connections",
    "55P03": "the database is locked by another program: end that program, or wait for it",
    "57": "the database is restarting or has been stopped: start it",
    "58": "the database's own disk or system fails: look into its log",
}
_POSTGRESQL: Final[Mapping[str, str]] = {
    "25006": "the database is read-only: name the primary server",
    "28": "the database refuses the user or the password: correct them in DATABASE_URL",
    "3D": "there is no database of that name: create it, or correct DATABASE_URL",
    "42501": "the database's user lacks a right: grant it what its tables need",
    "53100": "the disk of the database is full: free some space",
    "53200": "the database has no memory left",
    "22": "the database cannot hold the value",
    "23": "the record is there already",
}


def passing(error: BaseException) -> str | None:
    """Why it is worth trying again; None when it is not."""
    for cause in _causes(error):
        if isinstance(cause, sqlite3.Error) and _primary_code(cause) in _LOCKED_SQLITE:
            return "the database is locked by another program: end that program, or wait for it"
        if state := _sqlstate(cause):
            return _known(_PASSING, state)
    for cause in _causes(error):
        if isinstance(cause, TimeoutError):
            return "the database does not answer: check that it runs and can be reached"
        if isinstance(cause, OSError):
            return "the database cannot be reached: check that it runs, and DATABASE_URL"
        if "connection is closed" in str(cause) or "connection was closed" in str(cause):
            return _PASSING["08"]
    return None


def refusal(error: Exception) -> Exception:
    """What to raise for an error that is not worth trying again: one of ours, or a bug as it is."""
    if isinstance(error, HarnessError):
        return error
    for cause in _causes(error):
        if isinstance(cause, sqlite3.IntegrityError):
            return _store_error(_POSTGRESQL["23"], cause)
        if isinstance(cause, sqlite3.Error):
            return _store_error(_SQLITE.get(_primary_code(cause), "the database refused"), cause)
        if state := _sqlstate(cause):
            return _store_error(_known(_POSTGRESQL, state) or "the database refused", cause)
        if isinstance(cause, UnicodeError):
            return _store_error(_POSTGRESQL["22"], cause)
    return error


def is_wrong_address(error: Exception) -> bool:
    """True for what only another DATABASE_URL can cure."""
    return any((_sqlstate(cause) or "").startswith(("28", "3D")) for cause in _causes(error))


def _store_error(sentence: str, cause: BaseException) -> StoreError:
    # The first line only, and none of a wrong value: the rest may quote the record.
    first = "" if (_sqlstate(cause) or "").startswith("22") else (str(cause).splitlines() or [""])[0]
    return StoreError(f"{sentence} ({type(cause).__name__}{': ' if first else ''}{first})")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what it wraps: SQLAlchemy keeps the driver's in `orig`."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        original = getattr(current, "orig", None)
        current = original if isinstance(original, BaseException) else current.__cause__


def _primary_code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _sqlstate(error: BaseException) -> str | None:
    state = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else None


def _known(table: Mapping[str, str], state: str) -> str | None:
    return table.get(state) or table.get(state[:2])
