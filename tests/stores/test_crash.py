"""A process that dies in the middle of its writes: what it was told is there, and nothing is there by half."""

import asyncio
import random
import sys
from pathlib import Path

import pytest

from harness.messages import UserMessage
from harness.stores.sql import open_stores
from tests.stores.crash_worker import WRITERS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("url", ["sqlite_file", "postgresql"], indirect=True)
@pytest.mark.parametrize("seed", range(2))
async def test_what_was_acknowledged_before_a_kill_is_there_and_whole(url: str, seed: int, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.stores.crash_worker", url), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    acknowledged = [-1] * WRITERS
    try:
        for _ in range(random.Random(seed).randrange(50, 500)):
            writer, number = map(int, (await process.stdout.readline()).split())
            acknowledged[writer] = number
    finally:
        process.kill()
        rest = await process.stdout.read()
        await process.wait()
    # Lines that were still in the pipe count too; one that was cut in two does not.
    for line in rest.decode().splitlines(keepends=True):
        if line.endswith("\n"):
            writer, number = map(int, line.split())
            acknowledged[writer] = number
    async with open_stores(url, tmp_path) as stores:
        for writer, last in enumerate(acknowledged):
            session = await stores.sessions.load(f"s{writer}")
            turns = [m.text for m in session.messages if isinstance(m, UserMessage)]
            assert len(session.messages) == 3 * len(turns) == 3 * session.version
            assert turns == [str(number) for number in range(len(turns))]
            assert len(turns) in (last + 1, last + 2), "all that was acknowledged, and at most the one under way"
            calls = await stores.journal.of_task(f"task-{writer}")
            assert [call.call.id for call in calls] == [f"c{number}" for number in range(len(turns))]
        # And the store goes on.
        session = await stores.sessions.load("s0")
        await stores.sessions.append(session, [UserMessage("after")], fence=1)
