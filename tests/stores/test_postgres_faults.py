"""PostgreSQL that restarts, is gone, or loses its answer: nothing is lost, nothing is written twice."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from harness.errors import ConfigError, StoreError
from harness.messages import UserMessage
from harness.stores.sql import Stores, open_stores
from harness.stores.writer import Operation
from tests.stores.conftest import Postgres
from tests.stores.proxy import LossyProxy

WRITERS = 20


@pytest.fixture
async def url(postgres: Postgres) -> AsyncIterator[str]:
    yield await postgres.emptied()
    postgres.start()  # for the tests after one that ended it


async def write_on(stores: Stores, writer: int, each: int) -> None:
    session = await stores.sessions.load(f"s{writer}")
    for number in range(each):
        session = await stores.sessions.append(session, [UserMessage(str(number))], fence=1)


async def texts(stores: Stores, key: str) -> list[str]:
    return [message.text for message in (await stores.sessions.load(key)).messages if isinstance(message, UserMessage)]


async def test_a_restart_under_load_loses_nothing_and_writes_nothing_twice(
    url: str, postgres: Postgres, tmp_path: Path
) -> None:
    each = 60
    async with open_stores(url, tmp_path, patience_s=30) as stores:
        writing = [asyncio.create_task(write_on(stores, writer, each)) for writer in range(WRITERS)]
        await asyncio.sleep(0.15)
        await asyncio.to_thread(postgres.kill)
        await asyncio.to_thread(postgres.start)
        assert not all(task.done() for task in writing), "the load ended before the server did"
        await asyncio.gather(*writing)
        for writer in range(WRITERS):
            assert await texts(stores, f"s{writer}") == [str(number) for number in range(each)]


async def test_a_server_that_stays_away_is_a_sentence_and_then_it_goes_on(
    url: str, postgres: Postgres, tmp_path: Path
) -> None:
    async with open_stores(url, tmp_path, patience_s=0.3) as stores:
        await write_on(stores, 0, 1)
        session = await stores.sessions.load("s0")
        postgres.kill()
        with pytest.raises(StoreError, match=r"waited 0\.3 s"):
            await stores.sessions.append(session, [UserMessage("lost")])
        with pytest.raises(StoreError, match=r"waited 0\.3 s"):
            await stores.sessions.load("s0")
        with pytest.raises(StoreError, match=r"PostgreSQL 'postgres' at .*cannot be reached"):
            async with open_stores(url, tmp_path, patience_s=0.3):
                pass
        postgres.start()
        await stores.sessions.append(session, [UserMessage("back")])
        assert await texts(stores, "s0") == ["0", "back"]


@pytest.mark.parametrize("loss", ["request", "reply"])
async def test_a_commit_whose_answer_is_lost_is_done_once(url: str, postgres: Postgres, loss: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        proxied = f"postgresql://postgres@/postgres?host={folder}"
        async with LossyProxy(postgres.socket_folder, Path(folder)) as proxy, open_stores(proxied, Path()) as stores:
            await write_on(stores, 0, 1)
            for turn in range(3):
                proxy.next_loss = loss
                await asyncio.gather(*(write_on(stores, 1 + 10 * turn + writer, 2) for writer in range(10)))
                assert proxy.lost == turn + 1
            for writer in range(1, 31):
                session = await stores.sessions.load(f"s{writer}")
                assert (await texts(stores, f"s{writer}"), session.version) == (["0", "1"], 2)


@pytest.mark.parametrize("loss", ["request", "reply"])
async def test_a_commit_whose_outcome_stays_unknown_says_so_and_is_not_tried_again(
    url: str, postgres: Postgres, loss: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        proxied = f"postgresql://postgres@/postgres?host={folder}"
        async with (
            LossyProxy(postgres.socket_folder, Path(folder)) as proxy,
            open_stores(proxied, Path(), patience_s=0.5) as stores,
        ):
            sessions = [await stores.sessions.load(f"s{number}") for number in range(5)]
            proxy.next_loss, proxy.cut_after_loss = loss, True
            writes = [stores.sessions.append(session, [UserMessage("once")]) for session in sessions]
            answers = await asyncio.gather(*writes, return_exceptions=True)
            assert all(isinstance(answer, StoreError) for answer in answers)
            assert "whether the write took effect is unknown" in str(answers[0])
            proxy.is_cut = False
            found = [await texts(stores, session.key) for session in sessions]
            assert found[0] == (["once"] if loss == "reply" else [])
            assert all(text in ([], ["once"]) for text in found)


async def test_two_replicas_write_the_same_sessions(url: str, tmp_path: Path) -> None:
    """Also rows that both make, and lock in whatever order."""
    each = 5

    async def write(stores: Stores, replica: int) -> None:
        for number in range(each):
            for key in ("a", "b"):
                while True:
                    session = await stores.sessions.load(key)
                    try:
                        await stores.sessions.append(session, [UserMessage(f"{replica}-{number}")])
                    except StoreError:
                        continue
                    break

    async with open_stores(url, tmp_path) as one, open_stores(url, tmp_path) as two:
        await asyncio.gather(*(write(stores, number) for number, stores in enumerate((one, two, one, two))))
        for key in ("a", "b"):
            found = await texts(one, key)
            assert sorted(found) == sorted(f"{replica}-{number}" for replica in range(4) for number in range(each))


async def test_a_wrong_database_name_is_a_setting_to_correct(postgres: Postgres, url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no database of that name.*correct DATABASE_URL") as caught:
        async with open_stores(f"postgresql://postgres:s3cret@/nowhere?host={postgres.socket_folder}", tmp_path):
            pass
    assert "s3cret" not in str(caught.value)


async def test_a_server_that_acknowledges_early_is_told_not_to(url: str, tmp_path: Path) -> None:
    async def ask(connection: AsyncConnection, changes: Sequence[None]) -> Sequence[str]:
        return [str(await connection.scalar(sa.text("SHOW synchronous_commit"))) for _ in changes]

    server = await asyncpg.connect(url)
    try:
        await server.execute("ALTER DATABASE postgres SET synchronous_commit = off")
        async with open_stores(url, tmp_path) as stores:
            assert await stores.database.write(Operation(ask, None)) == ["on"]
    finally:
        await server.execute("ALTER DATABASE postgres RESET synchronous_commit")
        await server.close()
