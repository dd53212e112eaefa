"""Our conversation in the words of chat completions. Pure and deterministic: a server's prompt cache relies on it."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import assert_never

from harness.messages import (
    AssistantMessage,
    JsonObject,
    Message,
    Reasoning,
    SummaryMessage,
    ToolCall,
    ToolResult,
    UserMessage,
)
from harness.providers.assembler import THINK_TAG_FIELD
from harness.providers.base import ModelRequest, ToolSpec
from harness.providers.profiles import ProviderProfile

_MISTRAL_ID_CHARS = 9


def chat_messages(request: ModelRequest, profile: ProviderProfile) -> list[JsonObject]:
    """The `messages` field. The history must be a valid one: each call has its result behind it."""
    wire: list[JsonObject] = []
    if request.system:
        wire.append({"role": profile.system_role, "content": _whole(request.system)})
    ids = _CallIds(profile)
    for message, in_tool_turn in _with_turns(request.messages):
        match message:
            case UserMessage(text=text, speaker=speaker):
                wire.append({"role": "user", "content": _whole(f"{speaker}: {text}" if speaker else text)})
            case SummaryMessage(text=text):
                wire.append({"role": "user", "content": f"Summary of the conversation so far:\n{_whole(text)}"})
            case AssistantMessage():
                replay = profile.replay_reasoning
                with_reasoning = replay == "always" or (replay == "tool_turns" and in_tool_turn)
                wire.append(_assistant(message, ids, with_reasoning=with_reasoning))
            case ToolResult():
                result = {"role": "tool", "tool_call_id": ids.of_result(message), "content": _whole(message.content)}
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


def _assistant(message: AssistantMessage, ids: "_CallIds", *, with_reasoning: bool) -> JsonObject:
    # A plain string, never null or a list of parts: some servers refuse those.
    wire: dict[str, object] = {"role": "assistant", "content": _whole(message.text)}
    if with_reasoning:
        for part in message.parts:
            if isinstance(part, Reasoning):
                _add_reasoning(wire, part)
    if message.tool_calls:
        wire["tool_calls"] = [_call(call, ids.of_call(call)) for call in message.tool_calls]
    return wire


def _add_reasoning(wire: dict[str, object], part: Reasoning) -> None:
    """Thinking goes back in the field it came in."""
    if part.details:
        wire["reasoning_details"] = list(part.details)
    if not part.text or part.field == "reasoning_details":
        return
    if part.field == THINK_TAG_FIELD:
        wire["content"] = f"<think>{_whole(part.text)}</think>\n\n{wire['content']}"
    elif part.field:
        wire[part.field] = f"{wire.get(part.field, '')}{_whole(part.text)}"


def _call(call: ToolCall, wire_id: str) -> JsonObject:
    # A malformed call goes back without its arguments: a server may refuse what is no JSON, and the result says why.
    arguments = "{}" if call.is_malformed else call.raw_arguments.strip() or "{}"
    return {
        **(call.provider_data or {}),
        "id": wire_id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


class _CallIds:
    """The id of each call on the wire: the server's own, unchanged, with a suffix only where it would occur twice."""

    def __init__(self, profile: ProviderProfile) -> None:
        self._style = profile.tool_call_id_style
        self._wire_ids: dict[str, str] = {}
        self._used: set[str] = set()

    def of_call(self, call: ToolCall) -> str:
        wanted = wire_id = self._styled(call.provider_id or call.id)
        number = 1
        while wire_id in self._used:
            number += 1
            wire_id = self._styled(f"{wanted}_{number}")
        self._used.add(wire_id)
        self._wire_ids[call.id] = wire_id
        return wire_id

    def of_result(self, result: ToolResult) -> str:
        return self._wire_ids.get(result.call_id, result.call_id)

    def _styled(self, wire_id: str) -> str:
        if self._style == "any" or (len(wire_id) == _MISTRAL_ID_CHARS and wire_id.isascii() and wire_id.isalnum()):
            return wire_id
        return hashlib.sha256(wire_id.encode()).hexdigest()[:_MISTRAL_ID_CHARS]


def _with_turns(messages: Sequence[Message]) -> Iterator[tuple[Message, bool]]:
    """Each message, and whether its turn (from one user message to the next) called tools."""
    calling: set[int] = set()
    turn = 0
    turns: list[int] = []
    for message in messages:
        turn += isinstance(message, UserMessage)
        turns.append(turn)
        if isinstance(message, AssistantMessage) and message.tool_calls:
            calling.add(turn)
    for message, number in zip(messages, turns, strict=True):
        yield message, number in calling


def _whole(text: str) -> str:
    """The text without lone surrogates, which no JSON body can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
