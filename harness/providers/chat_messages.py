"""Our conversation in the words of chat completions."""

from collections.abc import Sequence
from typing import assert_never

from harness.messages import (
    AssistantMessage,
    JsonObject,
    Reasoning,
    SummaryMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)
from harness.providers.answer import THINK_TAG_FIELD
from harness.providers.base import ModelRequest, ToolSpec
from harness.providers.profiles import ProviderProfile
from harness.providers.request_parts import FOREIGN_FIELDS, CallIds, user_text, whole, wire_arguments, with_turns

NOTHING_SAID = "(no answer)"
"""What stands between a tool result and the next user message where a server wants something there."""


def chat_messages(request: ModelRequest, profile: ProviderProfile) -> list[JsonObject]:
    """The `messages` field. The history must be a valid one: each call has its result behind it."""
    wire: list[JsonObject] = []
    if request.system:
        wire.append({"role": profile.system_role, "content": whole(request.system)})
    ids = CallIds(profile.tool_call_id_style)
    for message, in_tool_turn in with_turns(request.messages):
        match message:
            case UserMessage() | SummaryMessage():
                if profile.assistant_after_tool and wire and wire[-1]["role"] == "tool":
                    wire.append({"role": "assistant", "content": NOTHING_SAID})
                wire.append({"role": "user", "content": user_text(message)})
            case AssistantMessage():
                replay = profile.replay_reasoning
                with_reasoning = replay == "always" or (replay == "tool_turns" and in_tool_turn)
                wire.append(_assistant(message, ids, with_reasoning=with_reasoning))
            case ToolResult():
                result = {"role": "tool", "tool_call_id": ids.of_result(message), "content": whole(message.content)}
                wire.append(result | {"name": message.name} if profile.tool_result_name else result)
            case _:
                assert_never(message)
    return wire


def chat_tools(tools: Sequence[ToolSpec]) -> list[JsonObject]:
    """The `tools` field."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in tools
    ]


def _assistant(message: AssistantMessage, ids: CallIds, *, with_reasoning: bool) -> JsonObject:
    # A plain string, never null or a list of parts: some servers refuse those.
    wire: dict[str, object] = {"role": "assistant", "content": whole(message.text)}
    if with_reasoning:
        for part in message.parts:
            if isinstance(part, Reasoning):
                _add_reasoning(wire, part)
    if message.tool_calls:
        wire["tool_calls"] = [_call(call, ids.of_call(call)) for call in message.tool_calls]
    return wire


def _add_reasoning(wire: dict[str, object], part: Reasoning) -> None:
    """Thinking goes back in the field it came in; what another protocol brought is of no use here."""
    if part.field in FOREIGN_FIELDS:
        return
    if part.details:
        wire["reasoning_details"] = list(part.details)
    if not part.text or part.field == "reasoning_details":
        return
    if part.field == THINK_TAG_FIELD:
        wire["content"] = f"<think>{whole(part.text)}</think>\n\n{wire['content']}"
    elif part.field:
        wire[part.field] = f"{wire.get(part.field, '')}{whole(part.text)}"


def _call(call: ToolCall, wire_id: str) -> JsonObject:
    return {
        **(call.provider_data or {}),
        "id": wire_id,
        "type": "function",
        "function": {"name": call.name, "arguments": wire_arguments(call)},
    }
