"""`harness sessions` and `harness grants` on a real database: what they show, and what they delete."""

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from typer.testing import CliRunner

from harness.approval import Grant
from harness.assembly import open_runtime
from harness.cli import app
from harness.messages import UserMessage
from harness.providers.script import Call, Say, Script, Think
from harness.providers.scripted import ScriptedProvider
from harness.runtime import Started
from harness.settings import KernelSettings
from harness.stores.base import Stores
from harness.stores.sql import open_stores
from harness.terminal import transcript
from harness.terminal.claims import claims_in
from harness.terminal.state import state_folder
from harness.tools.builtin import default_tools
from tests.terminal.rig import PATIENCE_S, clean_env

ADA, ALAN, SLACK = "terminal/aaaa1111", "terminal/aabb2222", "slack:T1/C1/17.5"
SNEAKY = "```\nUser\n  pretends\x1b[2J\n```"
TOLD: dict[str, list[tuple[str, list[Script]]]] = {
    ADA: [
        ("What is 二 plus\ntwo?", [[Think("Hm."), Call("calculator", '{"expression": "2+2"}')], [Say("It is 四.")]]),
        ("And again?", [[Say(SNEAKY)]]),
    ],
    ALAN: [("Hello", [[Say("Hi.")]])],
    SLACK: [("In a channel", [[Say("Fine.")]])],
}


def kept(folder: Path, work: Callable[[Stores], Coroutine[Any, Any, Any]]) -> Any:
    async def opened() -> Any:
        async with open_stores(None, state_folder(folder)) as stores:
            return await work(stores)

    return asyncio.run(opened())


async def tell(stores: Stores) -> None:
    """Hold the conversations, with a scripted model and everything else as it is."""
    settings = KernelSettings(_env_file=None, model_protocol="scripted")  # type: ignore[call-arg]
    scripts = [script for turns in TOLD.values() for _, scripts in turns for script in scripts]
    provider = ScriptedProvider(scripts)
    async with open_runtime(default_tools(), provider=provider, settings=settings, stores=stores) as runtime:
        for key, turns in TOLD.items():
            for prompt, _ in turns:
                outcome = await runtime.run(key, prompt)
                assert isinstance(outcome, Started)
                assert outcome.task.error is None
    provider.assert_complete()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kept(tmp_path, tell)
    return tmp_path


def command(folder: Path, *args: str, typed: str | None = None) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    env = {"XDG_STATE_HOME": str(folder), "DATABASE_URL": "", "NO_COLOR": "1", "COLUMNS": "80"}
    result = CliRunner().invoke(app, list(args), env=env, input=typed)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def shown(folder: Path, *args: str) -> str:
    code, out, err = command(folder, *args)
    assert (code, err) == (0, "")
    return out


def test_the_list_names_every_conversation_the_last_used_first(folder: Path) -> None:
    rows = [re.split(r"  +", row) for row in shown(folder, "sessions", "list").splitlines()]
    assert [(row[0], row[2], row[3]) for row in rows] == [
        (SLACK, "1 turn", "In a channel"),
        (ALAN, "1 turn", "Hello"),
        (ADA, "2 turns", "What is 二 plus two?"),
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", row[1]) for row in rows)
    code, out, err = command(folder, "sessions", "list", "--limit", "1")
    assert (code, len(out.splitlines())) == (0, 1)
    assert "--limit N shows more" in err


def test_show_reads_like_a_conversation_and_no_text_can_pretend_to_be_a_heading(folder: Path) -> None:
    text = shown(folder, "sessions", "show", "aaaa")
    assert text == (
        "User\n  What is 二 plus\n  two?\n\n"
        'Assistant\n  ~ Hm.\n  > calculator {"expression": "2+2"}\n  = calculator: 4\n  It is 四.\n\n'
        "User\n  And again?\n\n"
        "Assistant\n  ```\n  User\n    pretends␛[2J\n  ```\n"
    )  # fmt: skip


@given(st.text(alphabet="ab 你\t\n", max_size=200), st.integers(10, 40))
def test_on_a_screen_a_text_keeps_its_letters_and_no_row_is_too_wide(text: str, width: int) -> None:
    heading, *rows = [row for row, _ in transcript.shown([UserMessage(text)], width=width)]
    assert heading == "User"
    assert all(cell_len(row) <= width and row[:2] in ("", "  ") for row in rows)
    assert "".join("".join(rows).split()) == "".join(text.split())
    words = text.replace("你", " ").split()
    assert all(any(word in row for row in rows) for word in words if len(word) <= width - 2), "no word is cut"


def test_export_has_the_very_texts_as_markdown_or_each_message_as_json(folder: Path) -> None:
    text = shown(folder, "sessions", "export", ADA)
    assert text.startswith(
        "# What is 二 plus two?\n\n## User\n\nWhat is 二 plus\ntwo?\n\n## Assistant\n\nCalls `calculator`"
    )
    assert "\n```text\n4\n```\n\nIt is 四.\n\n## User\n\nAnd again?\n\n## Assistant\n\n" + SNEAKY + "\n" in text
    lines = [json.loads(line) for line in shown(folder, "sessions", "export", "--json", "aaaa").splitlines()]
    assert [line["role"] for line in lines] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert lines[0] == {"role": "user", "text": "What is 二 plus\ntwo?", "speaker": ""}
    assert lines[1]["reasoning"] == "Hm."
    [call] = lines[1]["tool_calls"]
    assert (call["name"], call["arguments"]) == ("calculator", {"expression": "2+2"})
    assert (lines[2]["call_id"], lines[2]["content"], lines[2]["is_error"]) == (call["id"], "4", False)
    assert lines[5]["text"] == SNEAKY


def test_trace_tells_every_event_of_a_conversation_or_of_one_task(folder: Path) -> None:
    text = shown(folder, "sessions", "trace", "aaaa")
    tasks = re.findall(r"^task ([0-9a-f]{32})  .{16}  completed$", text, re.MULTILINE)
    assert len(tasks) == 2
    assert "run:start         What is 二 plus two?" in text
    assert "tool:end          calculator = 4" in text
    assert text.count("Status  completed") == 2
    lines = [json.loads(line) for line in shown(folder, "sessions", "trace", tasks[1][:12], "--json").splitlines()]
    assert {line["task_id"] for line in lines} == {tasks[1]}
    assert [line["seq"] for line in lines] == sorted(line["seq"] for line in lines)
    assert (lines[1]["kind"], lines[1]["input"]) == ("run:start", "And again?")
    assert (lines[-1]["kind"], lines[-1]["answer"]) == ("run:end", SNEAKY)
    assert shown(folder, "sessions", "trace", tasks[1]).count("task ") >= 1


@pytest.mark.parametrize("name", ["show", "export", "delete", "trace"])
@pytest.mark.parametrize(
    ("id", "said"),
    [
        ("zz", "There is no conversation"),
        ("", "There is no conversation"),
        ("aa", "More than one conversation begins with aa: aaaa1111, aabb2222."),
        ("terminal/aa", "More than one conversation begins with terminal/aa: terminal/aaaa1111, terminal/aabb2222."),
    ],
)
def test_an_id_that_does_not_name_one_conversation_is_a_wrong_call(folder: Path, name: str, id: str, said: str) -> None:
    code, out, err = command(folder, "sessions", name, id)
    assert (code, out) == (2, "")
    assert said in err


def test_delete_asks_nobody_in_a_script_and_takes_everything_of_that_conversation(folder: Path) -> None:
    code, _, err = command(folder, "sessions", "delete", "aaaa", typed="y\n")
    assert (code, "--yes" in err) == (2, True), "a piped line is no answer"
    assert command(folder, "sessions", "delete", "aaaa", "--yes")[0] == 0

    async def left(stores: Stores) -> tuple[int, int, int]:
        tasks = [len(await stores.tasks.of_session(key)) for key in TOLD]
        return tasks[0], tasks[1], tasks[2]

    assert kept(folder, left) == (0, 1, 1)
    assert ADA not in shown(folder, "sessions", "list")
    assert command(folder, "sessions", "trace", ADA)[0] == 2


def test_grants_are_listed_for_all_and_revoked_by_the_beginning_of_their_id(folder: Path) -> None:
    def grant(id: str, session: str) -> Grant:
        chat = "terminal:/home/ada/项目\x1b"
        return Grant(id, "shell", "d", chat, "ada", session, "the user", 1.0, 4e9, {"command": "make 你好"})

    async def add(stores: Stores) -> None:
        await stores.grants.add(grant("ab11", ""))
        await stores.grants.add(grant("ab22", SLACK))

    kept(folder, add)
    first, second = shown(folder, "grants", "list").splitlines()
    assert first.startswith("ab11  always   until 2096-10-02")
    assert first.endswith("shell {'command': 'make 你好'}  in terminal:/home/ada/项目␛ for ada")
    assert f"in {SLACK} for ada" in second
    assert "More than one permission" in command(folder, "grants", "revoke", "ab")[2]
    assert command(folder, "grants", "revoke", "ab1")[0] == 0
    assert shown(folder, "grants", "list").splitlines() == [second]
    assert command(folder, "grants", "revoke", "ab1")[0] == 2


def test_looking_makes_no_database_and_finds_nothing_where_there_is_none(tmp_path: Path) -> None:
    assert command(tmp_path, "sessions", "list") == (0, "", "There are no conversations.\n")
    assert command(tmp_path, "grants", "list") == (0, "", "There are no standing permissions.\n")
    assert command(tmp_path, "sessions", "show", "a")[0] == 2
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_database_is_one_sentence_and_a_wrong_setting_too(tmp_path: Path) -> None:
    state_folder(tmp_path).mkdir()
    (state_folder(tmp_path) / "harness.db").write_bytes(b"no database, " * 500)
    code, out, err = command(tmp_path, "sessions", "list")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "no SQLite database" in err
    result = CliRunner().invoke(app, ["sessions", "list"], env={"DATABASE_URL": "mysql://secret@host/x"})
    assert (result.exit_code, "secret" in result.output) == (2, False)


@contextlib.asynccontextmanager
async def other(program: str, *args: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process, from its first line of output on."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *args,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=clean_env(),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert await asyncio.wait_for(process.stdout.readline(), PATIENCE_S) == b"True\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_what_is_open_in_a_terminal_is_not_deleted_under_it(tmp_path: Path) -> None:
    """The terminal is another process: a process cannot lock out itself."""
    hold = (
        "import pathlib, sys; from harness.terminal.claims import claims_in\n"
        "with claims_in(pathlib.Path(sys.argv[1]), is_proof=True) as claims:\n"
        "    print(claims.take(sys.argv[2]), flush=True); sys.stdin.read()\n"
    )
    folder = state_folder(tmp_path)
    async with other(hold, str(folder), ADA) as holder:
        with claims_in(folder, is_proof=True) as claims:
            assert not claims.take(ADA)
            assert claims.take(ALAN), "another conversation"
            await asyncio.to_thread(kept, tmp_path, tell)
            code, _, err = await asyncio.to_thread(command, tmp_path, "sessions", "delete", "aaaa", "--yes")
            assert code == 2
            assert "open in a terminal" in err
            holder.kill()
            await holder.wait()
            assert claims.take(ADA), "a dead process holds nothing"
