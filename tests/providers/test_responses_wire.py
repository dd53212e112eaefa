"""Bytes through a real loopback server and the real client, at three chunkings: every row must come out the same."""

import gzip
from collections.abc import AsyncIterator
from typing import get_args

import pytest

from harness.errors import ProviderError
from harness.messages import Reasoning, ToolCall, Usage, UserMessage
from harness.providers.base import Completed, ModelRequest, ReasoningDelta, TextDelta, ToolCallDelta, UsageReport
from harness.providers.openai_responses import OpenAIResponsesProvider
from harness.testing.raw_model_server import Chunking, RawModelServer, RawReply
from tests.providers.responses_cases import ALL
from tests.providers.responses_wire import CREATED, done, end, ev, fcall, incomplete, message, say, thought
from tests.providers.wire import Bad, Good, sse

ASK = ModelRequest("", [UserMessage("x")])


@pytest.fixture
async def server() -> AsyncIterator[RawModelServer]:
    async with RawModelServer() as server:
        yield server


@pytest.fixture
async def provider(server: RawModelServer) -> AsyncIterator[OpenAIResponsesProvider]:
    provider = OpenAIResponsesProvider(api_key="test", base_url=server.base_url, model="m")
    yield provider
    await provider.aclose()


async def outcome(provider: OpenAIResponsesProvider, *, ids: bool) -> Good | Bad:
    text = reasoning = ""
    try:
        async with provider.stream(ASK) as items:
            async for item in items:
                match item:
                    case TextDelta():
                        text += item.text
                    case ReasoningDelta():
                        reasoning += item.text
                    case Completed(message=message):
                        good = Good.of(message, ids=ids)
                        assert (text, reasoning) == (good.text + good.refusal, good.reasoning), "shown is kept"
                        return good
                    case _:
                        pass
    except ProviderError as error:
        return Bad(error.kind, text)
    raise AssertionError("the stream ended without a word")


@pytest.mark.parametrize("name", ALL)
async def test_row_at_every_chunking(server: RawModelServer, provider: OpenAIResponsesProvider, name: str) -> None:
    body, expected = ALL[name]
    for chunking in get_args(Chunking):
        server.reply = RawReply(body, chunking)
        got = await outcome(provider, ids=isinstance(expected, Good) and expected.ids is not None)
        assert got == expected, chunking


@pytest.mark.parametrize(
    "name",
    [
        "framing-whole-json",
        "framing-whole-json-with-calls",
        "framing-whole-json-unfinished",
        "framing-whole-json-failed",
        "framing-W7-html",
        "framing-W5-eof-without-the-end",
        "tools-W35-interleaved",
    ],
)
async def test_generate_reads_by_the_same_rules(
    server: RawModelServer, provider: OpenAIResponsesProvider, name: str
) -> None:
    body, expected = ALL[name]
    server.reply = RawReply(body)
    if isinstance(expected, Bad):
        with pytest.raises(ProviderError) as caught:
            await provider.generate(ASK)
        assert caught.value.kind == expected.kind
    else:
        message = await provider.generate(ASK)
        assert Good.of(message, ids=expected.ids is not None) == expected
    assert server.bodies[0]["stream"] is False


async def test_a_reset_after_some_text_is_a_connection_error(
    server: RawModelServer, provider: OpenAIResponsesProvider
) -> None:
    server.reply = RawReply(sse(CREATED, say("Hi")), reset=True)
    assert await outcome(provider, ids=False) == Bad("connection", "Hi")


async def test_a_compressed_body_is_read_all_the_same(
    server: RawModelServer, provider: OpenAIResponsesProvider
) -> None:
    headers = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
    server.reply = RawReply(gzip.compress(sse(say("Hi"), end())), headers=headers)
    assert await outcome(provider, ids=False) == Good("Hi")


async def test_the_last_usage_wins(server: RawModelServer, provider: OpenAIResponsesProvider) -> None:
    early = {"status": "in_progress", "usage": {"input_tokens": 3, "output_tokens": None}}
    server.reply = RawReply(
        sse(
            CREATED,
            ev("in_progress", response=early),
            say("Hi"),
            ev("in_progress", response={"usage": None}),
            end(message("Hi"), usage={"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}),
        )
    )
    async with provider.stream(ASK) as items:
        got = [item async for item in items]
    assert [item.usage for item in got if isinstance(item, UsageReport)] == [Usage(3, 0), Usage(3, 2)]
    assert isinstance(got[-1], Completed)
    assert got[-1].message.usage == Usage(3, 2)


async def test_missing_usage_is_estimated(server: RawModelServer, provider: OpenAIResponsesProvider) -> None:
    server.reply = RawReply(sse(say("four letters " * 4), end()))
    usage = (await provider.generate(ASK)).usage
    assert (usage.estimated, usage.output_tokens) == (True, 13)


REASONS = [
    (sse(say("Hi"), end()), "stop"),
    (sse(done(fcall()), end()), "tool_calls"),
    (sse(say("Hi"), incomplete("max_output_tokens")), "length"),
    (sse(say("Hi"), incomplete("max_tokens")), "length"),
    (sse(done(fcall()), incomplete("max_output_tokens")), "length"),
    (sse(say("Hi"), incomplete("max_messages")), "max_messages"),
    (sse(say("Hi"), incomplete(None)), "incomplete"),
]


@pytest.mark.parametrize(("body", "reason"), REASONS)
async def test_the_reason_is_said_in_common_words(
    server: RawModelServer, provider: OpenAIResponsesProvider, body: bytes, reason: str
) -> None:
    server.reply = RawReply(body)
    assert (await provider.generate(ASK)).finish_reason == reason


async def test_raw_arguments_of_a_cut_call_are_kept(server: RawModelServer, provider: OpenAIResponsesProvider) -> None:
    server.reply = RawReply(sse(incomplete("max_output_tokens", fcall(args='{"path": "a'))))
    (made,) = (await provider.generate(ASK)).tool_calls
    assert (made.is_malformed, made.raw_arguments) == (True, '{"path": "a')


async def test_reasoning_items_are_kept_as_they_were_finished(
    server: RawModelServer, provider: OpenAIResponsesProvider
) -> None:
    unfinished, finished = thought(sealed="part"), thought("hm", sealed="whole", status="completed", new=[1])
    for body in (
        sse(ev("output_item.added", output_index=0, item=unfinished), done(finished), done(fcall(), 1), end()),
        sse(done(finished), end(thought("hm", sealed="other"), fcall())),
        sse(end(finished, fcall())),
    ):
        server.reply = RawReply(body)
        reasoning, call = (await provider.generate(ASK)).parts
        assert reasoning == Reasoning("hm", "responses:reasoning", (finished,))
        assert isinstance(call, ToolCall)


async def test_a_call_is_announced_once_and_its_arguments_shown_as_they_come(
    server: RawModelServer, provider: OpenAIResponsesProvider
) -> None:
    body, _ = ALL["tools-as-the-api-writes-it"]
    server.reply = RawReply(body)
    async with provider.stream(ASK) as items:
        shown = [item async for item in items if isinstance(item, ToolCallDelta)]
    assert shown == [ToolCallDelta(0, "f", ""), ToolCallDelta(0, "", '{"a"'), ToolCallDelta(0, "", ": 1}")]
    lost, _ = ALL["tools-lost-pieces"]
    server.reply = RawReply(lost)
    async with provider.stream(ASK) as items:
        shown = [item async for item in items if isinstance(item, ToolCallDelta)]
    assert shown == [ToolCallDelta(0, "f", ""), ToolCallDelta(0, "", '{"a"'), ToolCallDelta(0, "", ": 1}")]


async def test_an_error_says_what_went_wrong(server: RawModelServer, provider: OpenAIResponsesProvider) -> None:
    server.reply = RawReply(sse({"type": "error", "code": None, "message": "no room", "param": None}))
    with pytest.raises(ProviderError) as caught:
        await provider.generate(ASK)
    assert str(caught.value) == "The model server reported an error: no room"
