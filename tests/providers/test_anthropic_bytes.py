"""Bytes through a real loopback server and the real client, at three chunkings: every row must come out the same."""

import gzip
from collections.abc import AsyncIterator
from typing import get_args

import pytest

from harness.errors import ProviderError
from harness.messages import Reasoning, Usage, UserMessage
from harness.providers.anthropic import AnthropicProvider
from harness.providers.base import Completed, ModelRequest, ReasoningDelta, TextDelta, UsageReport
from harness.providers.request_parts import ANTHROPIC_THINKING
from harness.testing.raw_model_server import Chunking, RawModelServer, RawReply
from tests.providers.anthropic_cases import (
    ALL,
    STOP,
    args,
    begin,
    end,
    named,
    said,
    sign,
    start,
    text,
    think,
    tool,
    whole,
)
from tests.providers.wire import Bad, Good

ASK = ModelRequest("", [UserMessage("x")])


@pytest.fixture
async def server() -> AsyncIterator[RawModelServer]:
    async with RawModelServer() as server:
        yield server


@pytest.fixture
async def provider(server: RawModelServer) -> AsyncIterator[AnthropicProvider]:
    provider = AnthropicProvider(api_key="test", base_url=server.base_url.removesuffix("/v1"), model="m")
    yield provider
    await provider.aclose()


async def outcome(provider: AnthropicProvider, *, ids: bool) -> Good | Bad:
    shown = reasoning = ""
    try:
        async with provider.stream(ASK) as items:
            async for item in items:
                match item:
                    case TextDelta():
                        shown += item.text
                    case ReasoningDelta():
                        reasoning += item.text
                    case Completed(message=message):
                        good = Good.of(message, ids=ids)
                        assert (shown, reasoning) == (good.text, good.reasoning), "shown is kept"
                        return good
                    case _:
                        pass
    except ProviderError as error:
        return Bad(error.kind, shown)
    raise AssertionError("the stream ended without a word")


@pytest.mark.parametrize("name", ALL)
async def test_row_at_every_chunking(server: RawModelServer, provider: AnthropicProvider, name: str) -> None:
    body, expected = ALL[name]
    for chunking in get_args(Chunking):
        server.reply = RawReply(body, chunking)
        got = await outcome(provider, ids=isinstance(expected, Good) and expected.ids is not None)
        assert got == expected, chunking


@pytest.mark.parametrize(
    "name",
    [
        "whole-json",
        "whole-json-with-thinking-and-calls",
        "whole-json-error",
        "W8-overloaded",
        "W35-interleaved",
        "W7-html",
    ],
)
async def test_generate_reads_by_the_same_rules(server: RawModelServer, provider: AnthropicProvider, name: str) -> None:
    body, expected = ALL[name]
    server.reply = RawReply(body)
    if isinstance(expected, Bad):
        with pytest.raises(ProviderError) as caught:
            await provider.generate(ASK)
        assert caught.value.kind == expected.kind
    else:
        assert Good.of(await provider.generate(ASK), ids=expected.ids is not None) == expected
    assert server.bodies[0]["stream"] is False


async def test_a_reset_after_some_text_is_a_connection_error(
    server: RawModelServer, provider: AnthropicProvider
) -> None:
    server.reply = RawReply(named(start(), begin(0, "text", text=""), text("Hi")), reset=True)
    assert await outcome(provider, ids=False) == Bad("connection", "Hi")


async def test_a_compressed_body_is_read_all_the_same(server: RawModelServer, provider: AnthropicProvider) -> None:
    headers = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
    server.reply = RawReply(gzip.compress(named(start(), *said("Hi"), end(), STOP)), headers=headers)
    assert await outcome(provider, ids=False) == Good("Hi")


USAGE = {
    "the-output-grows": (
        [start(input_tokens=5, output_tokens=1), end(usage={"output_tokens": 7})],
        Usage(5, 7),
    ),
    "the-cache-counts-as-input": (
        [
            start(input_tokens=5, cache_creation_input_tokens=20, cache_read_input_tokens=300, output_tokens=1),
            end(usage={"output_tokens": 7}),
        ],
        Usage(325, 7),
    ),
    "all-in-the-end": (
        [start(input_tokens=0, output_tokens=0), end(usage={"input_tokens": 9, "output_tokens": 7})],
        Usage(9, 7),
    ),
    "repeated-never-summed": (
        [
            start(input_tokens=5, cache_read_input_tokens=4, output_tokens=1),
            end(None, usage={"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 3}),
            end(usage={"input_tokens": 5, "cache_read_input_tokens": 4, "output_tokens": 7}),
        ],
        Usage(9, 7),
    ),
    "null-says-nothing": (
        [
            start(input_tokens=5, cache_creation_input_tokens=None, output_tokens=None),
            end(usage={"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 7}),
            end(usage=None),
        ],
        Usage(5, 7),
    ),
    "wrong-types-say-nothing": (
        [start(input_tokens="5", output_tokens=[1]), end(usage={"input_tokens": 5.0, "output_tokens": 7})],
        Usage(5, 7),
    ),
    "not-a-number-says-nothing": (
        [
            start(input_tokens=5),
            'data: {"type": "message_delta", "usage": {"input_tokens": NaN, "output_tokens": Infinity}}\n\n',
            end(usage={"output_tokens": 7}),
        ],
        Usage(5, 7),
    ),
}


@pytest.mark.parametrize("name", USAGE)
async def test_the_last_figures_count(server: RawModelServer, provider: AnthropicProvider, name: str) -> None:
    (first, *rest), expected = USAGE[name]
    server.reply = RawReply(named(first, *said("Hi"), *rest, STOP))
    async with provider.stream(ASK) as items:
        got = [item async for item in items]
    assert isinstance(got[-1], Completed)
    assert got[-1].message.usage == expected
    reports = [item.usage for item in got if isinstance(item, UsageReport)]
    assert reports[-1] == expected
    assert len(set(reports)) == len(reports), "only news are reported"


async def test_missing_usage_is_estimated(server: RawModelServer, provider: AnthropicProvider) -> None:
    server.reply = RawReply(named(text("four letters " * 4), end(usage=None), STOP))
    usage = (await provider.generate(ASK)).usage
    assert usage.estimated
    assert usage.output_tokens == 13


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("end_turn", "end_turn"),
        ("stop_sequence", "stop_sequence"),
        ("pause_turn", "pause_turn"),
        ("tool_use", "tool_use"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        (None, ""),
        (3, ""),
    ],
)
async def test_the_reason_is_kept(server: RawModelServer, provider: AnthropicProvider, sent: object, kept: str) -> None:
    server.reply = RawReply(named(start(), *said("Hi"), end(sent), end(None), STOP))
    assert (await provider.generate(ASK)).finish_reason == kept


async def test_a_refusal_is_explained(server: RawModelServer, provider: AnthropicProvider) -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "This is about germs."}
    server.reply = RawReply(named(start(), end("refusal", stop_details=details), STOP))
    with pytest.raises(ProviderError, match=r"declined to answer\. This is about germs\."):
        await provider.generate(ASK)


async def test_raw_arguments_of_a_broken_call_are_kept(server: RawModelServer, provider: AnthropicProvider) -> None:
    server.reply = RawReply(named(start(), tool(0, "x", "f"), args('{"path": "a'), end("max_tokens"), STOP))
    message = await provider.generate(ASK)
    (made,) = message.tool_calls
    assert (made.is_malformed, made.raw_arguments, message.finish_reason) == (True, '{"path": "a', "length")


SIGNED = {"type": "thinking", "thinking": "hm, so", "signature": "c2ln"}
HIDDEN = {"type": "redacted_thinking", "data": "b3BhcXVl"}
LATER = {"type": "thinking", "thinking": "", "signature": "only signed"}
THOUGHTS = {
    "streamed": named(
        start(),
        begin(0, "thinking", thinking="", signature=""),
        think("hm,"),
        think(" so"),
        sign("c2ln"),
        begin(1, "redacted_thinking", data="b3BhcXVl"),
        begin(2, "thinking", thinking="", signature=""),
        sign("only signed", 2),
        begin(3, "text", text=""),
        text("Hi", 3),
        end(),
        STOP,
    ),
    "whole": whole(SIGNED, HIDDEN, LATER, {"type": "text", "text": "Hi"}),
}


@pytest.mark.parametrize("name", THOUGHTS)
async def test_thinking_is_kept_block_by_block(server: RawModelServer, provider: AnthropicProvider, name: str) -> None:
    server.reply = RawReply(THOUGHTS[name])
    thought, _ = (await provider.generate(ASK)).parts
    assert thought == Reasoning("hm, so", ANTHROPIC_THINKING, (SIGNED, HIDDEN, LATER))


async def test_thinking_without_a_signature_is_kept_without_one(
    server: RawModelServer, provider: AnthropicProvider
) -> None:
    server.reply = RawReply(
        named(start(), begin(0, "thinking"), think("hm"), begin(1, "thinking", thinking=""), text("Hi", 2), STOP)
    )
    thought, _ = (await provider.generate(ASK)).parts
    assert thought == Reasoning("hm", ANTHROPIC_THINKING, ({"type": "thinking", "thinking": "hm"},))
