from typing import Any

import pytest

from harness.messages import AssistantMessage, Reasoning, SummaryMessage, Text, ToolCall, ToolResult, UserMessage
from harness.providers.anthropic_messages import anthropic_body
from harness.providers.base import ModelRequest, ToolSpec
from harness.providers.profiles import DEFAULT, ProviderProfile
from harness.providers.request_parts import ANTHROPIC_THINKING

TOOL = ToolSpec("f", "Does f.", {"type": "object", "properties": {}})
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "s"}
HIDDEN = {"type": "redacted_thinking", "data": "d"}
THOUGHT = Reasoning("hm", ANTHROPIC_THINKING, (SIGNED, HIDDEN))


def wire(*messages: Any, profile: ProviderProfile = DEFAULT) -> Any:
    return anthropic_body(ModelRequest("", messages, [TOOL]), profile)["messages"]


def called(ident: str, provider_id: str = "", **more: Any) -> ToolCall:
    return ToolCall(ident, "f", {"a": 1}, '{"a": 1}', provider_id, **more)


def said(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def use(ident: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": "f", "input": {"a": 1}}


def result(ident: str, content: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": ident, "content": content, **more}


def test_speakers_and_summaries_are_named_and_neighbours_of_one_role_are_one_message() -> None:
    assert wire(SummaryMessage("they met"), UserMessage("hi", "alice"), UserMessage("hello")) == [
        {
            "role": "user",
            "content": [said("Summary of the conversation so far:\nthey met"), said("alice: hi"), said("hello")],
        }
    ]


def test_results_come_first_in_the_message_behind_their_calls() -> None:
    messages = wire(
        UserMessage("go"),
        AssistantMessage((Text("Well:"), called("a", "toolu_1"), called("b"))),
        ToolResult("a", "f", "1"),
        ToolResult("b", "f", "no", is_error=True),
        UserMessage("and now?"),
    )
    assert messages == [
        {"role": "user", "content": [said("go")]},
        {"role": "assistant", "content": [said("Well:"), use("toolu_1"), use("b")]},
        {"role": "user", "content": [result("toolu_1", "1"), result("b", "no", is_error=True), said("and now?")]},
    ]


def test_nothing_blank_is_sent() -> None:
    messages = wire(
        UserMessage("go"),
        AssistantMessage((Text(" \n"),)),
        UserMessage(" "),
        AssistantMessage((Text("\n"), called("a"))),
        ToolResult("a", "f", " "),
    )
    assert messages == [
        {"role": "user", "content": [said("go")]},
        {"role": "assistant", "content": [use("a")]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
    ]


def test_an_id_that_occurs_twice_gets_a_suffix_and_one_that_the_api_refuses_another_form() -> None:
    calls = (called("a", "x"), called("b", "x"), called("c", "functions.f:0"), called("d", "y" * 65))
    results = [ToolResult(call.id, "f", "1") for call in calls]
    assistant, user = wire(AssistantMessage(calls), *results)
    ids = [block["id"] for block in assistant["content"]]
    assert ids[:2] == ["x", "x_2"]
    assert all(len(ident) <= 64 and ident.replace("_", "").isalnum() for ident in ids)
    assert [block["tool_use_id"] for block in user["content"]] == ids
    assert len(set(ids)) == 4


def test_input_is_always_an_object() -> None:
    (message,) = wire(AssistantMessage((ToolCall("a", "f", {}, ""), ToolCall("b", "f", None, '{"broken'), called("c"))))
    assert [block["input"] for block in message["content"]] == [{}, {}, {"a": 1}]


def test_what_belongs_to_another_protocol_stays_behind() -> None:
    call = called("a", provider_data={"extra_content": {"google": {}}})
    foreign = (Reasoning("hm", "reasoning_content"), Reasoning("", "reasoning_details", ({"type": "x"},)))
    (message,) = wire(AssistantMessage((*foreign, Reasoning("hm", "<think>"), Text("Hi"), call)))
    assert message["content"] == [said("Hi"), use("a")]


TALK = [
    UserMessage("1"),
    AssistantMessage((THOUGHT, Text("Let me see."), called("a"))),
    ToolResult("a", "f", "1"),
    AssistantMessage((Text("do"), THOUGHT, Text("ne"))),
    UserMessage("2"),
    AssistantMessage((THOUGHT, Text("ok"))),
]


@pytest.mark.parametrize(
    ("replay", "where"), [(None, [1, 3]), ("tool_turns", [1, 3]), ("always", [1, 3, 5]), ("never", [])]
)
def test_thinking_goes_back_as_it_came_and_first(replay: Any, where: list[int]) -> None:
    messages = wire(*TALK, profile=ProviderProfile(replay_reasoning=replay))
    assert [number for number, message in enumerate(messages) if SIGNED in message["content"]] == where
    for number in where:
        assert messages[number]["content"][:2] == [SIGNED, HIDDEN]
    assert messages[3]["content"][-1] == said("done")


def test_thinking_comes_first_also_where_two_answers_become_one_message() -> None:
    answers = [AssistantMessage((Text("one"),)), AssistantMessage((THOUGHT, Text("two"), called("a")))]
    _, message, _ = wire(UserMessage("go"), *answers, ToolResult("a", "f", "1"))
    assert message["content"] == [SIGNED, HIDDEN, said("one"), said("two"), use("a")]


def test_an_answer_of_thoughts_alone_is_left_out() -> None:
    profile = ProviderProfile(replay_reasoning="always")
    assert wire(UserMessage("a"), AssistantMessage((THOUGHT,)), UserMessage("b"), profile=profile) == [
        {"role": "user", "content": [said("a"), said("b")]}
    ]


def test_system_and_tools_are_sent_when_there_are_any() -> None:
    ask = [UserMessage("hi")]
    assert set(anthropic_body(ModelRequest(" ", ask), DEFAULT)) == {"messages"}
    body = anthropic_body(ModelRequest("Be brief.", ask, [TOOL, ToolSpec("g", "", {"type": "object"})]), DEFAULT)
    assert body["system"] == "Be brief."
    assert body["tools"] == [
        {"name": "f", "description": "Does f.", "input_schema": {"type": "object", "properties": {}}},
        {"name": "g", "input_schema": {"type": "object"}},
    ]
    assert "tool_choice" not in body


def test_tools_of_the_past_are_declared_but_not_on_offer() -> None:
    body = anthropic_body(ModelRequest("", TALK), DEFAULT)
    assert body["tools"] == [{"name": "f", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


def test_lone_surrogates_are_replaced() -> None:
    body = anthropic_body(ModelRequest("s\ud83d", [UserMessage("a\ud83db")]), DEFAULT)
    assert (body["system"], body["messages"]) == ("s\ufffd", [{"role": "user", "content": [said("a\ufffdb")]}])


def test_equal_histories_make_equal_requests() -> None:
    assert wire(*TALK) == wire(*TALK)
