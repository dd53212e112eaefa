"""One run while it goes on, as data: what the engine works on and what is left to write down when it ends early."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from harness.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, Usage
from harness.reporters.base import EventSink
from harness.tools.executor import CANCELED, CUT_OFF, Caller

FAILURES_BEFORE_REMINDER: Final = 3
"""How often the same call may fail before the model is reminded; once more ends the run."""


@dataclass(slots=True)
class RunState:
    """One run while it goes on. Owned by one asyncio task; nothing in it is shared with another run."""

    sink: EventSink
    caller: Caller
    history: list[Message]
    save: Callable[[Sequence[Message]], Awaitable[None]]
    turns: int = 0
    tool_calls: int = 0
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    answered: list[str] = field(default_factory=list[str])
    pieces: list[str] = field(default_factory=list[str])
    running: AssistantMessage | None = None
    verdicts: dict[str, str] = field(default_factory=dict[str, str])
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    denials: int = 0
    replayed: bool = False
    failures: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])

    @property
    def answer(self) -> str:
        """All text shown so far, turns separated by a blank line, exactly as a card shows it."""
        return "\n\n".join([text for text in (*self.answered, "".join(self.pieces)) if text])

    def note_failures(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> int:
        """Count calls that failed again with the same arguments; the highest count once a reminder is due, else 0."""
        failed: dict[tuple[str, str], int] = {}
        for call, result in zip(calls, results, strict=True):
            if result.is_error:
                key = (call.name, call.raw_arguments)
                failed[key] = self.failures.get(key, 0) + 1
        self.failures = failed
        most = max(failed.values(), default=0)
        return most if most >= FAILURES_BEFORE_REMINDER else 0

    def unsaved(self, *, canceled: bool) -> list[Message]:
        """What a run that ended early still has to write down.

        Calls that were under way get a result that says so, since nobody knows whether they took effect.
        """
        if self.running is not None:
            return [
                self.running,
                *(
                    self.results.get(call.id)
                    or ToolResult(call.id, call.name, CANCELED if canceled else CUT_OFF, is_error=True)
                    for call in self.running.tool_calls
                ),
            ]
        if text := "".join(self.pieces):
            return [AssistantMessage((Text(text),), "interrupted" if canceled else "failed")]
        return []
