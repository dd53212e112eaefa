"""The scripted server's Messages API, through the vendor's own typed client: that proves the server."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import anthropic
import pytest

from harness.providers.script import Call, Fail, Say, Script, Think
from harness.testing.anthropic_requests import signature_of
from harness.testing.model_server import ScriptedModelServer
from harness.testing.wire import WireRequest

HELLO: Any = [{"role": "user", "content": "hello"}]
TOOL: Any = {"name": "calculator", "input_schema": {"type": "object"}}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModelServer]:
    async with ScriptedModelServer(speed=50) as server:
        yield server


@pytest.fixture
async def client(server: ScriptedModelServer) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with client_of(server) as client:
        yield client


def client_of(server: ScriptedModelServer) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(api_key="x", base_url=origin(server), max_retries=0)


def origin(server: ScriptedModelServer) -> str:
    return server.base_url.removesuffix("/v1")


async def test_the_stream_helper_reads_it(client: anthropic.AsyncAnthropic, server: ScriptedModelServer) -> None:
    async with client.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        message = await stream.get_final_message()
    (record,) = server.requests
    await record.done.wait()
    assert text == record.text_sent == message.content[0].to_dict()["text"]
    assert (message.role, message.model, message.stop_reason) == ("assistant", "m", "end_turn")
    assert message.usage.input_tokens == 1
    assert message.usage.output_tokens > 5
    assert (record.prompt, record.messages, record.closed_by_client) == ("hello", HELLO, False)


async def test_events_come_in_the_documented_order(client: anthropic.AsyncAnthropic) -> None:
    stream = await client.messages.create(model="m", max_tokens=9, messages=HELLO, stream=True)
    kinds = [event.type async for event in stream]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}


async def test_the_client_gets_the_same_without_streaming(client: anthropic.AsyncAnthropic) -> None:
    message = await client.messages.create(model="m", max_tokens=9, messages=HELLO)
    async with client.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream:
        streamed = await stream.get_final_message()
    assert message.content[0].to_dict()["text"] == streamed.content[0].to_dict()["text"]
    assert message.stop_reason == "end_turn"


MIXED: Script = [
    Think("hm, "),
    Think("so"),
    Say("Let "),
    Say("me see."),
    Call("calculator", '{"expression": "2*(3+4)"}'),
    Call("calculator", "{}"),
]


@pytest.mark.parametrize("streamed", [True, False])
async def test_thinking_text_and_calls_are_blocks(streamed: bool) -> None:
    def answer(request: WireRequest) -> Script:
        return MIXED

    async with ScriptedModelServer(answer=answer) as server, client_of(server) as client:
        if streamed:
            async with client.messages.stream(model="m", max_tokens=9, messages=HELLO, tools=[TOOL]) as stream:
                message: Any = await stream.get_final_message()
        else:
            message = await client.messages.create(model="m", max_tokens=9, messages=HELLO, tools=[TOOL])
    thought, text, *calls = message.content
    assert (thought.thinking, thought.signature) == ("hm, so", signature_of("hm, so"))
    assert text.text == "Let me see."
    assert [(call.name, call.input) for call in calls] == [
        ("calculator", {"expression": "2*(3+4)"}),
        ("calculator", {}),
    ]
    assert len({call.id for call in calls}) == 2
    assert message.stop_reason == "tool_use"


async def test_a_tool_turn(client: anthropic.AsyncAnthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "calc 2*(3+4)"}]
    first = await client.messages.create(model="m", max_tokens=9, messages=messages, tools=[TOOL])
    (call,) = first.content
    assert isinstance(call, anthropic.types.ToolUseBlock)
    messages.append({"role": "assistant", "content": [call.to_dict()]})
    messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "14"}]})
    second = await client.messages.create(model="m", max_tokens=9, messages=messages, tools=[TOOL])
    assert "= 14" in second.content[0].to_dict()["text"]
    closed = await client.messages.create(
        model="m", max_tokens=9, messages=messages[:1], tools=[TOOL], tool_choice={"type": "none"}
    )
    assert closed.content[0].type == "text"


async def test_failures_have_their_types(client: anthropic.AsyncAnthropic) -> None:
    with pytest.raises(anthropic.RateLimitError) as limited:
        await client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "fail 429"}])
    assert (limited.value.type, limited.value.response.headers["retry-after"]) == ("rate_limit_error", "1")
    with pytest.raises(anthropic.InternalServerError):
        await client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "fail 500"}])


async def test_a_failure_inside_a_stream_is_an_error_event() -> None:
    def answer(request: WireRequest) -> Script:
        return [Say("Hi"), Fail(status=529, message="Overloaded")]

    texts: list[str] = []
    async with ScriptedModelServer(answer=answer) as server, client_of(server) as client:
        with pytest.raises(anthropic.APIStatusError) as failed:
            await collect(client, texts)
    assert texts == ["Hi"]
    assert (failed.value.type, failed.value.api_message) == ("overloaded_error", "Overloaded")


async def collect(client: anthropic.AsyncAnthropic, texts: list[str]) -> None:
    async with client.messages.stream(model="m", max_tokens=9, messages=HELLO) as stream:
        async for piece in stream.text_stream:
            texts.append(piece)


async def test_a_key_is_wanted_under_either_header(server: ScriptedModelServer) -> None:
    statuses: list[int] = []
    for headers in ({}, {"X-Api-Key": " "}, {"X-Api-Key": "x"}, {"Authorization": "Bearer x"}):
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{origin(server)}/v1/messages", json={}) as response,
        ):
            statuses.append(response.status)
            kind = (await response.json())["error"]["type"]
        assert kind == ("authentication_error" if response.status == 401 else "invalid_request_error")
    assert statuses == [401, 401, 400, 400]


USE = {"type": "tool_use", "id": "x", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "x", "content": "1"}
TEXT = {"type": "text", "text": "hi"}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": signature_of("hm")}
F = {"name": "f", "input_schema": {"type": "object"}}


def talk(*contents: Any, **more: Any) -> dict[str, Any]:
    """A request whose messages have these contents, of a user and the assistant in turn."""
    roles = ["user", "assistant"] * len(contents)
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return {"model": "m", "max_tokens": 9, "messages": messages, **more}


BAD: list[tuple[Any, str]] = [
    ([], "object"),
    (talk("hi") | {"model": None}, "model: Field required"),
    (talk("hi") | {"max_tokens": 0}, "max_tokens: Field required"),
    (talk("hi", stream="yes"), "boolean"),
    (talk("hi", stream_options={}), "stream_options: Extra inputs are not permitted"),
    (talk("hi", system=" "), "non-whitespace"),
    (talk("hi", temperature=1), "temperature: Extra inputs are not permitted"),
    (talk(), "at least one message"),
    (talk("hi") | {"messages": [{"role": "system", "content": "hi"}]}, "role"),
    (talk("hi") | {"messages": [{"role": "assistant", "content": "hi"}]}, "first message"),
    (talk("hi") | {"messages": [{"role": "user", "content": "hi", "name": "ann"}]}, "Extra inputs"),
    (talk("hi") | {"messages": [{"role": "user", "content": "hi"}] * 2}, "alternate"),
    (talk(""), "non-empty"),
    (talk([]), "non-empty content"),
    (talk(None), "valid list"),
    (talk([{"type": "text", "text": "\n"}]), "non-whitespace"),
    (talk([{"type": "video"}]), "does not match"),
    (talk([TEXT | {"name": "x"}]), "Extra inputs"),
    (talk([USE], tools=[F]), "not for the role"),
    (talk("hi", [USE], tools=[F]), "without `tool_result`"),
    (talk("hi", [USE], "so?", tools=[F]), "without `tool_result`"),
    (talk("hi", [USE], [TEXT, RESULT], tools=[F]), "tool_result must come first"),
    (talk("hi", [USE], [RESULT, RESULT], tools=[F]), "unexpected `tool_use_id`"),
    (talk("hi", [USE], [RESULT, RESULT | {"tool_use_id": "y"}], tools=[F]), "unexpected `tool_use_id`"),
    (talk([RESULT], tools=[F]), "unexpected `tool_use_id`"),
    (talk("hi", [USE, USE], [RESULT], tools=[F]), "unique"),
    (talk("hi", [USE], [RESULT], [USE], [RESULT], tools=[F]), "unique"),
    (talk("hi", [USE], [RESULT]), "must define tools"),
    (talk("hi", [USE | {"id": "functions.f:0"}], [RESULT], tools=[F]), "id: String should match"),
    (talk("hi", [USE | {"input": "{}"}], [RESULT], tools=[F]), "should be an object"),
    (talk("hi", [USE], [RESULT | {"content": [{"type": "text", "text": ""}]}], tools=[F]), "non-empty"),
    (talk("hi", [USE], [RESULT | {"is_error": "no"}], tools=[F]), "boolean"),
    (talk("hi", [SIGNED | {"signature": "forged"}, TEXT], "so?"), "Invalid `signature`"),
    (talk("hi", [TEXT, SIGNED], "so?"), "thinking must come first"),
    (talk("hi", [SIGNED], "so?"), "final block"),
    (talk("hi", [{"type": "redacted_thinking"}, TEXT], "so?"), "data: Field required"),
    (talk("hi", tools=[{"name": "f"}]), "input_schema"),
    (talk("hi", tools=[F | {"name": "a b"}]), "name: String should match"),
    (talk("hi", tools=[F, F]), "unique"),
    (talk("hi", tools=[F | {"parameters": {}}]), "Extra inputs"),
    (talk("hi", tool_choice={"type": "auto"}), "providing tools"),
    (talk("hi", tools=[F], tool_choice={"type": "maybe"}), "unknown"),
]


@pytest.mark.parametrize(("body", "words"), BAD)
async def test_bad_requests_get_the_vendors_error(server: ScriptedModelServer, body: Any, words: str) -> None:
    async with (
        aiohttp.ClientSession(headers={"X-Api-Key": "x"}) as session,
        session.post(f"{origin(server)}/v1/messages", json=body) as response,
    ):
        answer = await response.json()
    assert (response.status, answer["type"], answer["error"]["type"]) == (400, "error", "invalid_request_error")
    assert words in answer["error"]["message"]


async def test_what_the_api_allows_is_allowed(client: anthropic.AsyncAnthropic) -> None:
    bodies = [
        talk([TEXT, TEXT], [SIGNED, TEXT, USE], [RESULT, TEXT], tools=[F], system=[TEXT]),
        talk("hi", [USE], [{"type": "tool_result", "tool_use_id": "x", "is_error": True}], tools=[F]),
        talk("hi", [USE], [RESULT | {"content": ""}], tools=[F], tool_choice={"type": "none"}),
    ]
    for body in bodies:
        assert (await client.messages.create(**body)).content
