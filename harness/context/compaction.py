"""When a conversation has to become shorter, and what of it is left out. Pure.

The cheap way goes first: results of tools from long ago are sent in short, and thinking not at all. Only when that is
not enough, a text takes the place of the older part. The newest exchanges stay whole either way. An exchange is a
person's message, or an answer with the results of its calls: nothing is ever cut inside of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness.context.sizes import BYTES_PER_TOKEN, message_tokens, text_tokens, tokens
from harness.history import newest_mark, prepare_history, stretch
from harness.messages import AssistantMessage, Message, SummaryMessage, ToolResult, Usage, UserMessage

TRIGGER: Final = 0.75
"""The share of the context window from which on a conversation is compacted."""
TARGET: Final = 0.5
"""The share that it takes afterwards, so that there is a while until the next time."""
FULL: Final = 0.95
"""The share from which on there is no waiting for a better moment."""
MAX_SUMMARY_TOKENS: Final = 4_000
MIN_SUMMARY_TOKENS: Final = 64
_MIN_SHARE: Final = 0.1
_QUOTE_CHARS: Final = 200
_DIGEST_HEAD: Final = (
    "[{count:,} older messages are left out here, and there is no summary of them. What was said in them is not known. "
    "What the person asked in them, shortened:]"
)


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens by estimate that a conversation may take, after what goes with every request.

    `limit`: at most. `target`: after compaction. `recent`: of that, the newest exchanges, which stay whole.
    """

    limit: int
    target: int
    recent: int

    @classmethod
    def of(cls, window: int, frame: int, scale: float) -> "Room":
        """The room in a context window. `scale`: how many tokens the server counts for one of the estimate."""
        usable = window / scale
        least = int(usable * _MIN_SHARE)
        target = max(least, int(usable * TARGET) - frame)
        return cls(max(least, int(usable * TRIGGER) - frame), target, target // 2)

    @property
    def summary(self) -> int:
        """What a summary may take."""
        return max(MIN_SUMMARY_TOKENS, min(MAX_SUMMARY_TOKENS, self.target // 4))


def trimmed(log: Sequence[Message], room: Room) -> SummaryMessage:
    """The mark of the cheap way: what was covered stays covered, and results before the newest exchanges are short."""
    before = newest_mark(log) or SummaryMessage("")
    trims = max(before.trims, recent_from(log, before.covers, room.recent))
    return SummaryMessage(before.text, before.covers, trims, len(log))


def covering(log: Sequence[Message], cut: int, text: str, room: Room, usage: Usage) -> SummaryMessage:
    """The mark with which `text` takes the place of everything before `cut`."""
    mark = SummaryMessage(fitted(text, room.summary), cut, cut, len(log), usage)
    # A newest exchange that fills the window alone: better its results in short than no answer at all.
    return mark if sent_tokens(log, mark) <= room.limit else replace(mark, trims=len(log))


def sent_tokens(log: Sequence[Message], mark: SummaryMessage) -> int:
    """What the conversation takes once the mark is appended to it."""
    return tokens(prepare_history([*log, mark]))


def recent_from(log: Sequence[Message], start: int, limit: int) -> int:
    """Where the newest exchanges begin that take at most `limit` tokens together; the newest one counts in any case.

    With a person's message, if there is one among them: whole turns read better than the rest of one.
    """
    fitting: list[int] = []
    size, end = 0, len(log)
    for index in reversed(_boundaries(log, start)):
        size += tokens(stretch(log, index, end))
        if size > limit and fitting:
            break
        fitting.append(index)
        end = index
    spoken = [index for index in fitting if isinstance(log[index], UserMessage)]
    return min(spoken or fitting, default=start)


def growth(log: Sequence[Message]) -> int:
    """Tokens that have come since the newest mark."""
    mark = newest_mark(log)
    return sum([message_tokens(message) for message in log[mark.position + 1 if mark else 0 :]])


def digest(log: Sequence[Message], cut: int, limit: int) -> str:
    """What can be said of the part before `cut` without a model: the summary before it, and the person's requests.

    The newest requests go first when there is no room for all.
    """
    before = newest_mark(log) or SummaryMessage("")
    head = _DIGEST_HEAD.format(count=cut - before.covers)
    earlier = fitted(before.text, limit // 2)
    left = limit - text_tokens(earlier) - text_tokens(head)
    asked: list[str] = []
    for message in reversed(log[before.covers : cut]):
        if not isinstance(message, UserMessage):
            continue
        line = f"- {message.speaker + ': ' if message.speaker else ''}{' '.join(message.text.split())[:_QUOTE_CHARS]}"
        left -= text_tokens(line) + 1
        if left < 0:
            break
        asked.append(line)
    return "\n".join([*([earlier, ""] if earlier else []), head, *reversed(asked)])


def fitted(text: str, limit: int) -> str:
    """The text, or as much of its beginning as takes at most `limit` tokens."""
    if text_tokens(text) <= limit:
        return text
    room = max(0, limit * BYTES_PER_TOKEN - len("…".encode()))
    return text.encode(errors="surrogatepass")[:room].decode(errors="ignore").rstrip() + "…"


def described(log: Sequence[Message], mark: SummaryMessage) -> str:
    """What compaction did, in a few words."""
    before = newest_mark(log)
    if mark.covers > (before.covers if before else 0):
        return f"compacted {mark.covers:,} messages into {len(mark.text):,} characters"
    return f"compacted the results of tools in {mark.trims:,} messages"


def _boundaries(log: Sequence[Message], start: int) -> list[int]:
    """Where the log may be cut from `start` on: before an answer, and before a person's message.

    Not before a message behind which a result of an earlier call still comes: it would lose its call.
    """
    found: list[int] = []
    owed = False
    for index in range(len(log) - 1, start - 1, -1):
        match log[index]:
            case ToolResult():
                owed = True
            case AssistantMessage():
                found.append(index)
                owed = False
            case UserMessage() if not owed:
                found.append(index)
            case _:
                pass
    return found[::-1]
