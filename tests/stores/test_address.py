"""What DATABASE_URL may say, and what is said of a wrong one."""

from pathlib import Path

import pytest

from harness.errors import ConfigError
from harness.stores.address import PostgresAddress, SqliteAddress, parse_address

DATA = Path("data")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        (None, DATA / "harness.db"),
        ("", DATA / "harness.db"),
        ("sqlite:///kept.db", Path("kept.db")),
        ("sqlite:////var/lib/kept.db", Path("/var/lib/kept.db")),
        ("sqlite:///with%20space.db", Path("with space.db")),
        ("sqlite+aiosqlite:///kept.db", Path("kept.db")),
        ("sqlite:///:memory:", None),
    ],
)
def test_an_sqlite_address(url: str | None, path: Path | None) -> None:
    assert parse_address(url, DATA) == SqliteAddress(path)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgresql://u:p@h/d", PostgresAddress("h", None, "d", "u", "p", None)),
        ("postgres://u:p%40ss@h:6432/d%2Fb?sslmode=require", PostgresAddress("h", 6432, "d/b", "u", "p@ss", "require")),
        ("postgresql+asyncpg://h/d", PostgresAddress("h", None, "d", None, None, None)),
        ("postgresql://u@/d?host=/run/sockets&port=5433", PostgresAddress("/run/sockets", 5433, "d", "u", None, None)),
        ("postgresql://u:p@[::1]:5432/d", PostgresAddress("::1", 5432, "d", "u", "p", None)),
    ],
)
def test_a_postgresql_address(url: str, address: PostgresAddress) -> None:
    assert parse_address(url, DATA) == address


@pytest.mark.parametrize(
    "url",
    [
        "mysql://user:s3cret@host/db",
        "user:s3cret@host/db",
        "postgresql://user:s3cret@host",
        "postgresql://user:s3cret@/db",
        "postgresql://user:s3cret@host:port/db",
        "postgresql://user:s3cret@host/db?pool=5",
        "postgresql://user:s3cret@/db?host=h&port=s3cret",
        "postgresql://user:s3cret@[host/db",
        "sqlite://s3cret/db",
        "sqlite:///db?mode=s3cret",
        "sqlite://",
        "sqlite:///",
    ],
)
def test_a_wrong_address_is_one_sentence_with_an_example_and_no_secret(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(url, DATA)
    sentence = str(caught.value)
    assert sentence.startswith("DATABASE_URL ")
    assert "postgresql://user:password@host:5432/database" in sentence
    assert "s3cret" not in sentence


def test_an_address_shows_no_password() -> None:
    address = parse_address("postgresql://user:s3cret@host:1/db", DATA)
    assert "s3cret" not in f"{address} {address!r}"
    assert str(address) == "PostgreSQL 'db' at host:1"
