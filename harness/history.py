"""From the stored log to a history that any model server accepts. Pure; works on a copy, the log stays raw.

Deterministic on purpose (no clock, no random): equal logs give equal prompts, so that a server's prompt cache holds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from harness.messages import AssistantMessage, Message, Part, SummaryMessage, Text, ToolCall, ToolResult, UserMessage

STOPPED_MARK: Final = "\n\n[The person stopped this answer here.]"
NO_RESULT: Final = "No result: the call was interrupted, and whether it took effect is unknown. Do not assume either."


def prepare_history(log: Sequence[Message]) -> list[Message]:
    """A valid history: every call has exactly one result right behind it, and nothing half-written is in it.

    The first result of a call wins; a missing one is filled in as an error; results without a call are dropped; call
    ids that occur again later are renamed. Of an answer that a person stopped, the text stays, with a mark; an answer
    that broke off is left out. Calls of either were never carried out and are left out.
    """
    results = _results(log)
    used: set[str] = set()
    history: list[Message] = []
    for index, message in enumerate(log):
        match message:
            case UserMessage() | SummaryMessage():
                history.append(message)
            case ToolResult():
                pass  # placed behind its call below
            case AssistantMessage(state="complete"):
                history.extend(_with_results(message, results.get(index, {}), used))
            case AssistantMessage(state="interrupted"):
                if message.text:
                    history.append(AssistantMessage((Text(message.text + STOPPED_MARK),)))
            case AssistantMessage():
                pass
    return history


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
            part = replace(part, id=_unique(part.id, used))
            placed.append(replace(result, call_id=part.id))
        parts.append(part)
    yield replace(message, parts=tuple(parts))
    yield from placed


def _unique(call_id: str, used: set[str]) -> str:
    candidate, n = call_id, 2
    while candidate in used:
        candidate, n = f"{call_id}-{n}", n + 1
    used.add(candidate)
    return candidate
