"""Feature rows S6, S7, S14 and S16 to S21 as a person at a terminal and a script see them: the command as a process."""

import json
import re
import signal
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.providers.script import Call, Cut, Fail, Hang, Say, Script, Think
from harness.testing.model_server import ScriptedModelServer
from harness.tools.sandbox import Sandbox
from tests.features.rig import collapsed
from tests.terminal.pty_rig import CTRL_C, CTRL_D, Terminal, at_terminal
from tests.terminal.rig import asked, events, harness, in_turn, over, until, with_model
from tests.tools.test_shell import alive

QUESTION = "a always, n deny:"
WRITE: Script = [Say("I will."), Call("write_file", '{"path": "notes.txt", "content": "x"}')]
CALCULATE: Script = [Say("Let me see. "), Call("calculator", '{"expression": "2*(3+4)"}')]
ANSWER: Script = [Say("It "), Say("is "), Say("14.")]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModelServer]:
    async with ScriptedModelServer(speed=100) as running:
        yield running


def play(server: ScriptedModelServer, *scripts: Script) -> None:
    server.speed = 1.0
    server._answer = in_turn(*scripts)


def was_asked(terminal: Terminal, times: int) -> bool:
    return terminal.text.count(QUESTION) == times


async def test_s06_a_conversation_at_the_prompt_remembers_until_it_is_cleared(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    async with at_terminal(tmp_path, "chat", env=with_model(server), lines=200) as terminal:
        turns = 1

        async def said(text: str) -> str:
            nonlocal turns
            await terminal.prompts(turns)
            before = len(terminal.text)
            terminal.send(text)
            turns += 1
            await terminal.prompts(turns)
            return re.sub(r"\s+", " ", terminal.text[before:])

        assert "My cat is called Mau" in await said("My cat is called Mau")
        await said("")
        assert "The first thing you said here was “My cat is called Mau”" in await said("what did I say first?")
        await said("/clear")
        assert "nothing earlier to remember" in await said("what did I say first?")
        assert [request.prompt for request in server.requests] == [
            "My cat is called Mau", "what did I say first?", "what did I say first?",
        ]  # fmt: skip
        terminal.type(CTRL_D)
        assert await terminal.end() == 0


async def test_s07_two_stops_in_two_turns_also_after_a_question_and_the_third_turn_works(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    sandbox, why_not = await Sandbox.find()
    if sandbox is None:
        pytest.skip(why_not)
    mark = uuid.uuid4().hex
    shell: Script = [Call("shell", json.dumps({"command": f"sleep 1000 & sleep 1000; : {mark}", "timeout_s": 60}))]
    play(server, shell, WRITE, [Say("half"), Hang()], [Say("All is well.")])
    async with at_terminal(tmp_path, "chat", env=with_model(server), lines=100) as terminal:
        await terminal.prompts(1)
        terminal.send("run it")
        await terminal.until(lambda: was_asked(terminal, 1))
        terminal.send("y")
        await terminal.until(lambda: len(alive(mark)) >= 3, "the command with its child")
        terminal.type(CTRL_C)
        await terminal.prompts(2)
        assert alive(mark) == [], "nothing of the command is left"
        assert terminal.text.count("[canceled]") == 1

        terminal.send("write it")
        await terminal.until(lambda: was_asked(terminal, 2))
        terminal.send("y")
        await terminal.until("half")
        terminal.type(CTRL_C)
        await terminal.prompts(3)
        await over(server.requests[2])
        assert server.requests[2].closed_by_client
        assert terminal.text.count("[canceled]") == 2

        terminal.send("and now?")
        await terminal.until("All is well.")
        await terminal.prompts(4)
        assert [request.closed_by_client for request in server.requests] == [False, False, True, False]
        told = [m["content"] for m in server.requests[3].messages if m["role"] == "tool"]
        assert "unknown" in str(told[0]), "whether the command took effect, nobody can say"
        terminal.send("/exit")
        assert await terminal.end() == 0


async def test_s14_the_same_letter_is_an_answer_at_the_question_and_a_message_at_the_prompt(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    play(server, WRITE, [Say("Written.")], [Say("You said y.")])
    async with at_terminal(tmp_path, "chat", env=with_model(server)) as terminal:
        await terminal.prompts(1)
        terminal.send("write it")
        await terminal.until(QUESTION)
        terminal.send("y")
        await terminal.until("Written.")
        await terminal.prompts(2)
        assert (tmp_path / "notes.txt").read_text() == "x"
        assert len(server.requests) == 2, "the answer was no message"
        terminal.send("y")
        await terminal.until("You said y.")
        assert server.requests[2].prompt == "y"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
async def test_s16_a_polite_kill_ends_the_run_in_order(
    tmp_path: Path, server: ScriptedModelServer, how: signal.Signals
) -> None:
    play(server, [Say("half"), Hang()])
    async with harness(tmp_path, "run", "--json", "go", env=with_model(server)) as child:
        record = await asked(server, child)
        await until(lambda: '"half"' in child.text, "the first word", child)
        child.process.send_signal(how)
        assert await child.end() == 130
        await over(record)
        assert record.closed_by_client
        end = events(child)[-1]
        assert (end["status"], end["answer"]) == ("interrupted", "half")


async def test_s17_the_timeline_shows_each_event_that_a_program_gets(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    scripts: list[Script] = [
        [Fail("overloaded", 503, retry_after=0.0)],
        [Think("Hm."), *CALCULATE, Call("calculator", '{"expression": "1/0"}'), Call("nobody")],
        ANSWER,
    ]
    play(server, *scripts, *scripts)
    async with harness(tmp_path, "run", "--json", "calc", env=with_model(server)) as child:
        assert await child.end() == 0
        lines = events(child)
    async with harness(tmp_path, "run", "--timeline", "calc", env=with_model(server)) as child:
        assert await child.end() == 0
        table, _, summary = child.text.partition("\n\n")
    shown = re.findall(r"^ +\d+\.\d{3}  (\S+)", table, re.MULTILINE)
    assert shown == collapsed([line["kind"] for line in lines])
    end = lines[-1]
    assert summary.split("\n\n")[0] == "Answer\nLet me see. "
    assert re.search(rf"^Steps +{end['steps']}$", summary, re.MULTILINE)
    tokens = rf"^Tokens +{end['usage']['input_tokens']} in, {end['usage']['output_tokens']} out$"
    assert re.search(tokens, summary, re.MULTILINE)
    assert summary.endswith("Status  completed\n")


async def test_s18_piped_lines_are_as_many_turns_of_one_conversation(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    count = 40
    play(server, *[[Say(f"answer {n} "), Say("to it")] for n in range(count)])
    lines = "".join(f"question {n}\n" for n in range(count)).encode()
    async with harness(tmp_path, "chat", env=with_model(server), stdin=lines) as child:
        assert await child.end() == 0
        assert child.text.splitlines() == [f"answer {n} to it" for n in range(count)]
        assert child.errors == ""
    assert [request.prompt for request in server.requests] == [f"question {n}" for n in range(count)]
    users = [m for m in server.requests[-1].messages if m["role"] == "user"]
    assert len(users) == count


@pytest.mark.parametrize("more", [(), ("--no-stream",)])
async def test_s18_one_shot_with_tools_says_the_same_streamed_and_plain(
    tmp_path: Path, server: ScriptedModelServer, more: tuple[str, ...]
) -> None:
    play(server, CALCULATE, ANSWER)
    async with harness(tmp_path, "run", *more, "calc", env=with_model(server)) as child:
        assert await child.end() == 0
        assert child.text == "Let me see. \nIt is 14.\n"
        assert "= calculator: 14" in child.errors
    assert [json.loads(request.body)["stream"] for request in server.requests] == [not more] * 2


async def test_s19_every_tool_of_the_terminal_can_be_called(tmp_path: Path, server: ScriptedModelServer) -> None:
    def use(name: str, **arguments: object) -> Call:
        return Call(name, json.dumps(arguments))

    wanted = [
        use("calculator", expression="2**10"),
        use("random_number", min=7, max=7),
        use("clock", timezone="Asia/Shanghai"),
        use("write_file", path="a/b.txt", content="one two"),
        use("read_file", path="a/b.txt"),
        use("edit_file", path="a/b.txt", old="two", new="three"),
        use("list_files", path="a"),
        use("fetch", url="http://127.0.0.1:1/"),
        use("shell", command="cat a/b.txt"),
        use("nobody"),
    ]
    play(server, wanted, [Say("Done.")])
    allow = [arg for name in ("write_file", "edit_file", "fetch") for arg in ("--allow", name)]
    sandbox, _ = await Sandbox.find()
    if sandbox is not None:
        allow += ["--allow", "shell"]
    async with harness(tmp_path, "run", "--json", *allow, "go", env=with_model(server)) as child:
        assert await child.end() == 0
        ends = {line["name"]: line for line in events(child) if line["kind"] == "tool:end"}
    results = {name: line["result"] for name, line in ends.items()}
    assert (results["calculator"], results["random_number"]) == ("1024", "7")
    assert "Asia/Shanghai" in results["clock"]
    assert results["read_file"].endswith("\none two")
    assert results["list_files"].endswith("\nb.txt  9 bytes")
    assert (tmp_path / "a/b.txt").read_text() == "one three"
    assert "loopback" in results["fetch"]
    assert "one three" in results["shell"] or sandbox is None
    assert "There is no tool 'nobody'" in results["nobody"]
    failed = {name for name, line in ends.items() if line["is_error"]}
    assert failed == {"fetch", "nobody"} | ({"shell"} if sandbox is None else set())
    told = [m["content"] for m in server.requests[1].messages if m["role"] == "tool"]
    assert told == [results[call.name] for call in wanted], "the model is told the very same, in the order of its calls"


async def test_s20_the_limits_of_the_settings_hold(tmp_path: Path, server: ScriptedModelServer) -> None:
    server._answer = lambda _: CALCULATE
    server.set_fault({"status": 503, "times": 1})
    env = with_model(server, MAX_TURNS="2", MODEL_RETRIES="1")
    async with harness(tmp_path, "run", "--json", "go", env=env) as child:
        assert await child.end() == 1
        lines = events(child)
    assert [line["reason"] for line in lines if line["kind"] == "model:retry"] == ["overloaded"]
    assert (lines[-1]["stop_reason"], lines[-1]["error"]["kind"]) == ("max_turns", "max_turns")
    assert len(server.requests) == 3


async def test_s21_only_a_reader_that_can_take_text_back_gets_a_second_attempt(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    half: Script = [Say("half "), Say("an answer"), Cut()]
    play(server, half, half, ANSWER)
    async with harness(tmp_path, "run", "go", env=with_model(server)) as child:
        assert await child.end() == 1
        assert child.text == "half an answer\n"
        assert child.errors.startswith("[failed]: ")
    assert len(server.requests) == 1
    async with harness(tmp_path, "run", "--json", "go", env=with_model(server)) as child:
        assert await child.end() == 0
        lines = events(child)
    kinds = [line["kind"] for line in lines]
    assert collapsed(kinds)[3:7] == ["model:delta", "message:retracted", "model:retry", "model:delta"]
    kept = "".join(line["text"] for line in lines[kinds.index("message:retracted") :] if line["kind"] == "model:delta")
    assert kept == lines[-1]["answer"] == "It is 14."
