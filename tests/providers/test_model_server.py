import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import openai
import pytest

from harness.testing.model_server import ScriptedModelServer
from tests.providers.wire import until

HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "calculator", "parameters": {"type": "object"}}}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModelServer]:
    async with ScriptedModelServer(speed=50) as server:
        yield server


@pytest.fixture
async def client(server: ScriptedModelServer) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(api_key="x", base_url=server.base_url, max_retries=0) as client:
        yield client


async def test_the_real_client_streams_from_it(client: openai.AsyncOpenAI, server: ScriptedModelServer) -> None:
    stream = await client.chat.completions.create(
        model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    (record,) = server.requests
    await record.done.wait()
    assert text == record.text_sent
    assert (record.prompt, record.closed_by_client, record.messages) == ("hello", False, HELLO)
    assert record.finished_at is not None
    assert server.open_streams == 0


async def test_the_real_client_gets_the_same_without_streaming(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="m", messages=HELLO)
    assert (answer.choices[0].message.content or "").startswith("Hello!")
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 1


async def test_a_tool_turn_with_the_real_client(client: openai.AsyncOpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "calc 2*(3+4)"}]
    stream = await client.chat.completions.create(model="m", messages=messages, tools=[TOOL], stream=True)
    entries = [call async for chunk in stream for call in chunk.choices[0].delta.tool_calls or ()]
    arguments = "".join(entry.function.arguments or "" for entry in entries if entry.function)
    assert len(entries) > 2
    assert arguments == '{"expression": "2*(3+4)"}'
    call = {"id": entries[0].id, "type": "function", "function": {"name": "calculator", "arguments": arguments}}
    messages += [{"role": "assistant", "content": "", "tool_calls": [call]}]
    messages += [{"role": "tool", "tool_call_id": entries[0].id, "content": "14"}]
    answer = await client.chat.completions.create(model="m", messages=messages, tools=[TOOL])
    assert "= 14" in (answer.choices[0].message.content or "")


async def test_models_are_listed(client: openai.AsyncOpenAI) -> None:
    assert [model.id for model in (await client.models.list()).data] == ["scripted"]


BAD: list[tuple[Any, str]] = [
    ({}, "model"),
    ({"model": "m"}, "messages"),
    ({"model": "m", "messages": []}, "messages"),
    ({"model": "m", "messages": [{"role": "robot", "content": ""}]}, "role"),
    ({"model": "m", "messages": [{"role": "user", "content": None}]}, "content"),
    ({"model": "m", "messages": [{"role": "tool", "tool_call_id": "x", "content": ""}]}, "must follow"),
    ({"model": "m", "messages": HELLO, "stream_options": {}}, "stream"),
    ([], "object"),
]


@pytest.mark.parametrize(("body", "word"), BAD)
async def test_bad_requests_get_the_vendors_error(server: ScriptedModelServer, body: Any, word: str) -> None:
    headers = {"Authorization": "Bearer x"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{server.base_url}/chat/completions", json=body) as response,
    ):
        assert response.status == 400
        error = (await response.json())["error"]
    assert word in error["message"]
    assert error["type"] == "invalid_request_error"


async def test_calls_without_results_are_refused(client: openai.AsyncOpenAI) -> None:
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages: list[Any] = [*HELLO, {"role": "assistant", "content": "", "tool_calls": [call]}, *HELLO]
    with pytest.raises(openai.BadRequestError, match="must be followed"):
        await client.chat.completions.create(model="m", messages=messages)


async def test_a_token_is_wanted_and_unknown_paths_are_json(server: ScriptedModelServer) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{server.base_url}/chat/completions", json={}) as response:
            assert response.status == 401
            assert (await response.json())["error"]["code"] == "invalid_api_key"
        async with session.get(f"{server.base_url}/nothing") as response:
            assert (response.status, "error" in await response.json()) == (404, True)


async def test_failures_by_words(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.RateLimitError) as limited:
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "fail 429"}])
    assert limited.value.response.headers["retry-after"] == "1"
    with pytest.raises(openai.InternalServerError):
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "fail 500"}], stream=True)


async def test_faults_break_as_many_requests_as_they_say(
    client: openai.AsyncOpenAI, server: ScriptedModelServer
) -> None:
    async def reasons() -> list[str | None]:
        stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
        return [chunk.choices[0].finish_reason async for chunk in stream]

    server.set_fault({"status": 503, "error": "down", "times": 2})
    server.set_fault({"reset": True})
    server.set_fault({"cut_after": 2})
    server.set_fault({"cut_after": 2, "reset": True})
    server.set_fault({"latency_ms": 30})
    for _ in range(2):
        with pytest.raises(openai.InternalServerError, match="down"):
            await reasons()
    with pytest.raises(openai.APIConnectionError):
        await reasons()
    assert await reasons() == [None] * 3
    with pytest.raises(openai.APIConnectionError):
        await reasons()
    started = time.monotonic()
    assert (await reasons())[-1] == "stop"
    assert time.monotonic() - started > 0.03
    with pytest.raises(ValueError, match="colour"):
        server.set_fault({"colour": "red"})
    server.set_fault({"status": 500})
    server.set_fault({})
    assert (await reasons())[-1] == "stop"


async def test_a_client_that_goes_away_is_noticed_in_silence(server: ScriptedModelServer) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hang"}], "stream": True}
    async with (
        aiohttp.ClientSession(headers={"Authorization": "Bearer x"}) as session,
        session.post(f"{server.base_url}/chat/completions", json=body) as response,
    ):
        await response.content.readany()
        await until(lambda: server.requests[0].text_sent.endswith("explanation"))
    async with asyncio.timeout(1):
        await server.requests[0].done.wait()
    assert server.requests[0].closed_by_client


async def test_stopping_the_server_is_not_the_clients_doing() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hang"}], "stream": True}
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer x"}) as session:
        async with ScriptedModelServer(speed=100) as server:
            response = await session.post(f"{server.base_url}/chat/completions", json=body)
            await response.content.readany()
        response.close()
    assert server.requests[0].done.is_set()
    assert not server.requests[0].closed_by_client
