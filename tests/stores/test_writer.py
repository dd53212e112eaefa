"""Group commit: what holds for callers that write at the same moment, or go away."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from harness.errors import StoreError
from harness.events import StepTaken
from harness.messages import UserMessage
from harness.stores.sql import SqlStores, open_stores
from harness.stores.writer import Operation


async def test_writers_that_gather_share_a_commit(stores: SqlStores) -> None:
    groups: list[int] = []

    async def note(_connection: AsyncConnection, changes: Sequence[Any]) -> Sequence[Any]:
        groups.append(len(changes))
        return changes

    results = await asyncio.gather(*(stores.database.write(Operation(note, number)) for number in range(100)))
    assert results == [[number] for number in range(100)]
    assert sum(groups) == 100
    assert len(groups) <= 2, "the first may go alone, the rest has gathered meanwhile"


async def test_a_bug_in_one_write_is_raised_where_it_belongs(stores: SqlStores) -> None:
    async def half(_connection: AsyncConnection, changes: Sequence[int]) -> Sequence[float]:
        return [1 / change for change in changes]

    writes = [stores.database.write(Operation(half, number)) for number in (1, 2, 0, 4)]
    answers = await asyncio.gather(*writes, return_exceptions=True)
    assert isinstance(answers[2], ZeroDivisionError)
    assert [answer for number, answer in enumerate(answers) if number != 2] == [[1.0], [0.5], [0.25]]


async def test_a_canceled_caller_leaves_a_whole_write(stores: SqlStores) -> None:
    session = await stores.sessions.load("s")
    writing = asyncio.create_task(stores.sessions.append(session, [UserMessage("one"), UserMessage("two")]))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await stores.traces.append([StepTaken("t", 1, 0.0, 1, "model", "a later write")])
    assert (await stores.sessions.load("s")).messages == (UserMessage("one"), UserMessage("two"))


async def test_what_waits_when_the_store_closes_is_written(tmp_path: Path) -> None:
    async with open_stores(None, tmp_path) as stores:
        session = await stores.sessions.load("s")
        writing = asyncio.create_task(stores.sessions.append(session, [UserMessage("last")]))
        await asyncio.sleep(0)
    written = await writing
    with pytest.raises(StoreError, match="closed"):
        await stores.sessions.append(written, [UserMessage("too late")])
    async with open_stores(None, tmp_path) as stores:
        assert await stores.sessions.load("s") == written


async def test_a_writer_that_is_wronged_serves_the_next(stores: SqlStores) -> None:
    async def too_few(_connection: AsyncConnection, _changes: Sequence[Any]) -> Sequence[Any]:
        return []

    with structlog.testing.capture_logs(), pytest.raises(ValueError, match="zip"):
        await stores.database.write(Operation(too_few, None))
    await stores.traces.append([StepTaken("t", 1, 0.0, 1, "model", "goes on")])
    assert await stores.traces.last_seq("t") == 1


async def test_a_key_that_no_database_can_hold_is_refused_alone(stores: SqlStores) -> None:
    half = "half \ud83d"
    session = await stores.sessions.load("fine")
    answers = await asyncio.gather(
        stores.grants.revoke(half),
        stores.sessions.append(session, [UserMessage("kept")]),
        return_exceptions=True,
    )
    assert isinstance(answers[0], StoreError)
    assert (await stores.sessions.load("fine")).messages == (UserMessage("kept"),)
