"""A real Valkey for this worker, started as the product starts it, and admissions that are closed after the test."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bots.coordination.connection import Client, connect
from bots.coordination.embedded import EmbeddedValkey
from bots.coordination.redis import RedisAdmission

_numbers = itertools.count()

NewReplica = Callable[..., RedisAdmission]


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server per xdist worker; the tests share it, each with keys of its own."""
    server = EmbeddedValkey(tmp_path_factory.mktemp("data"))
    yield asyncio.run(server.start())
    asyncio.run(server.stop())
    assert server.pid is None


@pytest.fixture
def prefix() -> str:
    """The first word of all keys of this test."""
    return f"t{next(_numbers)}"


@pytest.fixture
async def replica(valkey_url: str, prefix: str) -> AsyncIterator[NewReplica]:
    """Makes `RedisAdmission`s over the shared server, as many replicas as the test wants."""
    made: list[RedisAdmission] = []

    def make(url: str = valkey_url, **options: Any) -> RedisAdmission:
        made.append(RedisAdmission(url, **{"prefix": prefix, **options}))
        return made[-1]

    yield make
    for admission in made:
        await admission.aclose()


@pytest.fixture
async def client(valkey_url: str) -> AsyncIterator[Client]:
    """The server itself, for looking at keys and making them expire."""
    client = connect(valkey_url)
    yield client
    await client.aclose()


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[tuple[EmbeddedValkey, str]]:
    """A server of this test alone, to be stopped, killed and emptied."""
    server = EmbeddedValkey(tmp_path)
    yield server, await server.start()
    await server.stop()
    assert server.pid is None, "the test let another user of its server go without a stop"
