"""Bytes through a real loopback server and the real client, at three chunkings: every row must come out the same."""

import gzip
from collections.abc import AsyncIterator
from typing import get_args

import pytest

from harness.errors import ProviderError
from harness.messages import UserMessage
from harness.providers.base import Completed, ModelRequest, ReasoningDelta, TextDelta, UsageReport
from harness.providers.openai_chat import OpenAIChatProvider
from harness.testing.raw_model_server import Chunking, RawModelServer, RawReply
from tests.providers.cases import ALL
from tests.providers.wire import DONE, Bad, Good, call, calls, delta, say, sse, usage

ASK = ModelRequest("", [UserMessage("x")])


@pytest.fixture
async def server() -> AsyncIterator[RawModelServer]:
    async with RawModelServer() as server:
        yield server


@pytest.fixture
async def provider(server: RawModelServer) -> AsyncIterator[OpenAIChatProvider]:
    provider = OpenAIChatProvider(api_key="test", base_url=server.base_url, model="m")
    yield provider
    await provider.aclose()


async def outcome(provider: OpenAIChatProvider, *, ids: bool) -> Good | Bad:
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
async def test_row_at_every_chunking(server: RawModelServer, provider: OpenAIChatProvider, name: str) -> None:
    body, expected = ALL[name]
    for chunking in get_args(Chunking):
        server.reply = RawReply(body, chunking)
        got = await outcome(provider, ids=isinstance(expected, Good) and expected.ids is not None)
        assert got == expected, chunking


@pytest.mark.parametrize("name", ["W8-error-object", "whole-json", "W35-interleaved", "W7-html", "W5-eof-no-reason"])
async def test_generate_reads_by_the_same_rules(
    server: RawModelServer, provider: OpenAIChatProvider, name: str
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
    assert "stream_options" not in server.bodies[0]
    assert server.bodies[0]["stream"] is False


async def test_a_reset_after_some_text_is_a_connection_error(
    server: RawModelServer, provider: OpenAIChatProvider
) -> None:
    server.reply = RawReply(sse(say("Hi")), reset=True)
    assert await outcome(provider, ids=False) == Bad("connection", "Hi")


async def test_the_last_usage_wins(server: RawModelServer, provider: OpenAIChatProvider) -> None:
    server.reply = RawReply(
        sse(
            say("H") | {"usage": {"prompt_tokens": 3, "completion_tokens": 1}},
            usage(3, 2),
            delta("stop"),
            usage(None, None),
            DONE,
        )
    )
    async with provider.stream(ASK) as items:
        got = [item async for item in items]
    assert [item.usage.output_tokens for item in got if isinstance(item, UsageReport)] == [1, 2]
    assert isinstance(got[-1], Completed)
    assert (got[-1].message.usage.input_tokens, got[-1].message.usage.estimated) == (3, False)


async def test_missing_usage_is_estimated(server: RawModelServer, provider: OpenAIChatProvider) -> None:
    server.reply = RawReply(sse(say("four letters " * 4), delta("stop"), DONE))
    message = await provider.generate(ASK)
    assert message.usage.estimated
    assert message.usage.output_tokens == 13


async def test_opaque_data_of_a_call_is_kept(server: RawModelServer, provider: OpenAIChatProvider) -> None:
    signature = {"google": {"thought_signature": "abc"}}
    server.reply = RawReply(sse(calls(call(0, "x", "f", "{}") | {"extra_content": signature}), DONE))
    (made,) = (await provider.generate(ASK)).tool_calls
    assert made.provider_data == {"extra_content": signature}


async def test_raw_arguments_of_a_broken_call_are_kept(server: RawModelServer, provider: OpenAIChatProvider) -> None:
    server.reply = RawReply(sse(calls(call(0, "x", "f", '{"path": "a')), delta("length"), DONE))
    message = await provider.generate(ASK)
    (made,) = message.tool_calls
    assert (made.is_malformed, made.raw_arguments, message.finish_reason) == (True, '{"path": "a', "length")


async def test_a_compressed_body_is_read_all_the_same(server: RawModelServer, provider: OpenAIChatProvider) -> None:
    headers = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
    server.reply = RawReply(gzip.compress(sse(say("Hi"), delta("stop"), DONE)), headers=headers)
    assert await outcome(provider, ids=False) == Good("Hi")
