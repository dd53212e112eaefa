from harness.messages import AssistantMessage, Reasoning, SummaryMessage, Text, ToolCall, ToolResult, UserMessage
from harness.providers.base import ModelRequest, ToolSpec
from harness.providers.profiles import DEFAULT, ProviderProfile
from harness.providers.request_parts import ANTHROPIC_THINKING, RESPONSES_REASONING
from harness.providers.responses_input import responses_input, responses_tools

SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x", "new": [1]}
THOUGHT = Reasoning("hm", RESPONSES_REASONING, (SEALED,))


def wire(*messages, profile: ProviderProfile = DEFAULT):
    return responses_input(ModelRequest("never here", messages), profile)


def called(ident: str, provider_id: str = "", **more) -> ToolCall:
    return ToolCall(ident, "f", {"a": 1}, '{"a": 1}', provider_id, **more)


def test_people_and_summaries_are_users() -> None:
    assert wire(UserMessage("hi"), UserMessage("hi", "alice"), SummaryMessage("they met")) == [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": "alice: hi"},
        {"role": "user", "content": "Summary of the conversation so far:\nthey met"},
    ]


def test_an_answer_goes_back_as_thinking_text_calls_and_results() -> None:
    answer = AssistantMessage((THOUGHT, Text("One "), Text("moment."), called("a", "call_x"), called("b")))
    assert wire(UserMessage("u"), answer, ToolResult("a", "f", "1"), ToolResult("b", "f", "2", is_error=True)) == [
        {"role": "user", "content": "u"},
        SEALED,
        {"role": "assistant", "content": "One moment."},
        {"type": "function_call", "call_id": "call_x", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "call_x", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": "2"},
    ]


def test_an_answer_without_text_is_its_calls_only() -> None:
    kinds = [item.get("type", item.get("role")) for item in wire(AssistantMessage((called("a"),)))]
    assert kinds == ["function_call"]


def test_an_id_that_occurs_twice_gets_a_suffix() -> None:
    items = wire(
        AssistantMessage((called("a", "x"),)),
        ToolResult("a", "f", "1"),
        AssistantMessage((called("b", "x"),)),
        ToolResult("b", "f", "2"),
    )
    assert [item["call_id"] for item in items] == ["x", "x", "x_2", "x_2"]


def test_ids_in_a_style_of_their_own() -> None:
    call, result = wire(
        AssistantMessage((called("a", "functions.f:0"),)),
        ToolResult("a", "f", "1"),
        profile=ProviderProfile(tool_call_id_style="word"),
    )
    assert call["call_id"] == result["call_id"]
    assert call["call_id"].isalnum()


def test_arguments_are_always_an_object() -> None:
    calls = (ToolCall("a", "f", {}, ""), ToolCall("b", "f", None, '{"broken'), called("c"))
    assert [item["arguments"] for item in wire(AssistantMessage(calls))] == ["{}", "{}", '{"a": 1}']


TALK = [
    UserMessage("1"),
    AssistantMessage((THOUGHT, called("a"))),
    ToolResult("a", "f", "1"),
    AssistantMessage((Reasoning("", RESPONSES_REASONING, ({**SEALED, "id": "rs_2"},)), Text("done"))),
    UserMessage("2"),
    AssistantMessage((Reasoning("", RESPONSES_REASONING, ({**SEALED, "id": "rs_3"},)), Text("ok"))),
    UserMessage("3"),
]


def test_thinking_goes_back_in_turns_that_called_tools() -> None:
    kinds = [item.get("id") or item.get("type") or item["content"] for item in wire(*TALK)]
    assert kinds == ["1", "rs_1", "function_call", "function_call_output", "rs_2", "done", "2", "ok", "3"]


def replayed(*details, field: str = RESPONSES_REASONING):
    _, *items, _ = wire(UserMessage("u"), AssistantMessage((Reasoning("hm", field, details), called("a"))))
    return items


def test_only_thinking_that_can_stand_alone_goes_back() -> None:
    text = [{"type": "reasoning_text", "text": "hm"}]
    assert replayed(SEALED | {"status": "completed"}) == [SEALED], "status belongs to outputs"
    assert replayed({"type": "reasoning", "id": "rs_1", "summary": [], "content": text}) != []
    assert replayed({"type": "reasoning", "id": "rs_1", "summary": []}) == [], "a reference to what nobody kept"
    assert replayed({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}) == []


def test_thinking_of_other_protocols_stays_away() -> None:
    for field in (ANTHROPIC_THINKING, "reasoning_content", "reasoning_details", "<think>", ""):
        assert replayed({"type": "thinking", "content": "x", "signature": "s"}, field=field) == []


def test_lone_surrogates_are_replaced() -> None:
    items = wire(
        UserMessage("a\ud83d"), AssistantMessage((Text("b\ud83d"), called("a"))), ToolResult("a", "f", "c\ud83d")
    )
    assert [item.get("content", item.get("output")) for item in items] == ["a\ufffd", "b\ufffd", None, "c\ufffd"]


def test_equal_histories_make_equal_requests() -> None:
    assert wire(*TALK) == wire(*TALK)


def test_tools_are_flat_and_their_schema_is_left_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert responses_tools([ToolSpec("f", "Does f.", schema)]) == [
        {"type": "function", "name": "f", "description": "Does f.", "parameters": schema, "strict": False}
    ]
