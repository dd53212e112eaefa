"""The provider against local servers: what it sends, how failures are told apart, and that leaving closes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import openai
import orjson
import pytest

from harness.errors import ErrorKind, ProviderError
from harness.messages import AssistantMessage, Reasoning, Text, ToolResult, UserMessage
from harness.providers.base import Completed, ModelProvider, ModelRequest, StreamingProvider, TextDelta, ToolSpec
from harness.providers.openai_chat import OpenAIChatProvider
from harness.providers.profiles import ProviderProfile
from harness.providers.script import Say, Script
from harness.providers.transport import RESPONSE, ModelHttpClient
from harness.testing.model_server import ScriptedModelServer
from harness.testing.raw_model_server import RawModelServer, RawReply
from harness.testing.wire import WireRequest
from tests.providers.wire import DONE, delta, say, sse, until

KEY = "sk-secret-0123456789"
ASK = ModelRequest("Be brief.", [UserMessage("hello")])
GOOD = RawReply(sse(say("Hi"), delta("stop"), DONE))
TOOL = ToolSpec("f", "Does f.", {"type": "object", "properties": {}})


def ask(text: str) -> ModelRequest:
    return ModelRequest("", [UserMessage(text)], [TOOL])


@asynccontextmanager
async def connected(base_url: str, profile: ProviderProfile | None = None) -> AsyncIterator[OpenAIChatProvider]:
    provider = OpenAIChatProvider(api_key=KEY, base_url=base_url, model="m", profile=profile)
    try:
        yield provider
    finally:
        await provider.aclose()


@pytest.fixture
async def raw() -> AsyncIterator[RawModelServer]:
    async with RawModelServer(GOOD) as server:
        yield server


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedModelServer]:
    async with ScriptedModelServer(speed=50) as server:
        yield server


def failure(status: int, error: object, **headers: str) -> RawReply:
    return RawReply(orjson.dumps(error), status=status, headers={"Content-Type": "application/json", **headers})


async def caught(provider: OpenAIChatProvider, request: ModelRequest = ASK) -> ProviderError:
    with pytest.raises(ProviderError) as error:
        async with provider.stream(request) as items:
            _ = [item async for item in items]
    return error.value


async def test_it_is_what_the_engine_asks_for(raw: RawModelServer) -> None:
    async with connected(raw.base_url) as provider:
        model: ModelProvider = provider
        assert isinstance(model, StreamingProvider)
        assert model.model == "m"
        await provider.aclose()


async def test_the_least_possible_is_sent(raw: RawModelServer) -> None:
    async with connected(raw.base_url) as provider:
        await provider.generate(ASK)
        async with provider.stream(ask("hello")) as items:
            assert isinstance([item async for item in items][-1], Completed)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    assert raw.bodies[0] == {"model": "m", "messages": messages, "stream": False}
    assert set(raw.bodies[1]) == {"model", "messages", "stream", "stream_options", "tools"}
    assert raw.bodies[1]["tools"][0]["function"]["name"] == "f"


async def test_the_profile_adds_what_a_server_needs(raw: RawModelServer) -> None:
    profile = ProviderProfile(
        include_usage=False, max_tokens=9, parallel_tool_calls=False, system_role="developer", extra_body={"x": [1]}
    )
    request = ModelRequest("s", [UserMessage("u")], [TOOL])
    async with connected(raw.base_url, profile) as provider, provider.stream(request) as items:
        _ = [item async for item in items]
    body = dict(raw.bodies[0])
    assert (body["max_tokens"], body["parallel_tool_calls"], body["x"]) == (9, False, [1])
    assert body["messages"][0]["role"] == "developer"
    assert "stream_options" not in body


REFUSALS = [
    {"error": {"message": "Unknown parameter: 'stream_options'.", "param": "stream_options"}},
    {"error": {"message": "bad", "param": "stream_options.include_usage"}},
    {"error": "stream_options is not supported"},
]


@pytest.mark.parametrize("error", REFUSALS)
async def test_a_refused_parameter_is_left_out_from_then_on(raw: RawModelServer, error: object) -> None:
    raw.replies.append(failure(400, error))
    async with connected(raw.base_url) as provider:
        for _ in range(2):
            async with provider.stream(ASK) as items:
                assert isinstance([item async for item in items][-1], Completed)
    assert ["stream_options" in body for body in raw.bodies] == [True, False, False]


async def test_a_400_about_something_else_is_not_tried_again(raw: RawModelServer) -> None:
    raw.reply = failure(400, {"error": {"message": "messages: too short"}})
    async with connected(raw.base_url) as provider:
        assert (await caught(provider)).kind == "bad_request"
    assert len(raw.bodies) == 1


STATUSES: list[tuple[int, object, ErrorKind]] = [
    (400, {"error": {"message": "no", "code": "context_length_exceeded"}}, "context_length"),
    (400, {"error": {"message": "This model's maximum context length is 8192 tokens."}}, "context_length"),
    (400, {"error": {"message": "blocked", "code": "content_filter"}}, "content_filter"),
    (400, {"error": {"message": "Invalid value"}}, "bad_request"),
    (401, {"error": {"message": "Incorrect API key provided"}}, "auth"),
    (402, {"error": {"message": "Insufficient Balance"}}, "auth"),
    (403, {"error": {"message": "no access"}}, "auth"),
    (404, {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}, "bad_request"),
    (408, {}, "timeout"),
    (413, {}, "context_length"),
    (422, {"detail": "bad field"}, "bad_request"),
    (429, {"error": {"message": "slow down"}}, "rate_limit"),
    (429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, "auth"),
    (500, {"error": {"message": "rate limit of the internal sort"}}, "overloaded"),
    (503, "no JSON object", "overloaded"),
    (504, {}, "timeout"),
    (529, {"error": {"type": "overloaded_error"}}, "overloaded"),
]


@pytest.mark.parametrize(("status", "body", "kind"), STATUSES)
async def test_each_status_is_one_kind(raw: RawModelServer, status: int, body: object, kind: ErrorKind) -> None:
    raw.reply = failure(status, body)
    async with connected(raw.base_url) as provider:
        error = await caught(provider)
    assert (error.kind, error.status) == (kind, status)
    assert len(raw.bodies) == 1, "the engine retries, not the client"


async def test_a_missing_model_says_what_to_check(raw: RawModelServer) -> None:
    raw.reply = failure(404, {"error": {"message": "The model `m` does not exist."}})
    async with connected(raw.base_url) as provider:
        message = str(await caught(provider))
    assert message == (
        "HTTP 404 for model 'm': The model `m` does not exist. "
        "Check OPENAI_MODEL and OPENAI_BASE_URL (which usually ends in /v1)."
    )


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after-ms": "250", "Retry-After": "7"}, 0.25),
        ({"Date": "Wed, 21 Oct 2026 07:28:00 GMT", "Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT"}, 30.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-1"}, None),
        ({}, None),
    ],
)
async def test_retry_after(raw: RawModelServer, headers: dict[str, str], seconds: float | None) -> None:
    raw.reply = failure(429, {}, **headers)
    async with connected(raw.base_url) as provider:
        assert (await caught(provider)).retry_after == seconds


async def test_the_key_never_shows(raw: RawModelServer) -> None:
    raw.replies = [
        failure(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}),
        failure(500, {"error": {"message": "Header was Bearer abcdefgh12345 or sk-proj-other-key-123456"}}),
    ]
    async with connected(raw.base_url) as provider:
        errors = [await caught(provider), await caught(provider)]
    for error in errors:
        assert "[key]" in str(error)
        for secret in (KEY, "abcdefgh12345", "other-key"):
            assert secret not in str(error)


async def test_nobody_listens() -> None:
    async with connected("http://127.0.0.1:1/v1") as provider:
        error = await caught(provider)
    assert error.kind == "connection"
    assert "127.0.0.1" in str(error)


async def test_a_request_that_cannot_be_made_is_an_error_too(raw: RawModelServer) -> None:
    provider = OpenAIChatProvider(api_key="two\nlines", base_url=raw.base_url, model="m")
    assert (await caught(provider)).kind in {"bad_request", "connection"}
    await provider.aclose()


async def test_lone_surrogates_in_the_history_do_not_stop_it(raw: RawModelServer) -> None:
    async with connected(raw.base_url) as provider:
        await provider.generate(ModelRequest("", [UserMessage("a\ud83db"), AssistantMessage((Text("ok"),))]))
    assert raw.bodies[0]["messages"][0]["content"] == "a\ufffdb"


async def test_one_provider_serves_many_runs_at_once(scripted: ScriptedModelServer) -> None:
    async def answer(provider: OpenAIChatProvider, text: str) -> str:
        async with provider.stream(ask(text)) as items:
            return "".join([item.text async for item in items if isinstance(item, TextDelta)])

    async with connected(scripted.base_url) as provider:
        answers = await asyncio.gather(*[answer(provider, f"number {n}") for n in range(20)])
    assert all(f"number {n}" in text for n, text in enumerate(answers))


async def test_a_finished_exchange_leaves_its_connection_for_the_next() -> None:
    peers: set[object] = set()

    def answer(request: WireRequest) -> Script:
        return [Say("Hi")]

    async with ScriptedModelServer(answer=answer) as server, connected(server.base_url) as provider:
        for _ in range(3):
            async with provider.stream(ASK) as items:
                _ = [item async for item in items]
        peers = {record.peer for record in server.requests}
    assert len(server.requests) == 3
    assert len(peers) == 1


@pytest.mark.parametrize("word", ["slow", "hang", "long"], ids=["before-first-delta", "silent", "mid-text"])
async def test_cancel_closes_the_exchange(word: str) -> None:
    async with ScriptedModelServer(speed=4) as server, connected(server.base_url) as provider:
        seen: list[object] = []

        async def run() -> None:
            async with provider.stream(ask(word)) as items:
                async for item in items:
                    seen.append(item)

        task = asyncio.create_task(run())
        await until(lambda: len(seen) > 2 or (word == "slow" and bool(server.requests)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(1):
            await server.requests[0].done.wait()
        assert server.requests[0].closed_by_client


async def test_cancel_while_waiting_for_headers_closes_the_connection() -> None:
    closed = asyncio.Event()
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        while await reader.read(1024):
            pass
        closed.set()
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener, connected(f"http://127.0.0.1:{port}/v1") as provider:
        for call in (caught(provider), provider.generate(ASK)):
            asked.clear()
            closed.clear()
            task = asyncio.create_task(call)
            await asked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(1):
                await closed.wait()


async def test_leaving_early_closes_the_exchange(scripted: ScriptedModelServer) -> None:
    scripted.speed = 2
    async with connected(scripted.base_url) as provider:
        async with provider.stream(ask("long")) as items:
            async for item in items:
                if isinstance(item, TextDelta):
                    break
        async with asyncio.timeout(1):
            await scripted.requests[0].done.wait()
        assert scripted.requests[0].closed_by_client


async def test_calls_and_results_make_a_history_that_a_strict_server_takes(scripted: ScriptedModelServer) -> None:
    tools = [ToolSpec("calculator", "", {"type": "object"})]
    user = UserMessage("calc 2*(3+4)")
    async with connected(scripted.base_url) as provider:
        first = await provider.generate(ModelRequest("", [user], tools))
        (call,) = first.tool_calls
        assert call.arguments == {"expression": "2*(3+4)"}
        second = await provider.generate(ModelRequest("", [user, first, ToolResult(call.id, call.name, "14")], tools))
    assert "2*(3+4) = 14" in second.text
    assert scripted.requests[1].messages[1]["tool_calls"][0]["id"] == call.provider_id


async def test_thinking_comes_with_its_field(raw: RawModelServer) -> None:
    raw.reply = RawReply(sse(delta(reasoning="hm"), say("Hi"), delta("stop")))
    async with connected(raw.base_url) as provider:
        message = await provider.generate(ASK)
    assert message.parts == (Reasoning("hm", "reasoning"), Text("Hi"))


async def test_the_sdk_still_gives_what_this_provider_stands_on(raw: RawModelServer) -> None:
    """The pin: an upgrade of the SDK that takes the raw body, the headers or the typed error away fails here."""
    http_client = ModelHttpClient(httpx2.Timeout(None))
    client = openai.AsyncOpenAI(api_key="x", base_url=raw.base_url, max_retries=0, http_client=http_client)
    create = client.chat.completions.with_streaming_response.create
    async with client:
        async with create(model="m", messages=[{"role": "user", "content": "x"}], stream=True) as response:
            assert await response.http_response.extensions[RESPONSE].content.read() == GOOD.body
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
        raw.reply = failure(400, {"error": {"message": "no", "code": "c", "param": "p"}}, **{"Retry-After": "3"})
        with pytest.raises(openai.BadRequestError) as caught:
            async with create(model="m", messages=[{"role": "user", "content": "x"}], stream=True):
                pass
    error = caught.value
    assert error.body == {"message": "no", "code": "c", "param": "p"}
    assert (error.status_code, error.response.headers["retry-after"]) == (400, "3")
