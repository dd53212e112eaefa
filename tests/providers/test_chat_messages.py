from harness.messages import AssistantMessage, Reasoning, SummaryMessage, Text, ToolCall, ToolResult, UserMessage
from harness.providers.base import ModelRequest
from harness.providers.chat_messages import chat_messages
from harness.providers.profiles import DEFAULT, ProviderProfile


def wire(*messages, profile: ProviderProfile = DEFAULT, system: str = ""):
    return chat_messages(ModelRequest(system, messages), profile)


def called(ident: str, provider_id: str = "", **more) -> ToolCall:
    return ToolCall(ident, "f", {"a": 1}, '{"a": 1}', provider_id, **more)


def test_a_speaker_is_named() -> None:
    assert wire(UserMessage("hi"), UserMessage("hi", "alice")) == [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": "alice: hi"},
    ]


def test_a_summary_is_said_to_be_one() -> None:
    (message,) = wire(SummaryMessage("they met"))
    assert message == {"role": "user", "content": "Summary of the conversation so far:\nthey met"}


def test_the_server_gets_its_own_ids_back_and_ours_where_it_had_none() -> None:
    _, first, second = wire(
        AssistantMessage((called("a", "functions.f:0"), called("b"))),
        ToolResult("a", "f", "1"),
        ToolResult("b", "f", "2"),
    )
    assert (first["tool_call_id"], second["tool_call_id"]) == ("functions.f:0", "b")


def test_an_id_that_occurs_twice_gets_a_suffix() -> None:
    messages = wire(
        AssistantMessage((called("a", "x"),)),
        ToolResult("a", "f", "1"),
        AssistantMessage((called("b", "x"),)),
        ToolResult("b", "f", "2"),
    )
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == ["x", "x_2"]
    assert messages[2]["tool_calls"][0]["id"] == "x_2"


def test_ids_in_a_style_of_their_own() -> None:
    profile = ProviderProfile(tool_call_id_style="alphanumeric9", tool_result_name=True)
    assistant, result = wire(AssistantMessage((called("call_1"),)), ToolResult("call_1", "f", "1"), profile=profile)
    ident = assistant["tool_calls"][0]["id"]
    assert (len(ident), ident.isalnum(), ident) == (9, True, result["tool_call_id"])
    assert result["name"] == "f"


def test_arguments_are_always_an_object() -> None:
    calls = (ToolCall("a", "f", {}, ""), ToolCall("b", "f", None, '{"broken'), called("c"))
    (message,) = wire(AssistantMessage(calls))
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == ["{}", "{}", '{"a": 1}']
    assert message["content"] == ""


def test_opaque_data_goes_back_with_its_call() -> None:
    data = {"extra_content": {"google": {"thought_signature": "s"}}}
    (message,) = wire(AssistantMessage((called("a", provider_data=data),)))
    assert message["tool_calls"][0]["extra_content"] == data["extra_content"]


THOUGHT = Reasoning("hm", "reasoning_content")
TALK = [
    UserMessage("1"),
    AssistantMessage((THOUGHT, called("a"))),
    ToolResult("a", "f", "1"),
    AssistantMessage((THOUGHT, Text("done"))),
    UserMessage("2"),
    AssistantMessage((THOUGHT, Text("ok"))),
]


def replayed(mode) -> list[int]:
    messages = wire(*TALK, profile=ProviderProfile(replay_reasoning=mode))
    return [number for number, message in enumerate(messages) if message.get("reasoning_content") == "hm"]


def test_thinking_goes_back_as_the_profile_says() -> None:
    assert replayed("never") == []
    assert replayed("tool_turns") == [1, 3]
    assert replayed("always") == [1, 3, 5]


def test_thinking_goes_back_in_the_form_it_came_in() -> None:
    profile = ProviderProfile(replay_reasoning="always")
    details = ({"type": "reasoning.encrypted", "data": "x"},)
    tagged, detailed = wire(
        AssistantMessage((Reasoning("hm", "<think>"), Text("Hi"))),
        AssistantMessage((Reasoning("hm", "reasoning_details", details), Text("Hi"))),
        profile=profile,
    )
    assert tagged == {"role": "assistant", "content": "<think>hm</think>\n\nHi"}
    assert detailed == {"role": "assistant", "content": "Hi", "reasoning_details": list(details)}


def test_equal_histories_make_equal_requests() -> None:
    assert wire(*TALK, system="s") == wire(*TALK, system="s")
