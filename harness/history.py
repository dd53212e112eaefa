"""From the stored log to a history that any model server accepts. Pure; works on a copy, the log stays raw.

Deterministic on purpose (no clock, no random): equal logs give equal prompts, so that a server's prompt cache holds.
For the same reason nothing is shortened by the size that the log happens to have. What was compacted is said in the log
(`SummaryMessage`), and until the next such mark a history only grows at its end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from harness.messages import (
    AssistantMessage,
    Message,
    Part,
    Reasoning,
    SummaryMessage,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)

STOPPED_MARK: Final = "\n\n[The person stopped this answer here.]"
NO_RESULT: Final = "No result: the call was interrupted, and whether it took effect is unknown. Do not assume either."
ACKNOWLEDGED: Final = "I have read the summary and go on from there."
"""What the model is made to say between a summary and a person's message: some servers want the roles to alternate."""
SHORT_RESULT_CHARS: Final = 300


def prepare_history(log: Sequence[Message]) -> list[Message]:
    """A valid history: every call has exactly one result right behind it, and nothing half-written is in it.

    The first result of a call wins; a missing one is filled in as an error; results without a call are dropped; call
    ids that occur again later are renamed. Of an answer that a person stopped, the text stays, with a mark; an answer
    that broke off is left out. Calls of either were never carried out and are left out.

    What the newest mark of compaction covers is left out for its text. A request that was worked on when it was made
    stays word for word.
    """
    mark = newest_mark(log)
    if mark is None:
        return list(_repaired([message for message in log if not _is_mark(message)]))
    request = newest_request(log[: mark.position])
    sent = stretch(log, mark.covers, len(log), trims=mark.trims, turn=request)
    if not mark.covers:
        return sent
    if 0 <= request < mark.covers:
        sent = [log[request], *sent]
    between = [AssistantMessage((Text(ACKNOWLEDGED),))] if sent and not isinstance(sent[0], AssistantMessage) else []
    return [SummaryMessage(mark.text), *between, *sent]


def newest_mark(log: Sequence[Message]) -> SummaryMessage | None:
    """The mark that counts, within its log: `covers` and `trims` never reach beyond it."""
    for index in range(len(log) - 1, -1, -1):
        message = log[index]
        if isinstance(message, SummaryMessage) and message.is_mark and message.position == index:
            covers = min(message.covers, index) if message.text else 0
            return replace(message, covers=covers, trims=min(message.trims, index))
    return None


def newest_request(log: Sequence[Message]) -> int:
    """Where the person's last message stands; -1 when there is none."""
    return next((i for i in range(len(log) - 1, -1, -1) if isinstance(log[i], UserMessage)), -1)


def stretch(log: Sequence[Message], start: int, stop: int, *, trims: int = 0, turn: int = 0) -> list[Message]:
    """The messages from `start` to `stop` as they are sent, without marks.

    Before `trims` the results of tools are shortened. Thinking is left out before `trims` too, but never from `turn`
    on: servers want that of the turn they are in.
    """
    taken: list[Message] = []
    for index in range(start, stop):
        message = log[index]
        if _is_mark(message):
            continue
        if index < trims and isinstance(message, ToolResult):
            message = replace(message, content=_shortened(message.content))
        elif index < min(trims, turn) and isinstance(message, AssistantMessage):
            message = replace(message, parts=tuple([p for p in message.parts if not isinstance(p, Reasoning)]))
        taken.append(message)
    return list(_repaired(taken))


def _is_mark(message: Message) -> bool:
    return isinstance(message, SummaryMessage) and message.is_mark


def _shortened(content: str) -> str:
    left_out = len(content) - SHORT_RESULT_CHARS
    if left_out <= SHORT_RESULT_CHARS:
        return content
    # The head stays: it also says when a result is the word of strangers.
    return (
        f"{content[:SHORT_RESULT_CHARS]}\n[... {left_out:,} characters of this result left out, for want of room ...]"
    )


def _repaired(log: Sequence[Message]) -> Iterator[Message]:
    results = _results(log)
    used: set[str] = set()
    for index, message in enumerate(log):
        match message:
            case UserMessage() | SummaryMessage():
                yield message
            case ToolResult():
                pass  # placed behind its call below
            case AssistantMessage(state="complete"):
                yield from _with_results(message, results.get(index, {}), used)
            case AssistantMessage(state="interrupted"):
                if message.text:
                    yield AssistantMessage((Text(message.text + STOPPED_MARK),))
            case AssistantMessage():
                pass


def _results(log: Sequence[Message]) -> dict[int, dict[str, list[ToolResult]]]:
    """For each assistant message (by its index) the results that follow it before the next one, by call id."""
    found: dict[int, dict[str, list[ToolResult]]] = {}
    current = -1
    for index, message in enumerate(log):
        if isinstance(message, AssistantMessage):
            current = index
        elif isinstance(message, ToolResult) and current >= 0:
            found.setdefault(current, {}).setdefault(message.call_id, []).append(message)
    return found


def _with_results(message: AssistantMessage, results: dict[str, list[ToolResult]], used: set[str]) -> Iterator[Message]:
    if not message.parts:
        return
    parts: list[Part] = []
    placed: list[ToolResult] = []
    for part in message.parts:
        if isinstance(part, ToolCall):
            # Calls of one message may share an id: each takes a result of its own, in order.
            found = results.get(part.id)
            result = found.pop(0) if found else ToolResult(part.id, part.name, NO_RESULT, is_error=True)
            if (unique := _unique(part.id, used)) != part.id:
                part, result = replace(part, id=unique), replace(result, call_id=unique)
            placed.append(result)
        parts.append(part)
    yield message if not placed else replace(message, parts=tuple(parts))
    yield from placed


def _unique(call_id: str, used: set[str]) -> str:
    candidate, n = call_id, 2
    while candidate in used:
        candidate, n = f"{call_id}-{n}", n + 1
    used.add(candidate)
    return candidate
