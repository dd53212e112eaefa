"""SQLite that is locked by another process, full, or not writable: a bounded wait, one sentence, then it goes on."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from harness.errors import ConfigError, StoreError
from harness.messages import AssistantMessage, Text, UserMessage
from harness.stores.sql import Stores, open_stores
from harness.stores.writer import MAX_WAITING, Operation

LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


@asynccontextmanager
async def another_process_that_holds_the_lock(file: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LOCKER, str(file)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"locked\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def append(stores: Stores, key: str, text: str) -> None:
    await stores.sessions.append(await stores.sessions.load(key), [UserMessage(text)])


async def texts(stores: Stores, key: str) -> list[str]:
    return [message.text for message in (await stores.sessions.load(key)).messages if isinstance(message, UserMessage)]


async def test_a_locked_database_is_waited_for(tmp_path: Path) -> None:
    async with open_stores(None, tmp_path) as stores:
        async with another_process_that_holds_the_lock(tmp_path / "harness.db") as locker:
            writing = asyncio.create_task(append(stores, "s", "patient"))
            await asyncio.sleep(0.1)
            assert await texts(stores, "s") == [], "reading goes on meanwhile"
            assert not writing.done()
            locker.kill()
            await writing
        assert await texts(stores, "s") == ["patient"]


async def test_a_database_that_stays_locked_is_a_sentence_and_then_it_goes_on(tmp_path: Path) -> None:
    async with open_stores(None, tmp_path, patience_s=0.2) as stores:
        async with another_process_that_holds_the_lock(tmp_path / "harness.db"):
            writes = [append(stores, f"s{number}", "lost") for number in range(3)]
            for answer in await asyncio.gather(*writes, return_exceptions=True):
                assert isinstance(answer, StoreError)
                assert "locked by another program" in str(answer)
                assert "waited 0.2 s" in str(answer)
        await append(stores, "s0", "afterwards")
        assert [await texts(stores, f"s{number}") for number in range(3)] == [["afterwards"], [], []]


async def test_a_database_that_is_locked_at_the_start_is_a_sentence(tmp_path: Path) -> None:
    async with open_stores(None, tmp_path):
        pass
    async with another_process_that_holds_the_lock(tmp_path / "harness.db"):
        with pytest.raises(StoreError, match=r"harness\.db: the database is locked by another program"):
            async with open_stores(None, tmp_path, patience_s=0.2):
                pass


async def test_more_writes_than_can_wait_are_each_told_so(tmp_path: Path) -> None:
    async with open_stores(None, tmp_path, patience_s=0.5) as stores:
        async with another_process_that_holds_the_lock(tmp_path / "harness.db"):
            many = [stores.cards.keep("k", str(number)) for number in range(MAX_WAITING + 300)]
            answers = await asyncio.gather(*many, return_exceptions=True)
        assert all(isinstance(answer, StoreError) for answer in answers)
        await append(stores, "s", "afterwards")
        assert await texts(stores, "s") == ["afterwards"]


async def limit_pages(stores: Stores, pages: int) -> None:
    """Let the file grow to this many pages: what SQLite says then is what it says of a full disk."""

    async def limit(connection: AsyncConnection, changes: Sequence[Any]) -> Sequence[Any]:
        await connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        return changes

    await stores.database.write(Operation(limit, None))


async def test_a_full_disk_is_a_sentence_and_leaves_no_half_written_turn(tmp_path: Path) -> None:
    async with open_stores(None, tmp_path) as stores:
        await append(stores, "s", "before")
        await limit_pages(stores, 1)  # SQLite takes the present size: not a page more
        session = await stores.sessions.load("s")
        turn = [UserMessage("question"), AssistantMessage((Text("x" * 1_000_000),))]
        with pytest.raises(StoreError, match="disk of the database is full: free some space"):
            await stores.sessions.append(session, turn)
        assert await stores.sessions.load("s") == session
        await limit_pages(stores, 1_000_000)
        await stores.sessions.append(session, turn)
        assert (await stores.sessions.load("s")).messages == (*session.messages, *turn)


async def test_what_still_fits_on_a_full_disk_is_written_beside_what_does_not(tmp_path: Path) -> None:
    async with open_stores(None, tmp_path) as stores:
        await append(stores, "s", "before")
        await limit_pages(stores, 1)
        small = [append(stores, "small", "fits"), append(stores, "large", "x" * 1_000_000)]
        answers = await asyncio.gather(*small, return_exceptions=True)
        assert answers[0] is None
        assert isinstance(answers[1], StoreError)
        assert (await texts(stores, "small"), await texts(stores, "large")) == (["fits"], [])


async def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"cannot be written .*correct DATABASE_URL or BOTS_DATA_DIR"):
        async with open_stores(None, tmp_path / "file" / "folder"):
            pass


async def test_a_file_that_is_damaged_while_it_is_used_is_a_sentence(tmp_path: Path) -> None:
    async with open_stores(None, tmp_path) as stores:
        for number in range(200):
            await append(stores, f"s{number}", "x" * 2_000)
    file = tmp_path / "harness.db"
    with file.open("r+b") as opened:
        opened.seek(os.path.getsize(file) // 4)
        opened.write(b"\xff" * (os.path.getsize(file) // 2))

    async def read_all() -> None:
        async with open_stores(None, tmp_path) as stores:
            for number in range(200):
                await texts(stores, f"s{number}")

    with pytest.raises(StoreError, match="damaged"):
        await read_all()
