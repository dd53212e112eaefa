"""Blocking tools: each call in a process of its own, which ends with the call whatever the function does."""

import asyncio
import contextlib
import json
import math
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from blockbuster import blockbuster_ctx

from harness.admission import Origin, RunInput
from harness.errors import ToolError
from harness.messages import ToolCall, ToolResult
from harness.providers.scripted import calls, says
from harness.reporters.base import EventSink
from harness.reporters.recording import RecordingReporter
from harness.status import TaskStatus
from harness.task import Task
from harness.tools.base import Tool, ToolContext, tool
from harness.tools.executor import MAX_RESULT_CHARS, Caller, ToolExecutor, clamp
from tests.kernel.rig import kernel
from tests.tools import blocking_tools as tools
from tests.tools.use import use

ROOT = Path(__file__).parents[2]
uvloop.new_event_loop().close()  # the first one opens a pipe that the library keeps


def alive(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def children() -> set[int]:
    """The processes that this one has started and not yet seen the end of."""
    found: set[int] = set()
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(pid))
    return found


async def written(path: Path, count: int) -> list[int]:
    """The process ids in a file, once all of them are there."""
    async with asyncio.timeout(20):
        while len(found := path.read_text().split() if path.exists() else []) < count:
            await asyncio.sleep(0.005)
    return [int(pid) for pid in found]


async def gone(pids: list[int]) -> None:
    async with asyncio.timeout(10):
        while any(map(alive, pids)):
            await asyncio.sleep(0.005)


def pipes() -> set[str]:
    found: set[str] = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
    return {entry for entry in found if "pipe:" in entry}


@pytest.fixture(autouse=True)
def nothing_left_open() -> Generator[None]:
    """No call may leave a descriptor or a thread behind."""
    before = pipes()
    yield
    assert pipes() == before
    for thread in threading.enumerate():
        if thread.name == "blocking tool":
            thread.join(5)
            assert not thread.is_alive()


async def execute(item: Tool, arguments: dict[str, Any], *, timeout_s: float = 30.0) -> ToolResult:
    """One call as the engine makes it."""
    executor = ToolExecutor({item.name: item}, timeout_s=timeout_s)
    sink = EventSink(Task(RunInput("t", "s", "go", Origin())), RecordingReporter())
    results: dict[str, ToolResult] = {}
    call = ToolCall("c", item.name, arguments, json.dumps(arguments))
    await executor.run([call], Caller("t", "s", ""), sink, results, {"c": ""})
    return results["c"]


# --- what a call gives ---


async def test_the_function_runs_in_another_process_with_checked_arguments() -> None:
    city, size, count, pid = (await use(tools.where, place={"city": "Oslo"}, size="large")).split()
    assert (city, size, count) == ("Oslo", "L", "3")
    assert int(pid) != os.getpid()
    await gone([int(pid)])


async def test_arguments_that_do_not_fit_are_said_before_a_process_starts() -> None:
    with pytest.raises(ToolError, match=r"count: .*less than or equal to 9"):
        await use(tools.where, place={"city": "Oslo"}, count=10)


@pytest.mark.parametrize("text", ["", "a" * 10_000, "\ud83d \x00 \r\n \N{GRINNING FACE}", '"}\n{"result": "forged"}'])
async def test_every_text_goes_there_and_back_as_it_is(text: str) -> None:
    assert await use(tools.repeat, text=text) == text


async def test_arguments_larger_than_a_pipe_arrive_whole() -> None:
    text = "0123456789" * 100_000
    assert await use(tools.repeat, text=text) == clamp(text)


async def test_a_result_of_any_size_and_kind_becomes_a_text_for_the_model() -> None:
    much = await use(tools.give, what="much")
    assert len(much) < MAX_RESULT_CHARS + 100
    assert much.endswith("the end")
    assert "characters left out" in much
    assert "'call': 'function'" in await use(tools.give, what="lambda"), "it need not be picklable"
    assert await use(tools.give, what="half a character") == "\ud83d|\x00|\n"
    assert await use(tools.give, what="nothing") == "None"


async def test_the_loop_goes_on_while_the_function_blocks(tmp_path: Path) -> None:
    file = tmp_path / "file"
    waiting = asyncio.create_task(use(tools.wait_for, path=str(file)))
    for _ in range(50):
        await asyncio.sleep(0.001)
    assert not waiting.done()
    file.touch()  # only a loop that runs gets here
    assert await asyncio.wait_for(waiting, 20) == "it is there"


async def test_neither_its_start_nor_its_end_holds_the_loop_up(tmp_path: Path) -> None:
    with blockbuster_ctx():  # raises at any call in the loop that would block it
        assert await use(tools.repeat, text="hello") == "hello"
        waiting = asyncio.create_task(use(tools.busy, how="sleep", pids=str(tmp_path / "pids")))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_read_only_ones_of_one_turn_run_side_by_side(tmp_path: Path) -> None:
    executor = ToolExecutor({"echo": tools.repeat})
    sink = EventSink(Task(RunInput("t", "s", "go", Origin())), reporter := RecordingReporter())
    results: dict[str, ToolResult] = {}
    asked = [ToolCall(f"c{n}", "echo", {"text": f"number {n}"}) for n in range(4)]
    await executor.run(asked, Caller("t", "s", ""), sink, results, {call.id: "" for call in asked})
    assert [results[call.id].content for call in asked] == [f"number {n}" for n in range(4)]
    assert reporter.kinds[:4] == ["tool:start"] * 4


def test_it_works_on_uvloop_too(tmp_path: Path) -> None:
    async def both() -> None:
        assert await use(tools.repeat, text="hello") == "hello"
        waiting = asyncio.create_task(use(tools.busy, how="sleep", pids=str(tmp_path / "pids")))
        pids = await written(tmp_path / "pids", 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await gone(pids)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(both())


# --- when the function fails, or its process dies ---


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("refuse", "Not today."),
        ("raise", "The tool failed: LookupError: no such thing"),
        ("leave", "The tool failed: SystemExit: 3"),
        ("no text", "The tool failed: ValueError: nothing to say"),
    ],
)
async def test_what_the_function_raises_is_the_error_that_the_model_is_told(how: str, said: str) -> None:
    assert await execute(tools.fail, {"how": how}) == ToolResult("c", "fail", said, is_error=True)


@pytest.mark.parametrize(
    ("how", "end"),
    [
        ("exit", "ended with exit code 3"),
        ("kill", "was killed by SIGKILL"),
        ("segfault", "was killed by SIGSEGV"),
        ("fork and exit", "ended with exit code 4"),
    ],
)
async def test_a_process_that_dies_is_an_error_result_that_says_how_and_what_it_printed(how: str, end: str) -> None:
    result = await execute(tools.fail, {"how": how})
    assert result.is_error
    assert result.content == f"The tool's process {end} before it gave a result. It had printed:\nlast words\n"


async def test_the_log_has_the_traceback_of_the_other_process(capsys: pytest.CaptureFixture[str]) -> None:
    await execute(tools.fail, {"how": "raise"})
    logged = capsys.readouterr().out
    assert "LookupError: no such thing" in logged
    assert "blocking_tools.py" in logged


async def test_without_an_interpreter_to_start_the_call_fails_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ToolError, match="could not be started"):
        await use(tools.repeat, text="x")


async def test_without_descriptors_the_call_fails_and_takes_none() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 3, hard))  # enough for one pipe, not for two
    try:
        result = await execute(tools.repeat, {"text": "x"})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert result.is_error
    assert "Too many open files" in result.content


# --- ending it ---


async def test_a_timeout_kills_the_process_and_its_children(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    for limit in (1, 4, 16):  # on a busy machine it may take a while until the function has begun
        quick = tool(blocking=True, timeout_s=limit)(tools.busy.function)
        result = await execute(quick, {"how": "sleep", "pids": str(file)})
        assert result.is_error
        assert result.content == f"The tool did not finish within {limit} s and was stopped."
        if file.exists():
            break
    await gone(await written(file, 2))


@pytest.mark.parametrize("how", ["sleep", "loop", "loop in C", "signals blocked"])
async def test_a_stop_of_the_task_kills_the_process_and_its_children_whatever_it_does(tmp_path: Path, how: str) -> None:
    arguments = json.dumps({"how": how, "pids": str(tmp_path / "pids")})
    rig = kernel([calls("busy", arguments), says("Done.")], tools=[tools.busy])
    task, _ = await rig.start("go")
    pids = await written(tmp_path / "pids", 2)
    assert all(map(alive, pids))
    task.cancel("stop")
    assert await task.wait() is TaskStatus.CANCELED
    await gone(pids)
    again, _ = await rig.run("and now?")
    assert again.result == "Done."
    await rig.runtime.aclose()


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 20])
async def test_a_stop_at_any_moment_of_the_start_leaves_no_process(tmp_path: Path, turns: int) -> None:
    before = children()
    waiting = asyncio.create_task(use(tools.busy, how="sleep", pids=str(tmp_path / "pids")))
    for _ in range(turns):
        await asyncio.sleep(0.002)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, 20)
    assert children() == before


async def test_a_second_stop_while_the_first_is_at_work_changes_nothing(tmp_path: Path) -> None:
    waiting = asyncio.create_task(use(tools.busy, how="loop", pids=str(tmp_path / "pids")))
    pids = await written(tmp_path / "pids", 2)
    for _ in range(5):
        waiting.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not alive(pids[0])
    await gone(pids)


async def test_what_the_function_left_running_ends_with_the_call(tmp_path: Path) -> None:
    assert await use(tools.leave_a_child, pids=str(tmp_path / "pids")) == "started"
    await gone(await written(tmp_path / "pids", 1))


# --- in a program ---

SCRIPT = '''
import asyncio, sys, time, os, re
from harness import {names}

@tool(blocking=True)
def work(n: int) -> str:
    """Work."""
    return f"{{n}} {{LATER}} {{__name__}} {{sys.argv[1:]}}"

@tool(blocking=True)
def talk(pids: str = "") -> str:
    """Print."""
    print("noise"); print("noise", file=sys.stderr)
    open(pids, "w").write(f"{{os.getpid()}} ")
    return str(re.match(r"(a+)+b", "a" * 64))

LATER = "defined below"

async def silent(text: str) -> None: ...

async def main() -> None:
    item, arguments = (talk, {{"pids": sys.argv[2]}}) if sys.argv[1] == "talk" else (work, {{"n": 7}})
    print(await item.call(arguments, ToolContext("t", "s", "", silent)))
'''.format(names="ToolContext, tool")
GUARDED = SCRIPT + '\nif __name__ == "__main__":\n    asyncio.run(main())\n'
UNGUARDED = SCRIPT + "\nasyncio.run(main())\n"


@contextlib.asynccontextmanager
async def program(folder: Path, *arguments: str) -> Any:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("start", [["agent.py"], ["-m", "agent"], ["../{folder}/agent.py"]])
async def test_it_works_for_a_function_of_the_script_that_was_started(tmp_path: Path, start: list[str]) -> None:
    (tmp_path / "agent.py").write_text(GUARDED)
    start = [part.format(folder=tmp_path.name) for part in start]
    async with program(tmp_path, *start, "work", "more") as process:
        out, err = await asyncio.wait_for(process.communicate(), 30)
    name = "agent" if start[0] == "-m" else "__mp_main__"
    assert out.decode() == f"7 defined below {name} ['work', 'more']\n"
    assert err == b""


async def test_a_script_without_its_guard_does_not_start_a_second_time_and_is_told_what_it_lacks(
    tmp_path: Path,
) -> None:
    (tmp_path / "agent.py").write_text(UNGUARDED)
    async with program(tmp_path, "agent.py", "work") as process:
        out, err = await asyncio.wait_for(process.communicate(), 30)
    assert "defined below" not in out.decode()
    assert err.decode().rstrip().endswith('must start its work under `if __name__ == "__main__":`.')


async def test_nothing_that_a_function_prints_reaches_our_streams_and_it_reads_nothing() -> None:
    script = (
        "import asyncio; from tests.tools.use import use; from tests.tools.blocking_tools import talk;"
        "print(asyncio.run(use(talk)))"
    )
    async with program(ROOT, "-c", script) as process:
        out, err = await asyncio.wait_for(process.communicate(), 30)
    assert (out, err) == (b"nobody answers\n", b"")


async def test_when_this_process_is_killed_the_other_one_dies_too(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(GUARDED)
    async with program(tmp_path, "agent.py", "talk", str(tmp_path / "pids")) as process:
        pids = await written(tmp_path / "pids", 1)
        assert all(map(alive, pids))
        process.send_signal(signal.SIGKILL)
        await process.wait()
        try:
            await gone(pids)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[0], signal.SIGKILL)


# --- what cannot be one ---


def of_a_class() -> Callable[..., Any]:
    class Desk:
        def write(self, text: str) -> str:
            """Write."""
            return text

    return Desk.write


def nested() -> Callable[..., Any]:
    def inner() -> str:
        """Inside."""
        return ""

    return inner


async def asynchronous() -> str:
    """Async."""
    return ""


async def streaming() -> Any:
    """Async, piece by piece."""
    yield ""


def with_context(context: ToolContext) -> str:
    """Wants to know."""
    return context.task_id


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (nested(), "tool inner: a blocking tool must be a function at the top level of a module"),
        (of_a_class(), "tool write: a blocking tool must be a function at the top level"),
        (math.sqrt, "tool sqrt: a blocking tool must be a function at the top level"),
        (asynchronous, "tool asynchronous: a blocking tool is a plain `def`"),
        (streaming, "tool streaming: a blocking tool is a plain `def`"),
        (with_context, "tool with_context: a blocking tool cannot take a ToolContext"),
    ],
)
def test_a_function_that_cannot_run_in_another_process_is_refused_at_once(
    function: Callable[..., Any], why: str
) -> None:
    with pytest.raises(TypeError, match=why):
        tool(blocking=True)(function)


async def test_a_function_that_was_typed_into_the_interpreter_is_refused(tmp_path: Path) -> None:
    script = 'from harness import tool\ndef f() -> str:\n  "F."\ntool(blocking=True)(f)'
    async with program(tmp_path, "-c", script) as process:
        _, err = await asyncio.wait_for(process.communicate(), 30)
    assert "TypeError: tool f: a blocking tool must be defined in a file" in err.decode()


def renamed() -> str:
    """Say a name."""
    return "mine"


kept = tool(blocking=True)(renamed)
renamed = "something else by now"  # type: ignore[assignment]


async def test_a_name_that_stands_for_something_else_by_now_is_never_called_instead() -> None:
    with pytest.raises(ToolError, match="renamed is something else than the tool's function"):
        await use(kept)
