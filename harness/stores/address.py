"""What DATABASE_URL may say. Pure: nothing is opened here."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from harness.errors import ConfigError

FILE_NAME: Final = "harness.db"
_FORMS: Final = "postgresql://user:password@host:5432/database or sqlite:///path/to/file.db"
_PARAMETERS: Final = frozenset({"host", "port", "sslmode"})


@dataclass(frozen=True, slots=True)
class SqliteAddress:
    """A file, or the memory of this process when `path` is None."""

    path: Path | None
    kind: Literal["sqlite"] = "sqlite"

    def __str__(self) -> str:
        return str(self.path) if self.path else "an SQLite database in memory"


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """A server. `host` is a name, an address, or the folder of a socket; `sslmode` as in libpq."""

    host: str
    port: int | None
    database: str
    user: str | None
    password: str | None
    sslmode: str | None
    kind: Literal["postgresql"] = "postgresql"

    def __repr__(self) -> str:
        return f"PostgresAddress({self})"

    def __str__(self) -> str:
        """Without the password: for people."""
        port = f":{self.port}" if self.port else ""
        return f"PostgreSQL {self.database!r} at {self.host}{port}"


Address = SqliteAddress | PostgresAddress


def parse_address(url: str | None, data_dir: Path) -> Address:
    """The database that `url` names; None = the SQLite file of the data directory.

    Raises ConfigError with an example, and without what the URL says: it may hold a password.
    """
    if not url:
        return SqliteAddress(data_dir / FILE_NAME)
    try:
        parts = urlsplit(url)
        port = parts.port
        parameters = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query), keep_blank_values=True))
    except ValueError:
        raise _wrong("cannot be read") from None
    # A driver behind a plus sign is what other programs want; ours is fixed.
    match parts.scheme.partition("+")[0]:
        case "sqlite":
            if parameters or parts.netloc:
                raise _wrong("names an SQLite file by sqlite:/// and its path, and takes no parameters")
            return SqliteAddress(_sqlite_path(unquote(parts.path)))
        case "postgresql" | "postgres":
            return _postgres(parts.hostname, port, unquote(parts.path[1:]), parts.username, parts.password, parameters)
        case _:
            raise _wrong("names no database that is known here")


def _sqlite_path(path: str) -> Path | None:
    match path:
        case "" | "/":
            raise _wrong("names no file")
        case "/:memory:":
            return None
        case _:
            return Path(path[1:])


def _postgres(
    hostname: str | None,
    port: int | None,
    database: str,
    user: str | None,
    password: str | None,
    parameters: Mapping[str, str],
) -> PostgresAddress:
    if unknown := parameters.keys() - _PARAMETERS:
        raise _wrong(f"has a parameter {min(unknown)!r}; known are {', '.join(sorted(_PARAMETERS))}")
    host = hostname or parameters.get("host", "")
    if not host or not database:
        raise _wrong("names no database" if host else "names no host")
    if port is None and (text := parameters.get("port")):
        if not text.isdecimal():
            raise _wrong("has a port that is no number")
        port = int(text)
    return PostgresAddress(
        host=host,
        port=port,
        database=database,
        user=unquote(user) if user else None,
        password=unquote(password) if password else None,
        sslmode=parameters.get("sslmode"),
    )


def _wrong(what: str) -> ConfigError:
    return ConfigError(f"DATABASE_URL {what}: it looks like {_FORMS}.")
