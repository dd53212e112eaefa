"""`harness chat` with lines from a pipe or a file: one turn per line, plain text, no person to ask."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.providers.script import Call, Fail, Hang, Say, Script
from harness.testing.model_server import ScriptedModelServer
from tests.terminal.rig import harness, in_turn, over, until, with_model

WRITE: Script = [Call("write_file", '{"path": "notes.txt", "content": "x"}')]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModelServer]:
    async with ScriptedModelServer() as running:
        yield running


def play(server: ScriptedModelServer, *scripts: Script) -> None:
    server._answer = in_turn(*scripts)


async def test_each_line_is_a_turn_of_one_conversation(tmp_path: Path, server: ScriptedModelServer) -> None:
    play(server, [Say("**One** \x1b[31m.")], [Say("二\n")], [Say("Three.")])
    lines = "first\n\n  \n/help\n/resume\n//second\r\n/new\nthird \xff\nquit\nnever\n".encode("latin-1")
    async with harness(tmp_path, "chat", env=with_model(server, HOME=str(tmp_path)), stdin=lines) as child:
        assert await child.end() == 0
        assert child.text == "**One** \x1b[31m.\n二\nThree.\n", "the very text of the model, and nothing else"
        assert "\x1b" not in child.errors
        assert "/help " in child.errors
        assert "Only a chat at a terminal keeps its conversations." in child.errors
    assert [request.prompt for request in server.requests] == ["first", "/second", "third \N{REPLACEMENT CHARACTER}"]
    users = [[m["content"] for m in request.messages if m["role"] == "user"] for request in server.requests]
    assert users[1] == ["first", "/second"]
    assert len(users[2]) == 1, "/new"
    assert list(tmp_path.iterdir()) == [], "what a script sends is not kept"


async def test_a_piped_line_is_never_an_answer_and_what_is_allowed_by_name_runs(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    edit = Call("edit_file", '{"path": "old.txt", "old": "a", "new": "b"}')
    (tmp_path / "old.txt").write_text("a")
    play(server, WRITE, [Say("Then not.")], [Say("You said y.")], [edit], [Say("Done.")])
    args = ("chat", "--allow", "edit_file", "--allow", "fetch")
    async with harness(tmp_path, *args, env=with_model(server), stdin=b"write\ny\nedit\n/tools") as child:
        assert await child.end() == 0
        assert child.text == "Then not.\nYou said y.\nDone.\n"
        assert "--allow write_file" in child.errors
        assert "(asks) Write" in child.errors
        assert "(asks) Replace" not in child.errors
    assert server.requests[2].prompt == "y"
    assert not (tmp_path / "notes.txt").exists()
    assert (tmp_path / "old.txt").read_text() == "b"


async def test_lines_may_come_from_a_file_and_one_that_fails_does_not_end_the_rest(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    play(server, [Fail("auth", 401, "No such key")], [Say("Fine.")])
    (tmp_path / "lines.txt").write_text("one\ntwo")
    with (tmp_path / "lines.txt").open() as lines:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "harness", "chat"),
            stdin=lines, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=with_model(server), cwd=tmp_path,
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(), 15)
    assert out == b"Fine.\n"
    assert b"No such key" in err
    assert process.returncode == 1, "a script learns that one of the turns failed"


async def test_ctrl_c_ends_the_turn_and_the_next_line_is_read(tmp_path: Path, server: ScriptedModelServer) -> None:
    play(server, [Say("half"), Hang()], [Say("Fine.")])
    async with harness(tmp_path, "chat", env=with_model(server), stdin=b"one\ntwo\n") as child:
        await until(lambda: child.text == "half", "the first half", child)
        child.interrupt()
        assert await child.end() == 130
        await over(server.requests[0])
        assert server.requests[0].closed_by_client
        assert child.text == "half\nFine.\n"
        assert child.errors == "[canceled]\n"


async def test_ctrl_c_while_it_waits_for_a_line_leaves(tmp_path: Path, server: ScriptedModelServer) -> None:
    play(server, [Say("Fine.")])
    reading, writing = os.pipe()
    try:
        os.write(writing, b"one\n")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "harness", "chat"),
            stdin=reading, stdout=asyncio.subprocess.PIPE, env=with_model(server), cwd=tmp_path,
        )  # fmt: skip
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 15) == b"Fine.\n"
        await asyncio.sleep(0.1)
        process.send_signal(2)
        assert await asyncio.wait_for(process.wait(), 15) == 130
    finally:
        os.close(reading)
        os.close(writing)


async def test_no_escape_codes_for_piped_lines_even_when_a_terminal_shows_the_answers(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    play(server, [Say("**One** \x1b[31m."), *WRITE], [Say("Two.")])
    master, slave = os.openpty()
    try:
        async with harness(tmp_path, "chat", env=with_model(server), stdin=b"go\n", stdout=slave) as child:
            assert await child.end() == 0
            assert "\x1b" not in child.errors
        assert os.read(master, 4096) == "**One** ␛[31m.\r\nTwo.\r\n".encode(), "and the model's own are harmless"
    finally:
        os.close(master)
        os.close(slave)


async def test_when_nobody_reads_on_it_stops(tmp_path: Path, server: ScriptedModelServer) -> None:
    play(server, *[[Say(f"word {n} ", 0.01) for n in range(300)]] * 3)
    reading, writing = os.pipe()
    async with harness(tmp_path, "chat", env=with_model(server), stdin=b"a\nb\nc\n", stdout=writing) as child:
        os.close(writing)
        await until(lambda: server.requests and server.requests[0].text_sent, "the first word", child)
        os.close(reading)
        assert await child.end() == 130
        assert len(server.requests) == 1
