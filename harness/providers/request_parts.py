"""What every wire protocol needs to write our conversation in its words. Pure and deterministic: a server's prompt
cache relies on it.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from harness.messages import AssistantMessage, Message, SummaryMessage, ToolCall, ToolResult, UserMessage

CallIdStyle = Literal["any", "alphanumeric9", "word"]
"""What a server takes as the id of a tool call: anything, exactly nine letters and digits, or letters, digits, _ and -
(at most 64)."""
ANTHROPIC_THINKING: Final = "anthropic:thinking"
RESPONSES_REASONING: Final = "responses:reasoning"
"""`Reasoning.field` of thinking that only the protocol it came over can take back; `details` then holds its blocks."""
FOREIGN_FIELDS: Final = frozenset({ANTHROPIC_THINKING, RESPONSES_REASONING})
"""Those that no chat-completions server knows."""
_ACCEPTED: Final = {
    "any": re.compile(r".+", re.DOTALL),
    "alphanumeric9": re.compile(r"[A-Za-z0-9]{9}"),
    "word": re.compile(r"[A-Za-z0-9_-]{1,64}"),
}
_HASH_CHARS: Final = {"any": 24, "alphanumeric9": 9, "word": 24}


class CallIds:
    """The id of each call on the wire: the server's own, unchanged, with a suffix only where it would occur twice."""

    def __init__(self, style: CallIdStyle) -> None:
        self._style: CallIdStyle = style
        self._wire_ids: dict[str, str] = {}
        self._used: set[str] = set()

    def of_call(self, call: ToolCall) -> str:
        """The id of the next call, in the order of the conversation."""
        wanted = wire_id = self._styled(call.provider_id or call.id)
        number = 1
        while wire_id in self._used:
            number += 1
            wire_id = self._styled(f"{wanted}_{number}")
        self._used.add(wire_id)
        self._wire_ids[call.id] = wire_id
        return wire_id

    def of_result(self, result: ToolResult) -> str:
        """The id of the call that the result belongs to."""
        return self._wire_ids.get(result.call_id, result.call_id)

    def _styled(self, wire_id: str) -> str:
        if _ACCEPTED[self._style].fullmatch(wire_id):
            return wire_id
        return hashlib.sha256(wire_id.encode(errors="surrogatepass")).hexdigest()[: _HASH_CHARS[self._style]]


def with_turns(messages: Sequence[Message]) -> Iterator[tuple[Message, bool]]:
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


def user_text(message: UserMessage | SummaryMessage) -> str:
    """What stands in a user message: the speaker's name goes first, where there is one."""
    if isinstance(message, SummaryMessage):
        return f"Summary of the conversation so far:\n{whole(message.text)}"
    return whole(f"{message.speaker}: {message.text}" if message.speaker else message.text)


def whole(text: str) -> str:
    """The text without lone surrogates, which no JSON body can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def wire_arguments(call: ToolCall) -> str:
    """The arguments as the text of a JSON object, never "".

    A malformed call goes back without its arguments: a server may refuse what is no JSON, and the result says why.
    """
    return "{}" if call.is_malformed else call.raw_arguments.strip() or "{}"
