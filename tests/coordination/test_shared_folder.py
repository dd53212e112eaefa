"""Replicas that see the same data folder have the file tools, and one that does not is found out."""

import asyncio
import random
from pathlib import Path

import pytest

from bots.coordination.shared_folder import MARKER, is_shared, keep_shared
from harness.errors import AdmissionUnavailable
from tests.gateway.rig import Memory


class Remote(Memory):
    """Names behind a network: others have their turn before and after each call."""

    async def first_time(self, session_key: str, name: str, seconds: float) -> bool:
        await asyncio.sleep(random.random() / 1000)
        answer = await super().first_time(session_key, name, seconds)
        await asyncio.sleep(random.random() / 1000)
        return answer


async def test_one_replica_alone_shares_with_nobody_and_needs_no_proof(tmp_path: Path) -> None:
    assert await is_shared(tmp_path / "data", Memory())
    assert [file.name for file in (tmp_path / "data").iterdir()] == [MARKER]


async def test_replicas_with_one_folder_share_it_also_when_they_start_together(tmp_path: Path) -> None:
    for attempt in range(20):
        folder, names = tmp_path / str(attempt), Remote()
        assert await asyncio.gather(*(is_shared(folder, names) for _ in range(4))) == [True] * 4
        assert [file.name for file in folder.iterdir()] == [MARKER]


async def test_a_replica_with_a_folder_of_its_own_is_found_out_each_time_it_starts(tmp_path: Path) -> None:
    names = Memory()
    assert await is_shared(tmp_path / "one", names)
    for _ in range(3):
        assert not await is_shared(tmp_path / "two", names)
    assert await is_shared(tmp_path / "one", names)


async def test_a_restart_with_the_same_folder_goes_on_sharing(tmp_path: Path) -> None:
    names = Memory()
    assert await is_shared(tmp_path, names)
    assert await is_shared(tmp_path, names)


async def test_while_a_replica_is_there_it_stays_known(tmp_path: Path) -> None:
    names = Memory()
    assert await is_shared(tmp_path / "one", names)
    keeping = asyncio.create_task(keep_shared(tmp_path / "one", names, every_s=0.001))
    names.names.clear()  # the names have run out
    async with asyncio.timeout(5):
        while len(names.names) < 2:
            await asyncio.sleep(0.001)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert not await is_shared(tmp_path / "two", names)


async def test_without_the_coordinator_or_the_folder_nothing_is_proved(tmp_path: Path) -> None:
    names = Memory()
    names.error = AdmissionUnavailable("away")
    assert not await is_shared(tmp_path, names)
    (tmp_path / "file").write_text("no folder")
    assert not await is_shared(tmp_path / "file", Memory())


@pytest.mark.parametrize("left", [".replicas.id.0123", "workspaces"])
async def test_what_else_lies_in_the_folder_does_not_matter(tmp_path: Path, left: str) -> None:
    (tmp_path / left).mkdir()
    names = Memory()
    assert await is_shared(tmp_path, names)
    assert await is_shared(tmp_path, names)
