"""The provider against local servers: what it sends, how failures are told apart, and that leaving closes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from anthropic._data import DEPRECATED_MODELS

from harness.errors import ErrorKind, ProviderError
from harness.messages import AssistantMessage, Reasoning, Text, ToolResult, UserMessage
from harness.providers.anthropic import AnthropicProvider
from harness.providers.base import Completed, ModelProvider, ModelRequest, StreamingProvider, TextDelta, ToolSpec
from harness.providers.profiles import PRESETS, ProviderProfile, profile_for
from harness.providers.request_parts import ANTHROPIC_THINKING
from harness.providers.script import Call, Say, Script, Think
from harness.testing.anthropic_requests import signature_of
from harness.testing.model_server import ScriptedModelServer
from harness.testing.raw_model_server import RawModelServer, RawReply
from harness.testing.wire import WireRequest
from tests.providers.anthropic_cases import STOP, end, named, said, start
from tests.providers.wire import until

KEY = "sk-ant-secret-0123456789"
ASK = ModelRequest("Be brief.", [UserMessage("hello")])
GOOD = RawReply(named(start(), *said("Hi"), end(), STOP))
TOOL = ToolSpec("f", "Does f.", {"type": "object", "properties": {}})


def ask(text: str) -> ModelRequest:
    return ModelRequest("", [UserMessage(text)], [TOOL])


@asynccontextmanager
async def connected(
    base_url: str, profile: ProviderProfile | None = None, *, key: str = KEY
) -> AsyncIterator[AnthropicProvider]:
    address = base_url.removesuffix("/v1")
    provider = AnthropicProvider(api_key=key, base_url=address, model="m", profile=profile)
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


def refusal(kind: str, message: str = "no") -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


async def caught(provider: AnthropicProvider, request: ModelRequest = ASK) -> ProviderError:
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
    messages = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    basics = {"model": "m", "max_tokens": 8192, "messages": messages}
    assert raw.bodies[0] == basics | {"stream": False, "system": "Be brief."}
    tool = {"name": "f", "description": "Does f.", "input_schema": TOOL.parameters}
    assert raw.bodies[1] == basics | {"stream": True, "tools": [tool]}


async def test_a_model_at_the_end_of_its_life_is_still_asked(raw: RawModelServer) -> None:
    """The SDK warns about those that it knows, and a warning is an exception here."""
    assert DEPRECATED_MODELS
    for model in DEPRECATED_MODELS:
        provider = AnthropicProvider(api_key=KEY, base_url=raw.base_url.removesuffix("/v1"), model=model)
        assert (await provider.generate(ASK)).text == "Hi"
        await provider.aclose()
    assert [body["model"] for body in raw.bodies] == list(DEPRECATED_MODELS)


async def test_the_profile_adds_what_a_server_needs(raw: RawModelServer) -> None:
    profile = ProviderProfile(
        max_tokens=64_000, parallel_tool_calls=False, extra_body={"thinking": {"type": "adaptive"}}
    )
    async with connected(raw.base_url, profile) as provider:
        await provider.generate(ask("hello"))
        await provider.generate(ASK)
    first, second = raw.bodies
    assert (first["max_tokens"], first["thinking"]) == (64_000, {"type": "adaptive"}), "however long it may take"
    assert first["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert "tool_choice" not in second


async def test_the_host_chooses_the_profile() -> None:
    assert profile_for("https://api.anthropic.com") == PRESETS["anthropic"]
    assert PRESETS["anthropic"].think_tags == "off"


REFUSALS = [
    refusal("invalid_request_error", "thinking: Extra inputs are not permitted"),
    {"error": "thinking is not supported by this model"},
]


@pytest.mark.parametrize("error", REFUSALS)
async def test_a_refused_parameter_is_left_out_from_then_on(raw: RawModelServer, error: object) -> None:
    raw.replies.append(failure(400, error))
    async with connected(
        raw.base_url, ProviderProfile(extra_body={"thinking": {}, "service_tier": "auto"})
    ) as provider:
        for _ in range(2):
            async with provider.stream(ASK) as items:
                assert isinstance([item async for item in items][-1], Completed)
    assert [("thinking" in body, "service_tier" in body) for body in raw.bodies] == [
        (True, True),
        (False, True),
        (False, True),
    ]


async def test_a_400_about_something_else_is_not_tried_again(raw: RawModelServer) -> None:
    raw.reply = failure(400, refusal("invalid_request_error", "messages: at least one message is required"))
    async with connected(raw.base_url, ProviderProfile(extra_body={"thinking": {}})) as provider:
        assert (await caught(provider)).kind == "bad_request"
    assert len(raw.bodies) == 1


STATUSES: list[tuple[int, object, ErrorKind]] = [
    (400, refusal("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), "context_length"),
    (400, refusal("invalid_request_error", "input length and `max_tokens` exceed context limit"), "context_length"),
    (400, refusal("invalid_request_error", "Your credit balance is too low to access the API."), "auth"),
    (400, refusal("invalid_request_error", "max_tokens: must be at least 1"), "bad_request"),
    (401, refusal("authentication_error", "invalid x-api-key"), "auth"),
    (402, refusal("billing_error"), "auth"),
    (403, refusal("permission_error"), "auth"),
    (404, refusal("not_found_error", "model: m"), "bad_request"),
    (413, refusal("request_too_large"), "context_length"),
    (429, refusal("rate_limit_error", "This request would exceed your rate limit"), "rate_limit"),
    (500, refusal("api_error", "Internal server error"), "overloaded"),
    (503, "no JSON object", "overloaded"),
    (504, refusal("timeout_error"), "timeout"),
    (529, refusal("overloaded_error", "Overloaded"), "overloaded"),
]


@pytest.mark.parametrize(("status", "body", "kind"), STATUSES)
async def test_each_status_is_one_kind(raw: RawModelServer, status: int, body: object, kind: ErrorKind) -> None:
    raw.reply = failure(status, body, **{"x-should-retry": "true"})
    async with connected(raw.base_url) as provider:
        error = await caught(provider)
    assert (error.kind, error.status) == (kind, status)
    assert len(raw.bodies) == 1, "the engine retries, not the client"


async def test_a_missing_model_says_what_to_check(raw: RawModelServer) -> None:
    raw.reply = failure(404, refusal("not_found_error", "model: m"))
    async with connected(raw.base_url) as provider:
        message = str(await caught(provider))
    assert message == (
        "HTTP 404 for model 'm': model: m. Check ANTHROPIC_MODEL and ANTHROPIC_BASE_URL (without /v1 at its end)."
    )


async def test_retry_after(raw: RawModelServer) -> None:
    raw.reply = failure(429, refusal("rate_limit_error"), **{"Retry-After": "7"})
    async with connected(raw.base_url) as provider:
        assert (await caught(provider)).retry_after == 7.0


async def test_the_key_never_shows(raw: RawModelServer) -> None:
    key = "no-known-form-of-a-key"
    raw.replies = [
        failure(401, refusal("authentication_error", f"invalid x-api-key {key}")),
        failure(500, refusal("api_error", "Header was Bearer abcdefgh12345 or sk-ant-other-key-123456")),
    ]
    async with connected(raw.base_url, key=key) as provider:
        errors = [await caught(provider), await caught(provider)]
    for error in errors:
        assert "[key]" in str(error)
        for secret in (key, "abcdefgh12345", "other-key"):
            assert secret not in str(error)


async def test_nobody_listens() -> None:
    async with connected("http://127.0.0.1:1") as provider:
        error = await caught(provider)
    assert error.kind == "connection"
    assert "127.0.0.1" in str(error)


@pytest.mark.parametrize("key", ["two\nlines", "schlüssel\ud83d"])
async def test_a_request_that_cannot_be_made_is_an_error_too(raw: RawModelServer, key: str) -> None:
    async with connected(raw.base_url, key=key) as provider:
        assert (await caught(provider)).kind in {"bad_request", "connection"}
    assert not raw.bodies


async def test_the_headers_are_those_of_the_sdk(scripted: ScriptedModelServer) -> None:
    async with connected(scripted.base_url) as provider:
        await provider.generate(ask("hello"))
    headers = {name.lower(): value for name, value in scripted.requests[0].headers.items()}
    assert (headers["authorization"], headers["accept-encoding"]) == (f"Bearer {KEY}", "identity")
    assert headers["anthropic-version"] == "2026-10-21", "another version may be another wire: read what it changes"


@pytest.mark.parametrize("key", [KEY, ""])
async def test_the_environment_adds_nothing(
    scripted: ScriptedModelServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str
) -> None:
    """The SDK would read all of these for a client of its own."""
    (tmp_path / "configs").mkdir()
    stored = {"authentication": {"type": "oauth_token"}, "base_url": "http://127.0.0.1:1"}
    (tmp_path / "configs" / "default.json").write_bytes(orjson.dumps(stored))
    variables = {
        "ANTHROPIC_API_KEY": "sk-ant-of-the-environment",
        "ANTHROPIC_AUTH_TOKEN": "token-of-the-environment",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "ANTHROPIC_CONFIG_DIR": str(tmp_path),
        "ANTHROPIC_PROFILE": "default",
        "ANTHROPIC_CUSTOM_HEADERS": "authorization: Bearer of-the-environment\nX-Added: of-the-environment",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    async with connected(scripted.base_url, key=key) as provider:
        if key:
            await provider.generate(ask("hello"))
            (record,) = scripted.requests
            assert "of-the-environment" not in f"{record.headers} {record.body}"
            assert record.headers["Authorization"] == f"Bearer {KEY}"
        else:
            assert (await caught(provider)).kind in {"auth", "bad_request", "connection"}
            assert not scripted.requests


async def test_one_provider_serves_many_runs_at_once(scripted: ScriptedModelServer) -> None:
    async def answer(provider: AnthropicProvider, text: str) -> str:
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
    assert (len(server.requests), len(peers)) == (3, 1)


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
    async with listener, connected(f"http://127.0.0.1:{port}") as provider:
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


@pytest.mark.parametrize("streamed", [True, False])
async def test_several_turns_with_tools_make_a_history_that_a_strict_server_takes(streamed: bool) -> None:
    """Thinking, text and two calls at once, two rounds of tools, a second question, and no tools in the end."""
    tools = [ToolSpec("f", "", {"type": "object"})]

    def answer(request: WireRequest) -> Script:
        if len(request.heard.results) == 4 or not request.heard.tools:
            return [Think("enough"), Say("Done.")]
        return [Think("hm"), Say("Let me see."), Call("f", '{"a": 1}'), Call("f", "{broken" if streamed else "{}")]

    async with ScriptedModelServer(answer=answer) as server, connected(server.base_url) as provider:
        history: list[Any] = []
        for question in ("one", "two"):
            history.append(UserMessage(question, "ann"))
            while True:
                message = await answered(provider, ModelRequest("s", history, tools), streamed=streamed)
                history.append(message)
                history += [ToolResult(call.id, "f", "", is_error=call.is_malformed) for call in message.tool_calls]
                if not message.tool_calls:
                    break
        last = await answered(provider, ModelRequest("", [*history, UserMessage("bye")]), streamed=streamed)
    assert last.text == "Done."
    assert len(server.requests) == 7
    thought = Reasoning(
        "hm", ANTHROPIC_THINKING, ({"type": "thinking", "thinking": "hm", "signature": signature_of("hm")},)
    )
    assert history[1].parts[:2] == (thought, Text("Let me see."))
    calls = [block for block in server.requests[-1].messages[1]["content"] if block["type"] == "tool_use"]
    assert [call["id"] for call in calls] == [call.provider_id for call in history[1].tool_calls]
    assert (
        len(
            {
                call.provider_id
                for message in history
                if isinstance(message, AssistantMessage)
                for call in message.tool_calls
            }
        )
        == 8
    )


async def answered(provider: AnthropicProvider, request: ModelRequest, *, streamed: bool) -> AssistantMessage:
    if not streamed:
        return await provider.generate(request)
    async with provider.stream(request) as items:
        last = [item async for item in items][-1]
    assert isinstance(last, Completed)
    return last.message
