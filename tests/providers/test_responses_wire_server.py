"""The scripted server's Responses wire, proved by the SDK's own typed client."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from harness.providers.script import Call, Cut, Fail, Say, Script, Think
from harness.testing.model_server import ScriptedModelServer
from harness.testing.wire import WireRequest

ASK: Any = "hello"
TOOL: Any = {"type": "function", "name": "calculator", "parameters": {"type": "object"}, "strict": False}
CALL: Any = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
RESULT: Any = {"type": "function_call_output", "call_id": "c", "output": "1"}
THOUGHT: Any = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
USER: Any = {"role": "user", "content": "u"}
SCRIPT: Script = [
    Think("Let me "),
    Think("see."),
    Say("One "),
    Say("moment."),
    Call("f", '{"path": "a/b", "n": 1}'),
    Call("g"),
]


def scripted(request: WireRequest) -> Script:
    return SCRIPT


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModelServer]:
    async with ScriptedModelServer(speed=50) as server:
        yield server


@pytest.fixture
async def client(server: ScriptedModelServer) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(api_key="x", base_url=server.base_url, max_retries=0) as client:
        yield client


async def test_the_stream_helper_of_the_sdk_reads_it() -> None:
    async with (
        ScriptedModelServer(answer=scripted) as server,
        openai.AsyncOpenAI(api_key="x", base_url=server.base_url, max_retries=0) as client,
        client.responses.stream(model="m", input=ASK) as stream,
    ):
        events: list[Any] = [event async for event in stream]
        final: Any = await stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events][:3] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
    ]
    thought, message, first, second = final.output
    assert (thought.type, thought.summary[0].text, bool(thought.encrypted_content)) == (
        "reasoning",
        "Let me see.",
        True,
    )
    assert (message.content[0].text, final.output_text) == ("One moment.", "One moment.")
    assert [(call.name, call.arguments) for call in (first, second)] == [("f", '{"path": "a/b", "n": 1}'), ("g", "{}")]
    assert len({first.call_id, second.call_id, first.id, second.id}) == 4
    assert (final.status, final.usage.input_tokens, final.usage.output_tokens) == ("completed", 1, 6)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert (text, "".join(pieces)) == ("One moment.", first.arguments + second.arguments)
    assert len(pieces) > 2


async def test_without_streaming_the_same_items_come(client: openai.AsyncOpenAI) -> None:
    streamed: Any = None
    async with client.responses.stream(model="m", input=ASK) as stream:
        streamed = await stream.get_final_response()
    answer = await client.responses.create(model="m", input=ASK)
    assert answer.output_text.startswith("Hello!")
    assert answer.output_text == streamed.output_text
    assert answer.usage is not None
    assert answer.usage.total_tokens == streamed.usage.total_tokens


async def test_a_tool_turn_with_the_real_client(client: openai.AsyncOpenAI) -> None:
    asked: Any = [{"role": "user", "content": "calc 2*(3+4)"}]
    first = await client.responses.create(model="m", input=asked, tools=[TOOL])
    (call,) = first.output
    assert call.type == "function_call"
    assert call.arguments == '{"expression": "2*(3+4)"}'
    asked += [
        {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
        {"type": "function_call_output", "call_id": call.call_id, "output": "14"},
    ]
    second = await client.responses.create(model="m", input=asked, tools=[TOOL])
    assert "= 14" in second.output_text


async def test_an_error_in_the_stream_is_an_event(client: openai.AsyncOpenAI) -> None:
    def failing(request: WireRequest) -> Script:
        return [Say("Hi"), Fail(status=429, message="slow down")]

    async with ScriptedModelServer(answer=failing) as server:
        stream = await client.with_options(base_url=server.base_url).responses.create(model="m", input=ASK, stream=True)
        *_, last = [event async for event in stream]
    assert last.type == "error"
    assert (last.code, last.message) == ("rate_limit_exceeded", "slow down")


async def test_a_cut_stream_has_no_last_event(client: openai.AsyncOpenAI) -> None:
    def cut(request: WireRequest) -> Script:
        return [Say("Hi"), Cut()]

    async with ScriptedModelServer(answer=cut) as server:
        stream = await client.with_options(base_url=server.base_url).responses.create(model="m", input=ASK, stream=True)
        kinds = [event.type async for event in stream]
    assert kinds[-1] == "response.output_text.delta"


GOOD: list[Any] = [
    [USER, {"role": "assistant", "content": "a"}, USER],
    [USER, THOUGHT, CALL, RESULT],
    [
        USER,
        THOUGHT,
        {"role": "assistant", "content": "a"},
        CALL,
        CALL | {"call_id": "d", "id": "fc_1"},
        RESULT | {"call_id": "d"},
        RESULT,
        USER,
    ],
    [USER, THOUGHT, CALL, THOUGHT | {"id": "rs_2"}, CALL | {"call_id": "d"}, RESULT, RESULT | {"call_id": "d"}],
    [{"role": "user", "content": [{"type": "input_text", "text": "u"}]}],
]


@pytest.mark.parametrize("items", GOOD)
async def test_valid_histories_are_taken(client: openai.AsyncOpenAI, items: Any) -> None:
    answer = await client.responses.create(model="m", input=items, store=False, max_output_tokens=16)
    assert answer.status == "completed"


BAD_ITEMS: list[tuple[list[Any], str]] = [
    ([], "'input'"),
    (["x"], r"input\[0\]"),
    ([USER | {"role": "tool"}], "Supported values"),
    ([USER | {"content": None}], "'input\\[0\\].content'"),
    ([USER | {"content": []}], "'input\\[0\\].content'"),
    ([USER | {"content": [{"type": "text", "text": "u"}]}], "type of a part"),
    ([USER | {"name": "alice"}], "Unknown parameter: 'input\\[0\\].name'"),
    ([USER, {"type": "tool_call"}], "Supported values"),
    ([USER, CALL], "No tool output found for function call c"),
    ([USER, CALL, USER, RESULT], "No tool output found for function call c"),
    ([USER, RESULT], "No tool call found for function call output with call_id c"),
    ([USER, CALL, RESULT, RESULT], "No tool call found"),
    ([USER, {**CALL, "call_id": None}, RESULT], "Missing required parameter: 'input\\[1\\].call_id'"),
    ([USER, CALL | {"call_id": "c" * 65}, RESULT], "call_id"),
    ([USER, CALL | {"arguments": "{"}, RESULT], "JSON object"),
    ([USER, CALL | {"id": "call_1"}, RESULT], "begins with 'fc'"),
    ([USER, CALL, RESULT | {"output": 1}], "'input\\[2\\].output'"),
    ([USER, THOUGHT, RESULT], "required following item"),
    ([USER, THOUGHT, USER], "required following item"),
    ([USER, THOUGHT], "required following item"),
    ([USER, THOUGHT | {"status": "completed"}, CALL, RESULT], "Unknown parameter: 'input\\[1\\].status'"),
    ([USER, THOUGHT | {"encrypted_content": None}, CALL, RESULT], "'rs_1' not found"),
    ([USER, THOUGHT | {"summary": None}, CALL, RESULT], "'input\\[1\\].summary'"),
    ([USER, THOUGHT | {"content": [{}]}, CALL, RESULT], "array too long"),
    ([USER, THOUGHT, CALL, THOUGHT, CALL, RESULT], "Duplicate item"),
]


@pytest.mark.parametrize(("items", "words"), BAD_ITEMS)
async def test_bad_items_get_the_vendors_error(client: openai.AsyncOpenAI, items: Any, words: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        await client.responses.create(model="m", input=items)
    assert caught.value.type == "invalid_request_error"


NESTED = {"type": "function", "function": {"name": "f", "parameters": {}}}
BAD_BODIES: list[tuple[dict[str, Any], str]] = [
    ({"model": ""}, "'model'"),
    ({"messages": []}, "Unknown parameter: 'messages'"),
    ({"stream": "yes"}, "'stream'"),
    ({"max_output_tokens": 1}, ">= 16"),
    ({"include": ["everything"]}, "Supported values"),
    ({"previous_response_id": "resp_1"}, "not found"),
    ({"tools": [NESTED]}, "'tools\\[0\\].name'"),
    ({"tools": [{"type": "function", "name": "f", "parameters": {}}]}, "'tools\\[0\\].strict'"),
    ({"tools": [TOOL | {"schema": {}}]}, "Unknown parameter: 'tools\\[0\\].schema'"),
    ({"tools": [{"type": "web_search"}]}, "only 'function'"),
]


@pytest.mark.parametrize(("fields", "words"), BAD_BODIES)
async def test_bad_parameters_get_the_vendors_error(
    client: openai.AsyncOpenAI, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        await client.responses.create(model="m", input=ASK, extra_body=fields)


async def test_failures_by_words_and_no_key(client: openai.AsyncOpenAI, server: ScriptedModelServer) -> None:
    with pytest.raises(openai.RateLimitError) as limited:
        await client.responses.create(model="m", input="fail 429")
    assert limited.value.response.headers["retry-after"] == "1"
    with pytest.raises(openai.InternalServerError):
        await client.responses.create(model="m", input="fail 500", stream=True)
    with pytest.raises(openai.AuthenticationError) as refused:
        await client.responses.create(model="m", input=ASK, extra_headers={"Authorization": "none"})
    assert refused.value.code == "invalid_api_key"
    assert [record.prompt for record in server.requests] == ["fail 429", "fail 500"]
