"""The provider against local servers: what it sends, how failures are told apart, and that leaving closes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import openai
import orjson
import pytest

from harness.errors import ErrorKind, ProviderError
from harness.messages import AssistantMessage, Message, Reasoning, Text, ToolResult, UserMessage
from harness.providers.base import Completed, ModelProvider, ModelRequest, StreamingProvider, TextDelta, ToolSpec
from harness.providers.openai_responses import OpenAIResponsesProvider
from harness.providers.profiles import ProviderProfile
from harness.providers.request_parts import RESPONSES_REASONING
from harness.providers.script import Call, Cut, Fail, Say, Script, Think
from harness.providers.transport import RESPONSE, ModelHttpClient
from harness.testing.model_server import ScriptedModelServer
from harness.testing.raw_model_server import RawModelServer, RawReply
from harness.testing.wire import WireRequest
from tests.providers.responses_wire import end, say
from tests.providers.wire import sse, until

KEY = "sk-secret-0123456789"
ASK = ModelRequest("Be brief.", [UserMessage("hello")])
GOOD = RawReply(sse(say("Hi"), end()))
TOOL = ToolSpec("f", "Does f.", {"type": "object", "properties": {}})
SEALED = ["reasoning.encrypted_content"]


def ask(text: str) -> ModelRequest:
    return ModelRequest("", [UserMessage(text)], [TOOL])


@asynccontextmanager
async def connected(base_url: str, profile: ProviderProfile | None = None) -> AsyncIterator[OpenAIResponsesProvider]:
    provider = OpenAIResponsesProvider(api_key=KEY, base_url=base_url, model="m", profile=profile)
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


async def caught(provider: OpenAIResponsesProvider, request: ModelRequest = ASK) -> ProviderError:
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


async def test_the_whole_conversation_is_sent_and_nothing_is_to_be_kept(raw: RawModelServer) -> None:
    async with connected(raw.base_url) as provider:
        await provider.generate(ASK)
        async with provider.stream(ask("hello")) as items:
            assert isinstance([item async for item in items][-1], Completed)
    assert raw.bodies[0] == {
        "model": "m",
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": "hello"}],
        "stream": False,
        "store": False,
        "include": SEALED,
    }
    assert raw.bodies[1] == {
        "model": "m",
        "input": [{"role": "user", "content": "hello"}],
        "tools": [
            {"type": "function", "name": "f", "description": "Does f.", "parameters": TOOL.parameters, "strict": False}
        ],
        "stream": True,
        "store": False,
        "include": SEALED,
    }


async def test_the_profile_adds_what_a_server_needs(raw: RawModelServer) -> None:
    profile = ProviderProfile(max_tokens=99, parallel_tool_calls=False, extra_body={"reasoning": {"effort": "low"}})
    async with connected(raw.base_url, profile) as provider:
        await provider.generate(ModelRequest("", [UserMessage("u")], [TOOL]))
        await provider.generate(ModelRequest("", [UserMessage("u")]))
    with_tools, without = raw.bodies
    assert (with_tools["max_output_tokens"], with_tools["reasoning"]) == (99, {"effort": "low"})
    assert with_tools["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in without


REFUSALS = [
    ("include", {"error": {"message": "Encrypted content is not supported with this model.", "param": "include"}}),
    ("store", {"error": {"message": "Unknown parameter: 'store'.", "code": "unknown_parameter"}}),
    ("max_output_tokens", {"detail": "max_output_tokens is not supported"}),
]


@pytest.mark.parametrize(("name", "error"), REFUSALS)
async def test_a_refused_parameter_is_left_out_from_then_on(raw: RawModelServer, name: str, error: object) -> None:
    raw.replies.append(failure(400, error))
    async with connected(raw.base_url, ProviderProfile(max_tokens=99)) as provider:
        for _ in range(2):
            async with provider.stream(ASK) as items:
                assert isinstance([item async for item in items][-1], Completed)
    assert [name in body for body in raw.bodies] == [True, False, False]
    left = {"include", "store", "max_output_tokens"} - {name}
    assert all(left <= set(body) for body in raw.bodies)


async def test_a_400_about_something_else_is_not_tried_again(raw: RawModelServer) -> None:
    raw.reply = failure(400, {"error": {"message": "No tool output found for function call c.", "param": "input"}})
    async with connected(raw.base_url) as provider:
        assert (await caught(provider)).kind == "bad_request"
    assert len(raw.bodies) == 1


STATUSES: list[tuple[int, object, ErrorKind]] = [
    (400, {"error": {"message": "no", "code": "context_length_exceeded"}}, "context_length"),
    (400, {"error": {"message": "blocked", "code": "content_filter"}}, "content_filter"),
    (400, {"error": {"message": "Invalid value"}}, "bad_request"),
    (401, {"error": {"message": "Incorrect API key provided"}}, "auth"),
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
]


@pytest.mark.parametrize(("status", "body", "kind"), STATUSES)
async def test_each_status_is_one_kind(raw: RawModelServer, status: int, body: object, kind: ErrorKind) -> None:
    raw.reply = failure(status, body, **{"Retry-After": "7"})
    async with connected(raw.base_url) as provider:
        error = await caught(provider)
    assert (error.kind, error.status, error.retry_after) == (kind, status, 7.0)
    assert len(raw.bodies) == 1, "the engine retries, not the client"


async def test_the_key_never_shows(raw: RawModelServer) -> None:
    raw.replies = [
        failure(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}),
        RawReply(sse({"type": "error", "code": "invalid_api_key", "message": f"Bearer {KEY}"})),
    ]
    async with connected(raw.base_url) as provider:
        errors = [await caught(provider), await caught(provider)]
    for error in errors:
        assert error.kind == "auth"
        assert "[key]" in str(error)
        assert KEY not in str(error)


async def test_a_server_without_this_api_says_what_to_check() -> None:
    async with ScriptedModelServer() as server, connected(f"{server.base_url}/v2") as provider:
        error = await caught(provider)
    assert (error.kind, error.status) == ("bad_request", 404)
    assert "OPENAI_BASE_URL" in str(error)


async def test_nobody_listens() -> None:
    async with connected("http://127.0.0.1:1/v1") as provider:
        error = await caught(provider)
    assert error.kind == "connection"
    assert "127.0.0.1" in str(error)


async def test_lone_surrogates_in_the_history_do_not_stop_it(raw: RawModelServer) -> None:
    async with connected(raw.base_url) as provider:
        await provider.generate(ModelRequest("s\ud83d", [UserMessage("a\ud83db"), AssistantMessage((Text("ok"),))]))
    assert (raw.bodies[0]["instructions"], raw.bodies[0]["input"][0]["content"]) == ("s\ufffd", "a\ufffdb")


async def test_one_provider_serves_many_runs_at_once(scripted: ScriptedModelServer) -> None:
    async def answer(provider: OpenAIResponsesProvider, text: str) -> str:
        async with provider.stream(ask(text)) as items:
            return "".join([item.text async for item in items if isinstance(item, TextDelta)])

    async with connected(scripted.base_url) as provider:
        answers = await asyncio.gather(*[answer(provider, f"number {n}") for n in range(20)])
    assert all(f"number {n}" in text for n, text in enumerate(answers))


async def test_a_finished_exchange_leaves_its_connection_for_the_next() -> None:
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


async def test_failures_of_the_scripted_server_are_told_apart() -> None:
    endings: list[Script] = [[Say("Hi"), Cut()], [Say("Hi"), Fail(status=429, message="slow")], [Fail(status=503)]]
    scripts = iter(endings)

    def answer(request: WireRequest) -> Script:
        return next(scripts)

    async with ScriptedModelServer(answer=answer) as server, connected(server.base_url) as provider:
        kinds = [(await caught(provider)).kind for _ in endings]
    assert kinds == ["truncated", "rate_limit", "overloaded"]


@pytest.mark.parametrize("stream", [True, False])
async def test_turns_with_thinking_and_tools_make_a_history_that_a_strict_server_takes(stream: bool) -> None:
    scripts: list[Script] = [
        [Think("Let me see."), Say("One moment."), Call("f", '{"a": 1}'), Call("f", "{broken")],
        [Think("Now "), Call("f")],
        [Think("Good."), Say("Done.")],
        [Say("You are welcome.")],
    ]
    left = iter(scripts)

    def answer(request: WireRequest) -> Script:
        return next(left)

    async def asked(provider: OpenAIResponsesProvider, history: list[Message]) -> AssistantMessage:
        request = ModelRequest("Be brief.", history, [TOOL])
        if not stream:
            return await provider.generate(request)
        async with provider.stream(request) as items:
            last = [item async for item in items][-1]
        assert isinstance(last, Completed)
        return last.message

    async with ScriptedModelServer(answer=answer) as server, connected(server.base_url) as provider:
        history: list[Message] = [UserMessage("go", "alice")]
        while not isinstance(history[-1], AssistantMessage):
            message = await asked(provider, history)
            history += [message, *[ToolResult(call.id, call.name, "14") for call in message.tool_calls]]
        first = history[1]
        history.append(UserMessage("thanks"))
        last = await asked(provider, history)
    assert isinstance(first, AssistantMessage)
    assert [(call.name, call.arguments, call.provider_id) for call in first.tool_calls] == [
        ("f", {"a": 1}, "call_1_2"),
        ("f", None, "call_1_3"),
    ]
    (reasoning, *_) = first.parts
    assert isinstance(reasoning, Reasoning)
    assert (reasoning.text, reasoning.field) == ("Let me see.", RESPONSES_REASONING)
    assert (last.text, last.finish_reason, last.usage.estimated) == ("You are welcome.", "stop", False)
    sent = server.requests[3].messages
    assert [item.get("type", item.get("role")) for item in sent] == [
        "user",
        *("reasoning", "assistant", "function_call", "function_call", "function_call_output", "function_call_output"),
        *("reasoning", "function_call", "function_call_output"),
        *("reasoning", "assistant"),
        "user",
    ]
    assert [item["encrypted_content"] for item in sent if item.get("type") == "reasoning"] == [
        "sealed-rs_1_0",
        "sealed-rs_2_0",
        "sealed-rs_3_0",
    ]


async def test_the_sdk_still_gives_what_this_provider_stands_on(raw: RawModelServer) -> None:
    """The pin: an upgrade of the SDK that takes the raw body, the headers or the typed error away fails here."""
    http_client = ModelHttpClient(httpx2.Timeout(None))
    client = openai.AsyncOpenAI(api_key="x", base_url=raw.base_url, max_retries=0, http_client=http_client)
    create = client.responses.with_streaming_response.create
    body = {"input": [{"role": "user", "content": "x"}], "store": False}
    async with client:
        async with create(model="m", stream=True, extra_body=body) as response:
            assert await response.http_response.extensions[RESPONSE].content.read() == GOOD.body
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
        assert raw.bodies == [{"model": "m", "stream": True, **body}]
        raw.reply = failure(400, {"error": {"message": "no", "code": "c", "param": "p"}}, **{"Retry-After": "3"})
        with pytest.raises(openai.BadRequestError) as caught:
            async with create(model="m", stream=True, extra_body=body):
                pass
    error = caught.value
    assert error.body == {"message": "no", "code": "c", "param": "p"}
    assert (error.status_code, error.response.headers["retry-after"]) == (400, "3")
