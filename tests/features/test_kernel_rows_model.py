"""Feature rows S1 to S5 as a user of the library sees them: models, streams and calls."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from harness.engine import Limits
from harness.events import ModelDelta, ModelEnded, ToolEnded, UsageReported
from harness.messages import AssistantMessage, Message, Text, ToolCall, Usage, UserMessage
from harness.providers.base import (
    Completed,
    ModelRequest,
    StreamingProvider,
    StreamItem,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from harness.providers.openai_chat import OpenAIChatProvider
from harness.providers.script import Call, Say, Script
from harness.reporters.recording import RecordingReporter
from harness.runtime import Started
from harness.status import TaskStatus
from harness.task import Task
from harness.testing.raw_model_server import RawModelServer, RawReply
from harness.tools.base import Tool, tool
from harness.tools.builtin.calculator import calculator
from tests.features.rig import OnlyForward, bed, ended, kernel_on, over, until
from tests.providers.wire import DONE, call, calls, delta, say, sse

CALCULATE: Script = [Say("Let me see."), Call("calculator", '{"expression": "2*(3+4)"}')]
ANSWER: Script = [Say("It "), Say("is "), Say("14.")]


class Plain:
    """All that a provider must be: it cannot stream."""

    model = "plain"

    def __init__(self, *answers: AssistantMessage) -> None:
        self.asked: list[ModelRequest] = []
        self._answers = list(answers)

    async def generate(self, request: ModelRequest) -> AssistantMessage:
        self.asked.append(request)
        if not self._answers:
            await asyncio.Event().wait()
        return self._answers.pop(0)

    async def aclose(self) -> None:
        pass


class Streaming(Plain):
    """Plays the items it was given, one list per request."""

    def __init__(self, *streams: Sequence[StreamItem]) -> None:
        super().__init__()
        self._streams = list(streams)
        self.closed = 0

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[StreamItem]]:
        self.asked.append(request)

        async def items() -> AsyncIterator[StreamItem]:
            for item in self._streams.pop(0):
                await asyncio.sleep(0)
                yield item

        try:
            yield items()
        finally:
            self.closed += 1


async def test_s01_a_provider_that_can_only_generate_runs_tools_and_can_be_canceled() -> None:
    asks = AssistantMessage((ToolCall("c1", "calculator", {"expression": "1+1"}, '{"expression": "1+1"}'),))
    provider = Plain(asks, AssistantMessage((Text("It is 2."),)))
    assert not isinstance(provider, StreamingProvider)
    async with kernel_on(provider, tools=[calculator]) as runtime:
        reporter = RecordingReporter()
        outcome = await runtime.run("s", "1+1?", reporter)
        assert isinstance(outcome, Started)
        assert outcome.task.result == "It is 2."
        assert "model:delta" not in reporter.kinds
        assert [event.text for event in reporter.events if isinstance(event, ModelEnded)] == ["", "It is 2."]

        outcome = await runtime.start("s", "and now?")
        assert isinstance(outcome, Started)
        await until(lambda: len(provider.asked) == 3)
        outcome.task.cancel()
        assert await ended(outcome.task) is TaskStatus.CANCELED


async def test_s01_with_and_without_streaming_a_conversation_is_the_same() -> None:
    def essence(log: Sequence[Message]) -> list[object]:
        return [(type(m).__name__, getattr(m, "text", ""), getattr(m, "content", "")) for m in log]

    seen: list[tuple[list[str], list[object], str]] = []
    for stream in (True, False):
        async with bed(CALCULATE, ANSWER, tools=[calculator], limits=Limits(stream=stream)) as rig:
            task, reporter = await rig.run()
            kinds = [kind for kind in reporter.kinds if kind != "model:delta"]
            seen.append((kinds, essence(await rig.log()), task.result))
            assert ("model:delta" in reporter.kinds) == stream
    assert seen[0] == seen[1]


# Streams that never complete: what was said, and what remains.
UNFINISHED: dict[str, Sequence[StreamItem]] = {
    "nothing at all": [],
    "text only": [TextDelta("half")],
    "usage last": [TextDelta("half"), UsageReport(Usage(1, 1))],
    "a call only": [ToolCallDelta(0, "calculator", '{"expression": "1"}')],
}


@pytest.mark.parametrize("case", UNFINISHED)
async def test_s02_a_stream_that_ends_without_completion_is_a_failure_and_runs_no_call(case: str) -> None:
    provider = Streaming(UNFINISHED[case])
    async with kernel_on(provider, tools=[calculator], limits=Limits(model_retries=0)) as runtime:
        reporter = OnlyForward()
        outcome = await runtime.run("s", "go", reporter)
        assert isinstance(outcome, Started)
        assert outcome.task.error is not None
        assert outcome.task.error.kind == "truncated"
        assert outcome.task.result == "".join(i.text for i in UNFINISHED[case] if isinstance(i, TextDelta))
        assert "tool:start" not in reporter.kinds
        assert provider.closed == 1


async def test_s02_completed_comes_once_and_last_with_the_whole_message() -> None:
    async with bed(CALCULATE) as rig:
        provider = OpenAIChatProvider(api_key="k", base_url=rig.server.base_url, model="m")
        async with provider.stream(ModelRequest("", [UserMessage("go")])) as items:
            seen = [item async for item in items]
        await provider.aclose()
    assert [isinstance(item, Completed) for item in seen] == [False] * (len(seen) - 1) + [True]
    last = seen[-1]
    assert isinstance(last, Completed)
    assert last.message.text == "".join(item.text for item in seen if isinstance(item, TextDelta)) == "Let me see."
    assert [(c.name, c.arguments) for c in last.message.tool_calls] == [("calculator", {"expression": "2*(3+4)"})]
    [report] = [item.usage for item in seen if isinstance(item, UsageReport)]
    assert last.message.usage == report


async def test_s03_the_figures_of_the_server_add_up_to_those_of_the_run() -> None:
    async with bed(CALCULATE, ANSWER, tools=[calculator]) as rig:
        task, reporter = await rig.run()
        assert task.end is not None
        per_turn = [event.usage for event in reporter.events if isinstance(event, ModelEnded)]
        assert [usage.output_tokens for usage in per_turn] == [2, 3], "what this server counts: its pieces"
        assert task.end.usage == per_turn[0] + per_turn[1]
        assert not task.end.usage.estimated
        assert [event.usage for event in reporter.events if isinstance(event, UsageReported)][-1] == task.end.usage


async def test_s03_a_reader_that_goes_away_stops_nobody() -> None:
    words = [Say(f"word {n} ") for n in range(500)]
    async with bed(words, ANSWER) as rig:
        task, reporter = await rig.start()
        async for event in task.events():
            if isinstance(event, ModelDelta):
                break
        assert await ended(task) is TaskStatus.COMPLETED
        assert len(reporter.text) == len(task.result) > 4_000
        await over(rig.server.requests[0])
        assert not rig.server.requests[0].closed_by_client


A, B = '{"n": "a"}', '{"n": "b"}'
# How servers send calls: the chunks, and what the tool is called with.
SHAPES: dict[str, tuple[list[object], list[str]]] = {
    "interleaved by index": (
        [
            calls(call(0, "x", "note", '{"n"'), call(1, "y", "note", '{"n": ')),
            calls(call(1, args='"b"}')),
            calls(call(0, args=': "a"}')),
        ],
        ["a", "b"],
    ),
    "from index 7": ([calls(call(7, "x", "note", A))], ["a"]),
    "without index": ([calls(call(None, "x", "note", A)), calls(call(None, "y", "note", B))], ["a", "b"]),
    "without id": ([calls(call(0, None, "note", A)), calls(call(1, None, "note", B))], ["a", "b"]),
    "the name again and again": ([calls(call(0, "x", "note", c)) for c in ('{"n": ', '"a"', "}")], ["a"]),
    "an object": ([calls(call(0, "x", "note", {"n": "a"}))], ["a"]),
    "no arguments": ([calls(call(0, "x", "note", ""))], ["nothing"]),
    "null": ([calls(call(0, "x", "note", "null"))], ["nothing"]),
    "the old way": ([delta(function_call={"name": "note", "arguments": A})], ["a"]),
    "stop as the reason": ([calls(call(0, "x", "note", A), reason="stop")], ["a"]),
}


def noting(noted: list[str]) -> Tool:
    @tool
    async def note(n: str = "nothing") -> str:
        """Note something."""
        noted.append(n)
        return f"noted {n}"

    return note


async def answered(server: RawModelServer, noted: list[str]) -> tuple[Task, RecordingReporter]:
    provider = OpenAIChatProvider(api_key="k", base_url=server.base_url, model="m")
    async with kernel_on(provider, tools=[noting(noted)]) as runtime:
        reporter = RecordingReporter()
        outcome = await runtime.run("s", "go", reporter)
        assert isinstance(outcome, Started)
        return outcome.task, reporter


@pytest.mark.parametrize("shape", SHAPES)
async def test_s04_calls_reach_the_tool_however_the_server_sends_them(shape: str) -> None:
    chunks, expected = SHAPES[shape]
    noted: list[str] = []
    async with RawModelServer(RawReply(sse(say("Done.", "stop"), DONE))) as server:
        server.replies.append(RawReply(sse(*chunks, DONE), "lines"))
        task, _ = await answered(server, noted)
        assert (task.result, noted) == ("Done.", expected)
        sent = server.bodies[1]["messages"]
        results = [message["content"] for message in sent if message["role"] == "tool"]
        assert results == [f"noted {n}" for n in expected]
        ids = [entry["id"] for message in sent for entry in message.get("tool_calls", [])]
        assert ids == [message["tool_call_id"] for message in sent if message["role"] == "tool"]


@pytest.mark.parametrize("arguments", ['{"n": "a', "[1]", '"a"', '{"n": NaN}', '{"n": "a"} {"n": "b"}', "{'n': 1}"])
async def test_s04_what_is_not_one_json_object_is_told_to_the_model_and_never_runs(arguments: str) -> None:
    noted: list[str] = []
    async with RawModelServer(RawReply(sse(say("I see.", "stop"), DONE))) as server:
        server.replies.append(RawReply(sse(calls(call(0, "x", "note", arguments)), delta("tool_calls"), DONE)))
        task, reporter = await answered(server, noted)
        assert (task.result, noted) == ("I see.", [])
        [end] = [event for event in reporter.events if isinstance(event, ToolEnded)]
        assert end.is_error
        assert "not one JSON object" in end.result


async def test_s05_text_shows_while_it_is_written_and_the_session_has_it_whole() -> None:
    async with bed([Say("first "), Say("second", 0.05), Say(" third", 0.05)]) as rig:
        task, reporter = await rig.start()
        await until(lambda: reporter.text == "first ")
        assert rig.server.requests[0].finished_at is None, "the model is still at it"
        assert await rig.log() == (await rig.log())[:1], "and nothing of it is kept yet"
        await ended(task)
        [said] = [message for message in await rig.log() if isinstance(message, AssistantMessage)]
        assert (said.text, said.state) == ("first second third", "complete")
