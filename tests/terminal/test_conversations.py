"""The kernel of a chat that keeps its conversations, and its commands, in process on a real database."""

import asyncio
import io
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from rich.console import Console

from harness.admission import Origin, RunInput
from harness.approval import Approval, Decision
from harness.errors import ConfigError
from harness.events import RunStarted, TaskStateChanged
from harness.messages import AssistantMessage, UserMessage
from harness.providers.scripted import ScriptedProvider
from harness.reporters.recording import RecordingReporter
from harness.settings import KernelSettings
from harness.status import TaskStatus
from harness.stores.base import AppendMessages, Session, Stores
from harness.stores.records import TaskRecord
from harness.terminal.assembly import Kernel, opened
from harness.terminal.commands import Commands
from harness.terminal.own import FolderGrants
from harness.terminal.state import state_folder, stores_in
from harness.terminal.turn import Turns
from tests.terminal.rig import clean_env

LEFT = "terminal/ab12cd34"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, of a person with an empty home."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DATABASE_URL", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def settings(**more: Any) -> KernelSettings:
    return KernelSettings(_env_file=None, model_protocol="scripted", **more)  # type: ignore[call-arg]


class Chat:
    """Commands, and turns whose questions are answered with `answer`."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.screen = io.StringIO()
        self.console = Console(file=self.screen, width=100)
        self.commands = Commands(kernel, self.console)
        self.answer: Decision = "always"
        self.asked = 0
        self.turns = Turns(kernel.runtime, self)

    async def ask(self, approval: Approval, closed: asyncio.Event) -> Decision:
        self.asked += 1
        await self.look(approval)
        return self.answer

    async def look(self, approval: Approval) -> None:
        """What happens while the question is open."""

    async def types(self, line: str) -> str:
        before = len(self.screen.getvalue())
        await self.commands.run(line)
        return self.screen.getvalue()[before:]

    async def says(self, text: str) -> TaskStatus:
        return await self.turns.run(self.commands.session_key, text, RecordingReporter())

    @property
    def stores(self) -> Stores:
        assert self.kernel.stores is not None
        return self.kernel.stores


@asynccontextmanager
async def chat(state: Path | None, **more: Any) -> AsyncIterator[Chat]:
    async with opened(settings(**more), state=state) as kernel:
        kernel.engine.provider = ScriptedProvider(speed=float("inf"))
        session = Chat(kernel)
        try:
            yield session
        finally:
            await session.turns.aclose()


async def left_at_work(stores: Stores, *, at: float) -> None:
    """A turn whose process died at this time, in the middle of an answer."""
    run = RunInput("t1", LEFT, "Tell me a story", Origin())
    await stores.commit(
        AppendMessages(Session(LEFT), (UserMessage("Tell me a story"),), 1),
        TaskRecord(run, TaskStatus.RUNNING, at, fence=1, started_at=at),
        TaskStateChanged("t1", 1, at, TaskStatus.QUEUED, TaskStatus.RUNNING),
        RunStarted("t1", 2, at, LEFT, "Tell me a story"),
    )
    await stores.tasks.show("t1", "Once upon a", fence=1)


async def test_a_turn_that_a_dead_terminal_left_behind_ends_as_interrupted_with_what_was_seen_of_it(
    folder: Path, tmp_path: Path
) -> None:
    async with chat(tmp_path / "state") as here:
        await left_at_work(here.stores, at=time.time())
        shown = await here.types("/resume ab1")
        assert "Its terminal ended while the last turn was at work" in shown
        assert "User\n  Tell me a story\n\nAssistant\n  Once upon a\n  [failed]\n" in shown
        assert here.commands.session_key == LEFT
        record = await here.stores.tasks.get("t1")
        assert record is not None
        assert (record.status, record.answer) == (TaskStatus.INTERRUPTED, "Once upon a")
        assert "conversation that you are in" in await here.types("/resume ab1")
        assert await here.says("And then?") is TaskStatus.COMPLETED
        messages = (await here.stores.sessions.load(LEFT)).messages
        assert [type(message) for message in messages] == [UserMessage, AssistantMessage, UserMessage, AssistantMessage]
        await here.types("/new")
        assert "Its terminal" not in await here.types("/resume ab1"), "once"


async def test_in_a_shared_database_a_turn_is_left_alone_until_it_was_silent_for_longer_than_a_live_one_can_be(
    folder: Path, tmp_path: Path
) -> None:
    url = SecretStr(f"sqlite:///{tmp_path}/shared.db")
    limits: dict[str, Any] = {"database_url": url, "run_timeout_s": 60, "approval_timeout_s": 40}
    now = time.time()
    async with chat(tmp_path / "state", **limits) as here:
        await left_at_work(here.stores, at=now - 90)
        before = here.commands.session_key
        assert "another terminal may be at work on it" in await here.types("/resume ab")
        assert here.commands.session_key == before
        record = await here.stores.tasks.get("t1")
        assert record is not None
        assert record.status is TaskStatus.RUNNING
    async with chat(tmp_path / "state", **(limits | {"run_timeout_s": 40})) as here:
        assert "was at work" in await here.types("/resume ab")


async def test_ids_are_told_apart_and_a_chat_without_a_terminal_has_none(folder: Path, tmp_path: Path) -> None:
    async with chat(tmp_path / "state") as here:
        await here.says("hello")
        await here.stores.commit(AppendMessages(Session(LEFT), (UserMessage("one"),)))
        await here.stores.commit(AppendMessages(Session("terminal/ab99"), (UserMessage("two 你好"),)))
        await here.stores.commit(AppendMessages(Session("slack:T/C"), (UserMessage("three"),)))
        rows = (await here.types("/resume")).splitlines()
        assert [row[:2] for row in rows] == ["  ", "  ", "* ", "/r"]
        assert rows[0].startswith("  ab99      ")
        assert rows[0].endswith("1 turn   two 你好")
        assert rows[2].endswith("hello")
        assert "More than one conversation begins with ab: ab12cd34, ab99." in await here.types("/resume ab")
        assert "There is no conversation slack:T/C." in await here.types("/resume slack:T/C")
        assert "/resume ID continues one" in await here.types("/resume a b")
    async with chat(None) as here:
        assert "Only a chat at a terminal keeps its conversations." in await here.types("/resume")


async def test_a_permission_holds_for_the_folder_and_the_person_it_was_given_to(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    async with chat(state) as here:
        await here.says("write a.txt")
        await here.types("/new")
        await here.says("write a.txt")
        assert here.asked == 1
        grant = (await here.types("/grants")).split()[0]
        theirs = FolderGrants((await raw(here)).grants, folder, "somebody else")
        assert await theirs.list(now=time.time(), chat="terminal") == []
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    async with chat(state) as here:
        assert "no standing permissions" in await here.types("/grants")
        await here.says("write a.txt")
        assert here.asked == 1, "asked again in another folder"
    monkeypatch.chdir(folder)
    async with chat(state) as here:
        assert f"There is no permission {grant[::-1]}x" in await here.types(f"/grants revoke {grant[::-1]}x")
        assert "Taken back." in await here.types(f"/grants revoke {grant[:6]}")
        await here.says("write a.txt")
        assert here.asked == 1, "asked again once it was taken back"


async def raw(here: Chat) -> Stores:
    """The database as others see it."""
    own = here.stores.grants
    assert isinstance(own, FolderGrants)
    return replace(here.stores, grants=own._grants)


async def test_a_question_is_for_this_terminal_alone_and_never_parked_where_others_would_expire_it(
    folder: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    looked: list[str] = []
    async with chat(state) as here, stores_in(state, settings()) as others:

        async def look(approval: Approval) -> None:
            assert await others.parking.find(approval.id) is None
            assert await others.parking.expire(now=4e9) == []
            record = await others.tasks.get(approval.task_id)
            assert record is not None
            looked.append(record.status)

        here.look = look
        assert await here.says("write a.txt") is TaskStatus.COMPLETED
    assert looked == ["waiting_approval"]
    assert (folder / "a.txt").exists()


async def test_a_permission_that_cannot_be_kept_is_good_for_the_one_call(folder: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with chat(state) as here:

        async def break_it(_: Approval) -> None:
            with sqlite3.connect(state / "harness.db") as connection:
                connection.execute("DROP TABLE harness_grants")
            connection.close()

        here.look = break_it
        assert await asyncio.wait_for(here.says("write a.txt"), 10) is TaskStatus.COMPLETED
        assert (folder / "a.txt").exists()
        assert "harness_grants" in str(here.turns.unkept)
        assert "The database: " in await here.types("/grants"), "and the chat goes on"


async def test_instructions_and_skills_of_the_folder_reach_the_model_and_tools_shows_them(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "AGENTS.md").write_text("Answer like a pirate.")
    skill = folder / ".agents" / "skills" / "knots"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: knots\ndescription: Tie knots.\n---\nOver, under.\n")
    (skill.parent / "Bad Name").mkdir()
    (skill.parent / "Bad Name" / "SKILL.md").write_text("---\nname: x\n---\n")
    async with chat(None) as here:
        shown = await here.types("/tools")
        assert "\nskill " in shown
        assert "\nInstructions: AGENTS.md\nSkills: knots\n" in shown
        assert "Bad Name" in shown.partition("Note: ")[2]
        await here.says("hello")
        provider = here.kernel.engine.provider
        assert isinstance(provider, ScriptedProvider)
        assert "Answer like a pirate." in provider.requests[0].system
        assert "- knots: Tie knots." in provider.requests[0].system
        assert "skill" in [tool.name for tool in provider.requests[0].tools]


def test_where_there_is_no_skill_neither_its_tool_nor_yaml_nor_a_database_is_loaded(folder: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from harness.settings import KernelSettings\n"
        "from harness.terminal.assembly import opened\n"
        "async def main():\n"
        "    async with opened(KernelSettings(model_protocol='scripted')) as kernel:\n"
        "        print(*kernel.tools, *sys.modules)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=clean_env(HOME=str(folder)), cwd=folder, capture_output=True, text=True,
        timeout=50, check=True,
    )  # fmt: skip
    assert {"skill", "yaml", "sqlalchemy", "prompt_toolkit"} & set(done.stdout.split()) == set()
    assert "calculator" in done.stdout


@pytest.mark.parametrize(
    ("url", "said"),
    [(None, "set DATABASE_URL"), ("mysql://user:secret@host/x", "DATABASE_URL names no database that is known here")],
)
async def test_a_database_that_cannot_be_is_a_sentence_that_says_what_to_correct(
    tmp_path: Path, url: str | None, said: str
) -> None:
    (tmp_path / "file").write_text("no folder")
    given = settings(database_url=None if url is None else SecretStr(url))
    with pytest.raises(ConfigError, match=said) as caught:
        async with stores_in(tmp_path / "file" / "state", given):
            raise AssertionError("it opened")
    assert "secret" not in str(caught.value)


def test_the_folder_is_below_the_state_home_and_a_relative_one_is_ignored(folder: Path, tmp_path: Path) -> None:
    assert state_folder(tmp_path) == tmp_path / "harness-bots"
    default = tmp_path / "home" / ".local" / "state" / "harness-bots"
    assert state_folder() == state_folder(Path("relative")) == default
