"""How many tokens a conversation takes: by estimate, and set right by what the server reported of it. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final

from harness.history import newest_mark, prepare_history
from harness.messages import AssistantMessage, Message, Reasoning, ToolCall, ToolResult, UserMessage
from harness.providers.base import ModelRequest

BYTES_PER_TOKEN: Final = 4
_MESSAGE: Final = 4
"""What the frame of a message takes, and that of a call."""
_MAX_SCALE: Final = 8.0


def text_tokens(text: str) -> int:
    """Tokens of a text, roughly: by its bytes in UTF-8, which comes near the truth for Chinese as for English."""
    size = len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
    return -(-size // BYTES_PER_TOKEN)


def message_tokens(message: Message) -> int:
    """Tokens of a message, roughly. Thinking counts where it goes back as blocks; most servers take none back."""
    match message:
        case AssistantMessage(parts=parts):
            return _MESSAGE + sum([_part_tokens(part) for part in parts])
        case ToolResult(content=content):
            return _MESSAGE + text_tokens(content)
        case UserMessage(text=text, speaker=speaker):
            return _MESSAGE + text_tokens(text) + text_tokens(speaker)
        case _:
            return _MESSAGE + text_tokens(message.text)


def tokens(messages: Iterable[Message]) -> int:
    """Tokens of messages as they are sent, roughly."""
    return sum([message_tokens(message) for message in messages])


def frame_tokens(frame: ModelRequest) -> int:
    """Tokens of what goes with every request of a run, the system prompt and the tools, roughly."""
    offered = [
        text_tokens(tool.name) + text_tokens(tool.description) + text_tokens(str(tool.parameters))
        for tool in frame.tools
    ]
    return text_tokens(frame.system) + sum(offered)


def request_tokens(log: Sequence[Message], frame: ModelRequest) -> int:
    """Tokens of the next request: what the server counted for the newest answer and what came after it.

    By estimate where there is no such answer since the newest mark of compaction.
    """
    mark = newest_mark(log)
    newest = _newest_count(log, mark.position if mark else -1)
    if newest >= 0:
        answer = log[newest]
        assert isinstance(answer, AssistantMessage)
        return answer.usage.input_tokens + tokens(log[newest:])
    estimate = frame_tokens(frame) + tokens(prepare_history(log))
    return estimate if mark is None else round(scale(log, frame) * estimate)


def scale(log: Sequence[Message], frame: ModelRequest) -> float:
    """How many times the estimate the server counts, by the newest answer of which it said so; at least 1."""
    newest = _newest_count(log, -1)
    if newest < 0:
        return 1.0
    answer = log[newest]
    assert isinstance(answer, AssistantMessage)
    # The log up to there, marks included, gives the very request that was counted.
    estimate = frame_tokens(frame) + tokens(prepare_history(log[:newest]))
    return min(_MAX_SCALE, max(1.0, answer.usage.input_tokens / max(1, estimate)))


def _newest_count(log: Sequence[Message], after: int) -> int:
    """Where the newest answer stands whose tokens the server counted, behind `after`; -1 when there is none."""
    for index in range(len(log) - 1, after, -1):
        message = log[index]
        if isinstance(message, AssistantMessage) and message.usage.input_tokens and not message.usage.estimated:
            return index
    return -1


def _part_tokens(part: object) -> int:
    match part:
        case ToolCall():
            return _MESSAGE + text_tokens(part.name) + text_tokens(part.raw_arguments)
        case Reasoning(details=details):
            return sum([text_tokens(str(block)) for block in details])
        case _:
            return text_tokens(str(getattr(part, "text", "")))
