"""`harness chat` at a terminal: a person types, the model answers across a real connection, Ctrl-C stops one turn."""

import re
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rich.cells import cell_len

from harness.providers.script import Call, Hang, Say, Script
from harness.testing.model_server import ScriptedModelServer
from tests.terminal.pty_rig import ALT_ENTER, CTRL_C, CTRL_D, ENTER, TAB, UP, Terminal, at_terminal
from tests.terminal.rig import clean_env, in_turn, over, with_model

WRITE: Script = [Say("I will."), Call("write_file", '{"path": "notes.txt", "content": "one\\ntwo\\u001b[2J"}')]
DONE: Script = [Say("Done.")]
QUESTION = "a always, n deny:"
COLOUR = re.compile(r"\x1b\[(?!0?m)[\d;]*m")


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModelServer]:
    async with ScriptedModelServer() as running:
        yield running


def play(server: ScriptedModelServer, *scripts: Script) -> None:
    server._answer = in_turn(*scripts)


def asked(terminal: Terminal, times: int) -> bool:
    return terminal.text.count(QUESTION) == times


async def test_ctrl_c_stops_one_turn_each_time_and_the_next_one_works(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    play(
        server,
        [Say("first half"), Hang()],
        [Say("second half"), Hang()],
        [Say("All is well.")],
        WRITE,
        WRITE,
        [Say("third half"), Hang()],
        [Say("Still well.")],
    )
    async with at_terminal(tmp_path, "chat", env=with_model(server)) as terminal:
        await terminal.prompts(1)
        for turn, half in enumerate(("first half", "second half")):
            terminal.send(f"question {turn}")
            await terminal.until(half)
            terminal.type(CTRL_C)
            await terminal.prompts(turn + 2)
            await over(server.requests[turn])
            assert server.requests[turn].closed_by_client
        terminal.send("and now?")
        await terminal.until("All is well.")
        await terminal.prompts(4)
        assert server.requests[2].prompt == "and now?"

        # At the question: nothing runs, the turn is over.
        terminal.send("write")
        await terminal.until(lambda: asked(terminal, 1))
        terminal.type(CTRL_C)
        await terminal.prompts(5)
        assert len(server.requests) == 4, "the model is not asked again"

        # After a question: the signal must still arrive.
        terminal.send("write again")
        await terminal.until(lambda: asked(terminal, 2))
        terminal.send("y")
        await terminal.until("third half")
        terminal.type(CTRL_C)
        await terminal.prompts(6)
        await over(server.requests[5])
        assert server.requests[5].closed_by_client

        terminal.send("well?")
        await terminal.until("Still well.")
        await terminal.prompts(7)
        assert terminal.text.count("[canceled]") == 4
        terminal.type(CTRL_D)
        assert await terminal.end() == 0
        assert terminal.echoes, "the terminal is as it was"
    texts = [message["content"] for message in server.requests[-1].messages if message["role"] == "user"]
    assert texts == ["question 0", "question 1", "and now?", "write", "write again", "well?"], "one conversation"
    assert (tmp_path / "notes.txt").read_text() == "one\ntwo\x1b[2J"


async def test_ctrl_c_before_the_first_word_closes_the_request(tmp_path: Path, server: ScriptedModelServer) -> None:
    play(server, [Hang()], DONE)
    server.set_fault({"latency_ms": 60_000})
    async with at_terminal(tmp_path, "chat", env=with_model(server)) as terminal:
        await terminal.prompts(1)
        terminal.send("hello")
        await terminal.until(lambda: server.requests)
        assert not terminal.echoes, "what is typed during a turn does not show"
        terminal.type(CTRL_C)
        await terminal.prompts(2)
        await over(server.requests[0])
        assert server.requests[0].closed_by_client
        # What is typed during a turn waits for the prompt.
        play(server, [Say("slow "), Say("answer", 0.3)], DONE)
        terminal.send("one")
        await terminal.until("slow")
        terminal.send("two")
        await terminal.until("Done.")
        assert server.requests[-1].prompt == "two"
        terminal.send("quit")
        assert await terminal.end() == 0


async def test_the_four_answers_and_what_they_are_good_for(tmp_path: Path, server: ScriptedModelServer) -> None:
    note = tmp_path / "notes.txt"
    scripts = [WRITE, DONE] * 8
    play(server, *scripts)
    async with at_terminal(tmp_path, "chat", env=with_model(server), lines=200) as terminal:
        turns = questions = 0

        async def turn(answer: str | None) -> bool:
            """Ask for a file; `answer` None when no question is expected. Whether the file was written."""
            nonlocal turns, questions
            note.unlink(missing_ok=True)
            await terminal.prompts(turns + 1)
            terminal.send("write it")
            turns += 1
            if answer is not None:
                questions += 1
                await terminal.until(lambda: asked(terminal, questions))
                assert not note.exists()
                terminal.type(answer)
            await terminal.prompts(turns + 1)
            assert asked(terminal, questions)
            return note.exists()

        async def command(text: str) -> str:
            nonlocal turns
            before = len(terminal.text)
            terminal.send(text)
            turns += 1
            await terminal.prompts(turns + 1)
            return terminal.text[before:]

        assert await turn("y\r")
        assert not await turn("n\r")
        assert "Denied by the user" in str(server.requests[-1].messages[-1]["content"])
        assert not await turn(CTRL_D), "the end of the input is no permission"
        assert await turn("S\r"), "once more: y held for one call only"
        assert await turn(None), "for the session"
        await command("/new")
        assert await turn("always\r"), "the permission for the session ended with it"
        await command("/new")
        assert await turn(None), "always"
        listed = await command("/grants")
        [(grant, scope)] = re.findall(r"([0-9a-f]{8})  (\w+)", listed.replace("session", ""))[-1:]
        assert scope == "always"
        assert "write_file" in listed
        assert "Taken back" in await command(f"/grants revoke {grant}")
        assert await turn("y\r"), "taken back: asked again"
        shown = re.sub(r"\s+", " ", terminal.text)
        assert '| path: "notes.txt" | content: 2 lines | one | two\\x1b[2J' in shown, "all arguments, nothing hidden"


async def test_keys_typed_before_the_question_are_no_answer_and_neither_is_nonsense(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    play(server, [Say("wait "), *[Say(". ", 0.1)] * 8, *WRITE[1:]], DONE)
    async with at_terminal(tmp_path, "chat", env=with_model(server)) as terminal:
        await terminal.prompts(1)
        terminal.send("write")
        await terminal.until("wait")
        terminal.send("y")
        await terminal.until(QUESTION)
        terminal.send("what?")
        await terminal.until(lambda: asked(terminal, 2))
        assert not (tmp_path / "notes.txt").exists()
        terminal.send("n")
        await terminal.until("Done.")
        assert not (tmp_path / "notes.txt").exists()


async def test_a_question_that_waits_too_long_closes_with_a_note(tmp_path: Path, server: ScriptedModelServer) -> None:
    play(server, WRITE, DONE, DONE)
    async with at_terminal(tmp_path, "chat", env=with_model(server, APPROVAL_TIMEOUT_S="1")) as terminal:
        await terminal.prompts(1)
        terminal.send("write")
        await terminal.until(QUESTION)
        terminal.type("y")  # without Enter
        await terminal.until("nobody answered in time")
        await terminal.prompts(2)
        assert not (tmp_path / "notes.txt").exists()
        terminal.send("next")
        await terminal.prompts(3)
        assert server.requests[-1].prompt == "next", "the half answer is gone"


async def test_lines_are_kept_for_the_owner_and_come_back(tmp_path: Path, server: ScriptedModelServer) -> None:
    env = with_model(server, XDG_STATE_HOME=str(tmp_path / "state"))
    async with at_terminal(tmp_path, "chat", env=env) as terminal:
        await terminal.prompts(1)
        terminal.type(f"first{ALT_ENTER}second\x1b[200~ third\nfourth\x1b[201~{ENTER}")
        await terminal.until(lambda: server.requests)
        assert server.requests[0].prompt == "first\nsecond third\nfourth"
        terminal.type(CTRL_C)
        await terminal.until("[canceled]")
        await terminal.prompts(2)
        terminal.type(CTRL_D)
        assert await terminal.end() == 0
    [kept] = (tmp_path / "state").rglob("history")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    kept.chmod(0o644)
    async with at_terminal(tmp_path, "chat", env=env) as terminal:
        await terminal.prompts(1)
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        terminal.type(f"{UP}{ENTER}")
        await terminal.until(lambda: len(server.requests) == 2)
        assert server.requests[1].prompt == "first\nsecond third\nfourth"


async def test_commands_and_how_to_leave(tmp_path: Path, server: ScriptedModelServer) -> None:
    play(server, DONE, DONE, DONE)
    async with at_terminal(tmp_path, "chat", env=with_model(server), lines=200) as terminal:
        prompts = 1
        await terminal.prompts(prompts)

        async def typed(keys: str) -> str:
            nonlocal prompts
            before = len(terminal.text)
            terminal.type(keys)
            prompts += 1
            await terminal.prompts(prompts)
            return terminal.text[before:]

        shown = await typed(f"/he{TAB}{ENTER}")
        for name in ("/help", "/clear", "/new", "/tools", "/grants", "/model", "/exit", "/quit", "Alt-Enter", "//"):
            assert name in shown
        assert "/resume ID" in shown
        assert "no conversations yet" in await typed("/resume\r")
        assert "no conversation ab" in await typed("/resume ab\r")
        shown = await typed("/tools\r")
        for name in ("calculator", "clock", "read_file", "write_file", "fetch"):
            assert re.search(rf"^{name} ", shown, re.MULTILINE)
        assert re.search(r"^write_file +\(asks\)", shown, re.MULTILINE)
        assert "no command /nonsense" in await typed("/nonsense x\r")
        assert "no standing permissions" in await typed("/grants\r")
        assert "no permission 12" in await typed("/grants revoke 12\r")
        assert "local-model" in await typed("/model\r")
        assert "other-model" in await typed("/model other-model\r")
        await typed(ENTER)
        await typed(f"  {ENTER}")
        assert server.requests == [], "no command and no empty line is a message"
        assert "Ctrl-D or /exit leaves" in await typed(f"half a line{CTRL_C}")
        assert "Ctrl-D or /exit leaves" in await typed(CTRL_C)
        await typed("//etc is a folder \udce9\r")
        assert server.requests[0].prompt.rstrip("\N{REPLACEMENT CHARACTER}") == "/etc is a folder "
        assert b"other-model" in server.requests[0].body
        await typed("/clear\r")
        await typed("who am I?\r")
        assert "folder" not in str(server.requests[1].messages[1:]), "forgotten"
        assert "scripted" in await typed("/model scripted\r")
        terminal.send("exit")
        assert await terminal.end() == 0


@pytest.mark.parametrize("term", ["xterm", "dumb"])
async def test_a_first_look_at_it(tmp_path: Path, term: str) -> None:
    env = clean_env(TERM=term, PATH=str(tmp_path))
    async with at_terminal(tmp_path, "chat", "--model", "scripted", env=env, columns=40) as terminal:
        await terminal.prompts(1)
        assert terminal.text.startswith("harness ")
        assert "model scripted" in terminal.text
        assert terminal.text.count("The shell tool is off") == 1, "what the machine lacks is said once"
        terminal.send("/quit")
        assert await terminal.end() == 0


async def test_an_answer_is_rendered_block_by_block_and_fits_a_narrow_terminal(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    text = "**粗体**" + "你好世界" * 9 + "。\n\n- one\n- `two`\n\n\x1b[2J\x1b]0;title\x07end"
    play(server, [Say(char) for char in text])
    async with at_terminal(tmp_path, "chat", env=with_model(server), columns=21, lines=40) as terminal:
        await terminal.prompts(1)
        terminal.send("答案是什么呢请你告诉我吧")
        await terminal.prompts(2)
        assert server.requests[0].prompt == "答案是什么呢请你告诉我吧"
        assert all(cell_len(line) <= 21 for line in terminal.text.split("\n"))
        shown = "".join(terminal.text.partition("告诉我吧")[2].split())
        assert shown == "粗体" + "你好世界" * 9 + "。•one•two␛[2J␛]0;title␇end" + "you>", "once, and as markdown"
        assert COLOUR.search(terminal.raw), "with colours"
        assert "\x1b[2J" not in terminal.raw


async def test_no_color_means_no_colour(tmp_path: Path, server: ScriptedModelServer) -> None:
    play(server, [Say("**bold** and\n\n"), Call("calculator", '{"expression": "1+1"}')], WRITE, DONE)
    async with at_terminal(tmp_path, "chat", env=with_model(server, NO_COLOR="1")) as terminal:
        await terminal.prompts(1)
        terminal.send("go")
        await terminal.until(QUESTION)
        terminal.send("y")
        await terminal.prompts(2)
        terminal.send("/help")
        await terminal.prompts(3)
        assert "**bold** and" in terminal.text, "as it came"
        assert COLOUR.findall(terminal.raw) == []


async def test_a_polite_kill_in_mid_turn_leaves_the_terminal_as_it_was(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    play(server, [Say("half"), Hang()])
    async with at_terminal(tmp_path, "chat", env=with_model(server)) as terminal:
        await terminal.prompts(1)
        terminal.send("go")
        await terminal.until("half")
        terminal.process.terminate()
        assert await terminal.end() == 130
        assert terminal.echoes
        await over(server.requests[0])
        assert server.requests[0].closed_by_client
