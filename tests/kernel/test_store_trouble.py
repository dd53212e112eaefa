"""A real database that is locked, full, refuses a row, or restarts, under a run: nobody is left without an answer.

Whatever the store does, the task ends and says how, the session is free, what runs has been written down before, and
what the conversation holds is whole.
"""

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from harness.admission import InProcessAdmission
from harness.engine import Engine
from harness.events import RunEnded
from harness.history import prepare_history
from harness.limits import Limits
from harness.messages import AssistantMessage, ToolResult, UserMessage
from harness.providers.script import Call, Say, Script
from harness.providers.scripted import ScriptedProvider
from harness.reporters.recording import RecordingReporter
from harness.runtime import Runtime, Started
from harness.status import TaskStatus
from harness.stores.sql import SqlStores, open_stores
from harness.stores.writer import Operation
from harness.task import Task
from harness.tools.base import Tool, by_name, tool
from harness.tools.executor import ToolExecutor
from tests.recovery.test_every_commit import flaws
from tests.stores.conftest import Postgres

PATIENCE_S = 0.3
WRITE: Script = [Say("I write."), Call("write")]
DONE: Script = [Say("Done.")]


class Bench:
    """A kernel over a database, and what its tools have done."""

    def __init__(self, stores: SqlStores, provider: ScriptedProvider) -> None:
        self.stores = stores
        self.provider = provider
        self.written: list[str] = []
        self.during_look: Callable[[], None] = lambda: None
        engine = Engine(provider, ToolExecutor(by_name(self._tools())), Limits(), system="Be brief.")
        self.runtime = Runtime(engine, stores.sessions, InProcessAdmission(), parking=stores.parking, records=stores)

    def _tools(self) -> list[Tool]:
        @tool
        async def write() -> str:
            """Write."""
            self.written.append("once")
            return "written"

        @tool(read_only=True)
        async def look() -> str:
            """Look."""
            self.during_look()
            return "seen"

        return [write, look]

    async def run(self, prompt: str) -> tuple[Task, RecordingReporter]:
        reporter = RecordingReporter()
        outcome = await self.runtime.run("s", prompt, reporter)
        assert isinstance(outcome, Started)
        return outcome.task, reporter

    async def told(self, call: str) -> str:
        """What the model was told of its call."""
        [result] = [m for m in self.provider.requests[-1].messages if isinstance(m, ToolResult) and m.name == call]
        return result.content

    async def is_whole(self) -> bool:
        """The conversation is one that a model takes."""
        return not flaws(prepare_history((await self.stores.sessions.load("s")).messages))


@asynccontextmanager
async def bench(
    url: str | None, folder: Path, *answers: Script, patience_s: float = PATIENCE_S
) -> AsyncIterator[Bench]:
    async with open_stores(url, folder, patience_s=patience_s) as stores:
        made = Bench(stores, ScriptedProvider(answers))
        try:
            yield made
        finally:
            await made.runtime.aclose()


class Lock:
    """The right to write to a database file, taken by somebody else."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "harness.db", isolation_level=None)

    def take(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def release(self) -> None:
        if self._connection.in_transaction:
            self._connection.rollback()

    def close(self) -> None:
        self._connection.close()


@contextmanager
def lock(folder: Path) -> Iterator[Lock]:
    with closing(Lock(folder)) as made:
        yield made


async def test_a_database_that_is_locked_for_a_moment_only_makes_the_run_wait(tmp_path: Path) -> None:
    async with bench(None, tmp_path, [Call("look")], WRITE, DONE, patience_s=20) as b:
        with lock(tmp_path) as other:

            def for_a_moment() -> None:
                other.take()
                asyncio.get_running_loop().call_later(0.3, other.release)

            b.during_look = for_a_moment
            task, _ = await b.run("Look and write.")
        assert task.status is TaskStatus.COMPLETED
        assert b.written == ["once"]


async def test_a_database_that_stays_locked_ends_the_run_with_a_sentence_and_the_next_one_is_answered(
    tmp_path: Path,
) -> None:
    async with bench(None, tmp_path, [Call("look"), Call("write")], DONE) as b:
        with lock(tmp_path) as other:
            b.during_look = other.take
            task, shown = await b.run("Look and write.")
        assert task.status is TaskStatus.FAILED
        assert task.error is not None
        assert "locked by another program" in task.error.message
        [end] = [event for event in shown.events if isinstance(event, RunEnded)]
        assert (end.status, end.error) == (TaskStatus.FAILED, task.error), "whoever waits is told"
        assert b.written == []
        task, _ = await b.run("Are you there?")
        assert task.status is TaskStatus.COMPLETED
        assert await b.is_whole()


async def limit_pages(stores: SqlStores, pages: int) -> None:
    """Let the file grow to this many pages (1: not any more), which is how SQLite knows a full disk."""

    async def limit(connection: AsyncConnection, changes: object) -> list[None]:
        await connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        return [None]

    await stores.database.write(Operation(limit, None))


async def test_a_full_disk_ends_the_run_with_a_sentence_and_leaves_no_half_written_turn(tmp_path: Path) -> None:
    async with bench(None, tmp_path, [Say("x" * 1_000_000)], DONE) as b:
        await limit_pages(b.stores, 100)
        task, shown = await b.run("Write me a book.")
        assert task.status is TaskStatus.FAILED
        assert task.error is not None
        assert "free some space" in task.error.message
        assert any(isinstance(event, RunEnded) for event in shown.events)
        log = (await b.stores.sessions.load("s")).messages
        assert [type(message) for message in log] == [UserMessage], "the question, and no part of an answer"
        await limit_pages(b.stores, 1_000_000)
        task, _ = await b.run("A shorter one, please.")
        assert task.status is TaskStatus.COMPLETED
        log = (await b.stores.sessions.load("s")).messages
        assert [message.text for message in log if isinstance(message, AssistantMessage)] == ["Done."]
        assert await b.is_whole()


async def refuse(stores: SqlStores, state: str) -> None:
    """From now on the database takes no call with side effects into this state."""

    async def make(connection: AsyncConnection, changes: object) -> list[None]:
        await connection.execute(
            sa.text(
                f"CREATE TRIGGER no_{state} BEFORE UPDATE ON harness_journal "
                f"WHEN NEW.side_effects AND NEW.state = '{state}' BEGIN SELECT RAISE(ABORT, 'not now'); END"
            )
        )
        return [None]

    await stores.database.write(Operation(make, None))


async def test_a_tool_with_side_effects_does_not_run_when_its_start_cannot_be_written_down(tmp_path: Path) -> None:
    async with bench(None, tmp_path, [Call("look"), Call("write"), Call("look")], DONE) as b:
        await refuse(b.stores, "started")
        task, _ = await b.run("Look and write.")
        assert b.written == []
        assert task.status is TaskStatus.COMPLETED, task.error
        assert "could not be written down, so it did not run" in await b.told("write")
        states = {call.call.name: call.state for call in await b.stores.journal.of_task(task.id)}
        assert states["write"] == "canceled"


async def test_a_result_that_cannot_be_written_down_ends_the_run_and_the_call_is_not_made_again(
    tmp_path: Path,
) -> None:
    async with bench(None, tmp_path, WRITE, DONE) as b:
        await refuse(b.stores, "finished")
        task, shown = await b.run("Write.")
        assert task.status is TaskStatus.FAILED
        assert any(isinstance(event, RunEnded) for event in shown.events)
        assert b.written == ["once"]
        task, _ = await b.run("And now?")
        assert task.status is TaskStatus.COMPLETED
        assert b.written == ["once"]
        assert await b.is_whole()


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory() as folder:
        server = Postgres(Path(folder) / "data")
        yield server
        server.stop()


async def test_a_postgresql_that_restarts_under_a_run_makes_it_wait_and_one_that_stays_away_ends_it(
    postgres: Postgres, tmp_path: Path
) -> None:
    both: Script = [Call("look"), Call("write")]
    async with bench(postgres.url, tmp_path, both, DONE, patience_s=30) as b:

        def restart() -> None:
            postgres.kill()
            postgres.start()

        b.during_look = restart
        task, _ = await b.run("Look and write.")
        assert task.status is TaskStatus.COMPLETED, task.error
        assert b.written == ["once"]
        assert await b.is_whole()
    async with bench(postgres.url, tmp_path, both, DONE) as b:
        b.during_look = postgres.kill
        task, shown = await b.run("Look and write.")
        assert task.status is TaskStatus.FAILED
        assert any(isinstance(event, RunEnded) for event in shown.events)
        assert b.written == []
        postgres.start()
        task, _ = await b.run("Are you there?")
        assert task.status is TaskStatus.COMPLETED, task.error
        assert await b.is_whole()
