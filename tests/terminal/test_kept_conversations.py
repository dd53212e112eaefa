"""A chat at a terminal outlives its process: told as stories, with real processes, a real database and kill -9."""

import re
import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.providers.script import Call, Say, Script
from harness.testing.model_server import RequestRecord, ScriptedModelServer
from tests.terminal.pty_rig import Terminal, at_terminal
from tests.terminal.rig import in_turn, with_model

QUESTION = "a always, n deny:"
DONE: Script = [Say("Done.")]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModelServer]:
    async with ScriptedModelServer() as running:
        yield running


def write(name: str) -> Script:
    return [Call("write_file", f'{{"path": "{name}", "content": "x"}}')]


def heard(request: RequestRecord) -> str:
    return str([message["content"] for message in request.messages[1:]])


class Person:
    """Types at the prompt, and reads what came of it."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self._lines = 1

    async def says(self, text: str) -> str:
        await self.terminal.prompts(self._lines)
        before = len(self.terminal.text)
        self.terminal.send(text)
        self._lines += 1
        await self.terminal.prompts(self._lines)
        return re.sub(r"\s+", " ", self.terminal.text[before:])

    async def says_and_is_asked(self, text: str) -> None:
        await self.terminal.prompts(self._lines)
        asked = self.terminal.text.count(QUESTION)
        self.terminal.send(text)
        await self.terminal.until(lambda: self.terminal.text.count(QUESTION) == asked + 1, "the question")
        self._lines += 1

    async def answers(self, text: str) -> None:
        self.terminal.send(text)
        await self.terminal.prompts(self._lines)

    async def leaves(self) -> None:
        self.terminal.send("quit")
        assert await self.terminal.end() == 0


async def test_a_conversation_and_its_permissions_go_on_in_the_next_process_also_after_a_kill(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    server._answer = in_turn(
        [Say("Hello "), Say("Ada.")], write("a.txt"), DONE, [Say("Third.")],  # the first process
        [Say("Ada.")], write("a.txt"), DONE, write("b.txt"),  # the second one, which is killed
        [Say("Alone.")], [Say("Still Ada.")],  # the third one
    )  # fmt: skip
    env = with_model(server, XDG_STATE_HOME=str(tmp_path / "state"))
    async with at_terminal(tmp_path, "chat", env=env) as terminal:
        person = Person(terminal)
        await person.says("I am called Ada 你好")
        await person.says_and_is_asked("write a.txt")
        await person.answers("a")
        await person.says("third question")
        await person.leaves()
    [database] = (tmp_path / "state").rglob("harness.db")
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    assert stat.S_IMODE(database.parent.stat().st_mode) == 0o700

    async with at_terminal(tmp_path, "chat", env=env, lines=200) as second:
        person = Person(second)
        [key] = re.findall(r"\b([0-9a-f]{8}) .{16} +3 turns I am called Ada 你好", await person.says("/resume"))
        shown = await person.says(f"/resume {key[:5]}")
        assert f"This is {key} again, 3 turns." in shown
        assert "User third question Assistant Third." in shown, "the last exchange"
        assert "Ada" not in shown, "and no other"
        await person.says("who am I?")
        assert "I am called Ada 你好" in heard(server.requests[4])
        (tmp_path / "a.txt").unlink()
        await person.says("write a.txt once more")
        assert (tmp_path / "a.txt").exists(), "always is always, in this folder"
        assert f"* {key}" in await person.says("/resume")
        await person.says_and_is_asked("write b.txt")

        async with at_terminal(tmp_path, "chat", env=env, lines=200) as third:
            other = Person(third)
            await other.says("a conversation of its own")
            assert "Ada" not in heard(server.requests[8])
            assert "is open in another terminal" in await other.says(f"/resume {key}")
            second.process.kill()
            await second.process.wait()
            shown = await other.says(f"/resume {key}")
            assert "Its terminal ended while the last turn waited for permission (write_file)" in shown
            assert "nothing of it is run again" in shown
            await other.says("and now?")
            assert "I am called Ada" in heard(server.requests[9])
            assert "a conversation of its own" not in heard(server.requests[9])
            assert "it had no effect" in heard(server.requests[9]), "of the call that waited"
            assert not (tmp_path / "b.txt").exists()
            await other.says("/clear")
            assert key not in await other.says("/resume"), "forgotten"
            await other.leaves()
    with sqlite3.connect(database) as connection:
        statuses = [status for (status,) in connection.execute("SELECT status FROM harness_tasks ORDER BY created_at")]
    connection.close()
    assert statuses == ["completed"] * 5 + ["interrupted"] + ["completed"] * 2


async def test_a_damaged_database_is_one_sentence_and_stays_as_it_is(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    content = b"no database at all, " * 300
    folder = tmp_path / "harness-bots"
    folder.mkdir()
    (folder / "harness.db").write_bytes(content)
    env = with_model(server, XDG_STATE_HOME=str(tmp_path))
    async with at_terminal(tmp_path, "chat", env=env, columns=300) as terminal:
        assert await terminal.end() == 2
        [sentence] = terminal.text.strip().split("\n")
        assert re.search("harness.db: .*no SQLite database", sentence)
    assert (folder / "harness.db").read_bytes() == content
