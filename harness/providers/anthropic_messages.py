"""Our conversation in the words of Anthropic's Messages API."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, assert_never

from harness.messages import (
    AssistantMessage,
    JsonObject,
    Reasoning,
    SummaryMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)
from harness.providers.base import ModelRequest, ToolSpec
from harness.providers.profiles import ProviderProfile
from harness.providers.request_parts import ANTHROPIC_THINKING, CallIds, user_text, whole, with_turns

_ANYTHING: Final[JsonObject] = {"type": "object"}


def anthropic_body(request: ModelRequest, profile: ProviderProfile) -> dict[str, object]:
    """What the conversation makes of the body: `messages`, and `system` and the tools where there are any.

    The history must be a valid one: each call has its result behind it.
    """
    body: dict[str, object] = {"messages": anthropic_messages(request, profile)}
    if request.system.strip():
        body["system"] = whole(request.system)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    elif called := _names_of_calls(request):
        # The API takes no calls in a history, unless tools are declared; and none of these is on offer any more.
        body["tools"] = [{"name": name, "input_schema": _ANYTHING} for name in called]
        body["tool_choice"] = {"type": "none"}
    return body


def anthropic_messages(request: ModelRequest, profile: ProviderProfile) -> list[JsonObject]:
    """The `messages` field.

    The roles alternate, as the API demands: neighbours of one role become one message of several blocks. A text block
    is never blank, which the API refuses; a message without any block is left out.
    """
    ids = CallIds("word")
    wire: list[_Message] = []
    for message, in_tool_turn in with_turns(request.messages):
        match message:
            case UserMessage() | SummaryMessage():
                _add(wire, _Message("user", rest=_text(user_text(message))))
            case AssistantMessage():
                calls = [_call(call, ids.of_call(call)) for call in message.tool_calls]
                with_thinking = in_tool_turn or profile.replay_reasoning == "always"
                thinking = _thinking(message) if with_thinking and profile.replay_reasoning != "never" else []
                answer = [*_text(whole(message.text)), *calls]
                # A message of thoughts alone is none that the API takes back.
                _add(wire, _Message("assistant", thinking if answer else [], answer))
            case ToolResult():
                _add(wire, _Message("user", [_result(message, ids.of_result(message))]))
            case _:
                assert_never(message)
    return [{"role": message.role, "content": message.first + message.rest} for message in wire]


@dataclass(slots=True)
class _Message:
    """A message being written. `first`: the blocks that the API wants before all others, thinking and tool results."""

    role: Literal["user", "assistant"]
    first: list[JsonObject] = field(default_factory=list[JsonObject])
    rest: list[JsonObject] = field(default_factory=list[JsonObject])


def _add(wire: list[_Message], message: _Message) -> None:
    if wire and wire[-1].role == message.role:
        wire[-1].first += message.first
        wire[-1].rest += message.rest
    elif message.first or message.rest:
        wire.append(message)


def _text(text: str) -> list[JsonObject]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _thinking(message: AssistantMessage) -> list[JsonObject]:
    """The blocks as they came, since their signatures are checked; what came over another protocol has none."""
    thoughts = [part for part in message.parts if isinstance(part, Reasoning) and part.field == ANTHROPIC_THINKING]
    return [block for thought in thoughts for block in thought.details]


def _call(call: ToolCall, wire_id: str) -> JsonObject:
    # A malformed call goes back without its arguments; its result says why. `provider_data` stays behind: it belongs to
    # another protocol, and this API refuses fields that it does not know.
    return {"type": "tool_use", "id": wire_id, "name": call.name, "input": call.arguments or {}}


def _result(result: ToolResult, wire_id: str) -> JsonObject:
    wire: dict[str, object] = {"type": "tool_result", "tool_use_id": wire_id}
    if result.content.strip():
        wire["content"] = whole(result.content)
    if result.is_error:
        wire["is_error"] = True
    return wire


def _tool(tool: ToolSpec) -> JsonObject:
    wire: dict[str, object] = {"name": tool.name, "input_schema": tool.parameters}
    return wire | {"description": tool.description} if tool.description else wire


def _names_of_calls(request: ModelRequest) -> Sequence[str]:
    messages = [message for message in request.messages if isinstance(message, AssistantMessage)]
    return list(dict.fromkeys(call.name for message in messages for call in message.tool_calls))
