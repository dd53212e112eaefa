"""Our conversation in the words of the Responses API."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from harness.messages import AssistantMessage, JsonObject, Reasoning, SummaryMessage, ToolResult, UserMessage
from harness.providers.base import ModelRequest, ToolSpec
from harness.providers.profiles import ProviderProfile
from harness.providers.request_parts import (
    RESPONSES_REASONING,
    CallIds,
    user_text,
    whole,
    wire_arguments,
    with_turns,
)


def responses_input(request: ModelRequest, profile: ProviderProfile) -> list[JsonObject]:
    """The `input` field. The history must be a valid one: each call has its result behind it."""
    wire: list[JsonObject] = []
    ids = CallIds(profile.tool_call_id_style)
    for message, in_tool_turn in with_turns(request.messages):
        match message:
            case UserMessage() | SummaryMessage():
                wire.append({"role": "user", "content": user_text(message)})
            case AssistantMessage():
                if in_tool_turn:
                    wire.extend(_reasoning(message))
                # An empty message says nothing, and some servers refuse it.
                if message.text:
                    wire.append({"role": "assistant", "content": whole(message.text)})
                wire.extend(
                    {
                        "type": "function_call",
                        "call_id": ids.of_call(call),
                        "name": call.name,
                        "arguments": wire_arguments(call),
                    }
                    for call in message.tool_calls
                )
            case ToolResult():
                wire.append(
                    {
                        "type": "function_call_output",
                        "call_id": ids.of_result(message),
                        "output": whole(message.content),
                    }
                )
            case _:
                assert_never(message)
    return wire


def responses_tools(tools: Sequence[ToolSpec]) -> list[JsonObject]:
    """The `tools` field."""
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            # The API's default would rewrite the schema and refuse what it cannot rewrite.
            "strict": False,
        }
        for tool in tools
    ]


def _reasoning(message: AssistantMessage) -> Iterator[JsonObject]:
    """The reasoning items as the server sent them.

    One without content is only a reference to what the server kept, and we ask it to keep nothing. `status` is said of
    an output; as input the API refuses it.
    """
    for part in message.parts:
        if isinstance(part, Reasoning) and part.field == RESPONSES_REASONING:
            for item in part.details:
                if item.get("encrypted_content") or item.get("content"):
                    yield {name: value for name, value in item.items() if name != "status"}
