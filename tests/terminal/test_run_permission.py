"""Tools that need permission in `harness run`: a question at a terminal, a denial elsewhere, or allowed by name."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.providers.script import Call, Fail, Hang, Say, Script
from harness.testing.model_server import ScriptedModelServer
from tests.terminal.pty_rig import CTRL_C, at_terminal
from tests.terminal.rig import clean_env, events, harness, in_turn, over, with_model

WRITE: Script = [Call("write_file", '{"path": "notes.txt", "content": "x"}')]
DONE: Script = [Say("Done.")]
QUESTION = "a always, n deny:"


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModelServer]:
    async with ScriptedModelServer() as running:
        running._answer = in_turn(WRITE, DONE)
        yield running


async def test_without_a_terminal_it_is_denied_at_once(tmp_path: Path, server: ScriptedModelServer) -> None:
    async with harness(tmp_path, "run", "--json", "go", env=with_model(server), stdin=b"y\ny\n") as child:
        assert await child.end() == 0
        lines = events(child)
    [end] = [line for line in lines if line["kind"] == "tool:end"]
    assert end["is_error"]
    assert "--allow write_file" in end["result"], "the way to permit it"
    [decided] = [line for line in lines if line["kind"] == "approval:decided"]
    assert decided["decision"] == "deny"
    assert not (tmp_path / "notes.txt").exists()


async def test_a_tool_that_is_allowed_by_name_runs_without_a_question(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    async with harness(tmp_path, "run", "--json", "--allow", "write_file", "go", env=with_model(server)) as child:
        assert await child.end() == 0
        assert "approval" not in child.text
    assert (tmp_path / "notes.txt").read_text() == "x"


async def test_an_unknown_name_is_wrong_use_and_the_tools_are_listed(tmp_path: Path) -> None:
    for command in (("run", "hi"), ("chat",)):
        args = (*command, "--model", "scripted", "--allow", "rm_rf")
        async with harness(tmp_path, *args, env=clean_env(), stdin=b"hi\n") as child:
            assert await child.end() == 2
            assert child.errors.count("\n") == 1
            assert "rm_rf" in child.errors
            assert "write_file" in child.errors
            assert child.text == ""


async def test_json_and_timeline_exclude_each_other(tmp_path: Path) -> None:
    async with harness(tmp_path, "run", "--json", "--timeline", "hi", env=clean_env()) as child:
        assert await child.end() == 2
        assert "choose one" in child.errors


@pytest.mark.parametrize(("answer", "code", "shown"), [("y\r", 0, "Done."), (CTRL_C, 130, "[canceled]")])
async def test_at_a_terminal_the_person_is_asked(
    tmp_path: Path, server: ScriptedModelServer, answer: str, code: int, shown: str
) -> None:
    async with at_terminal(tmp_path, "run", "go", env=with_model(server)) as terminal:
        await terminal.until(QUESTION)
        assert '| path: "notes.txt"' in terminal.text
        terminal.type(answer)
        assert await terminal.end() == code
        assert shown in terminal.text
        assert terminal.echoes
    assert (tmp_path / "notes.txt").exists() == (answer == "y\r")
    assert len(server.requests) == (1 if code else 2)


async def test_the_answer_may_go_into_a_file_while_the_person_is_asked(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    reading, writing = os.pipe()
    try:
        async with at_terminal(tmp_path, "run", "go", env=with_model(server), stdout=writing) as terminal:
            await terminal.until(QUESTION)
            terminal.send("y")
            assert await terminal.end() == 0
        assert os.read(reading, 4096) == b"Done.\n"
    finally:
        os.close(reading)
        os.close(writing)


async def test_the_timeline_at_a_terminal_with_a_question_in_the_middle(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    server._answer = in_turn([Fail("overloaded", 503, retry_after=0.0)], [Say("I will."), *WRITE], DONE)
    async with at_terminal(tmp_path, "run", "--timeline", "go", env=with_model(server), columns=120) as terminal:
        await terminal.until(QUESTION)
        await asyncio.sleep(0.1)
        terminal.send("y")
        assert await terminal.end() == 0
        shown = re.findall(r"^ +(\d+\.\d{3})  (\S+)", terminal.text, re.MULTILINE)
        kinds = [kind for _, kind in shown]
        for kind in ("model:retry", "approval:request", "approval:decided", "tool:start", "tool:end", "step"):
            assert kind in kinds
        assert [float(at) for at, _ in shown] == sorted(float(at) for at, _ in shown)
        assert kinds.index("approval:request") < kinds.index("approval:decided") < kinds.index("tool:start")
        assert re.search(r"\nAnswer\nI will\.\n\nDone\.\n\nSteps +\d+\nTokens .+\nStatus +completed$", terminal.text)


async def test_ctrl_c_in_a_timeline(tmp_path: Path, server: ScriptedModelServer) -> None:
    server._answer = in_turn([Say("half"), Hang()])
    async with at_terminal(tmp_path, "run", "--timeline", "go", env=with_model(server)) as terminal:
        await terminal.until("half")
        terminal.type(CTRL_C)
        assert await terminal.end() == 130
        await over(server.requests[0])
        assert server.requests[0].closed_by_client
        assert terminal.text.endswith("Status  canceled")
