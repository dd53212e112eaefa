"""What a card shows, as a value, and the pure step from one value to the next.

`fold` is called for every event of a task, also for each piece of text, so it must cost the same whatever the length
of the answer: the text is kept as pieces and joined only when somebody draws it.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, assert_never

from harness.errors import ERROR_KINDS, ErrorKind
from harness.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    MessageRetracted,
    ModelDelta,
    ModelEnded,
    ModelReasoning,
    ModelRetrying,
    ModelStarted,
    RunEnded,
    RunStarted,
    StepTaken,
    TaskStateChanged,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    UsageReported,
)
from harness.messages import JsonObject
from harness.status import TaskStatus


class Phase(StrEnum):
    """The state word on the card."""

    THINKING = "thinking"
    RUNNING = "running"
    WAITING = "waiting"
    QUEUED = "queued"
    DONE = "done"
    CANCELED = "canceled"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"

    @property
    def is_final(self) -> bool:
        """True when the card will not change any more."""
        return self in _FINAL


_FINAL = frozenset({Phase.DONE, Phase.CANCELED, Phase.FAILED, Phase.TIMED_OUT, Phase.INTERRUPTED})
_PHASE_OF_STATUS = {
    TaskStatus.QUEUED: Phase.QUEUED,
    TaskStatus.RUNNING: Phase.THINKING,
    TaskStatus.WAITING_APPROVAL: Phase.WAITING,
    TaskStatus.COMPLETED: Phase.DONE,
    TaskStatus.FAILED: Phase.FAILED,
    TaskStatus.CANCELED: Phase.CANCELED,
    TaskStatus.TIMED_OUT: Phase.TIMED_OUT,
    TaskStatus.INTERRUPTED: Phase.INTERRUPTED,
}

RowStatus = Literal["running", "done", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One call of a tool. `duration_ms` is None while it runs."""

    call_id: str
    name: str
    arguments: JsonObject | str
    status: RowStatus = "running"
    duration_ms: int | None = None


class Pieces:
    """An immutable string of pieces that is cheap to grow.

    Values share one list; only the newest may grow it in place, an older one copies. So appending costs the same at any
    length, and no value ever changes.
    """

    __slots__ = ("_items", "_size")

    def __init__(self, items: list[str] | None = None, size: int = 0) -> None:
        self._items = items if items is not None else []
        self._size = size

    def append(self, piece: str) -> "Pieces":
        """A value with one more piece."""
        items = self._items if self._size == len(self._items) else self._items[: self._size]
        items.append(piece)
        return Pieces(items, self._size + 1)

    def cut(self, size: int) -> "Pieces":
        """A value with the first `size` pieces only."""
        return Pieces(self._items, min(size, self._size))

    def __len__(self) -> int:
        return self._size

    def __str__(self) -> str:
        return "".join(self._items[: self._size])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pieces) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


@dataclass(frozen=True, slots=True)
class CardView:
    """Everything a card shows.

    `position` counts from 1 while queued. `error` is set on a card that ended badly,
    `reason` says why the task itself took its last step. `retry_attempt` is above 0 while
    the model is asked again. `turn_start` is where the text of the running model turn begins, in pieces.
    """

    phase: Phase = Phase.THINKING
    pieces: Pieces = field(default_factory=Pieces)
    tools: tuple[ToolRow, ...] = ()
    position: int = 0
    error: ErrorKind | None = None
    stop_by: str = ""
    reason: str = ""
    retry_attempt: int = 0
    turn_start: int = 0
    task_id: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    started_at: float = 0.0
    ended_at: float = 0.0
    reasoning: bool = False

    @property
    def text(self) -> str:
        """The answer so far, exactly as the model wrote it, turns separated by a blank line."""
        return str(self.pieces)

    @property
    def can_retry(self) -> bool:
        """Whether it makes sense to ask for the same once more."""
        if self.phase is Phase.FAILED:
            return self.error is not None and ERROR_KINDS[self.error].offer_retry
        return self.phase in (Phase.INTERRUPTED, Phase.TIMED_OUT)

    @property
    def seconds(self) -> float:
        """How long the run took; 0 while it runs."""
        return max(0.0, self.ended_at - self.started_at) if self.ended_at else 0.0


def fold(view: CardView, event: Event) -> CardView:
    """The view after one more event; an event that changes nothing visible gives the same object back."""
    match event:
        case ModelDelta(text=text):
            return with_text(view, text)
        case RunStarted(task_id=task_id, at=at):
            return replace(view, phase=Phase.THINKING, task_id=task_id, started_at=at, position=0)
        case ModelStarted():
            return replace(view, turn_start=len(view.pieces), reasoning=False)
        case ModelReasoning():
            return view if view.reasoning else replace(view, reasoning=True)
        case ModelRetrying(attempt=attempt):
            return replace(view, retry_attempt=attempt)
        case MessageRetracted():
            return replace(view, pieces=view.pieces.cut(view.turn_start), phase=Phase.THINKING)
        case ModelEnded(text=text):
            # A provider without streaming brings the whole turn here.
            missing = text and len(view.pieces) == view.turn_start
            view = with_text(view, text) if missing else view
            return replace(view, retry_attempt=0, reasoning=False)
        case ToolStarted(call=call):
            row = ToolRow(call.id, call.name, call.raw_arguments if call.arguments is None else call.arguments)
            return replace(view, phase=Phase.RUNNING, tools=(*view.tools, row))
        case ToolEnded():
            return replace(view, tools=tuple(_ended(row, event) for row in view.tools))
        case TaskStateChanged(to=to, position=position, reason=reason):
            phase = Phase.RUNNING if to is TaskStatus.RUNNING and len(view.pieces) else _PHASE_OF_STATUS[to]
            return replace(view, phase=phase, position=position, reason=reason)
        case RunEnded():
            return _finished(view, event)
        case ToolProgressed() | StepTaken() | ApprovalRequested() | ApprovalDecided() | UsageReported():
            return view
        case _:
            assert_never(event)


def with_text(view: CardView, text: str) -> CardView:
    """The view after more answer text: what `fold` does with one or several pieces of it."""
    pieces = view.pieces
    if view.turn_start == len(pieces) and view.turn_start:
        # The blank line between two turns belongs to the later one, so that retracting that one takes it away too.
        text = f"\n\n{text}"
    return CardView(
        Phase.RUNNING,
        pieces.append(text),
        view.tools,
        0,
        None,
        "",
        "",
        0,
        view.turn_start,
        view.task_id,
        view.input_tokens,
        view.output_tokens,
        view.started_at,
    )


def _ended(row: ToolRow, event: ToolEnded) -> ToolRow:
    if row.call_id != event.call_id:
        return row
    return replace(row, status="failed" if event.is_error else "done", duration_ms=event.duration_ms)


def _finished(view: CardView, event: RunEnded) -> CardView:
    if len(event.answer) > len(view.text):
        # A run that somebody else has worked on: not all of its pieces were seen here.
        view = replace(view, pieces=Pieces().append(event.answer))
    return replace(
        view,
        phase=_PHASE_OF_STATUS[event.status],
        tools=tuple(replace(row, status="unknown") if row.status == "running" else row for row in view.tools),
        error=event.error.kind if event.error else None,
        stop_by=event.stop_by,
        retry_attempt=0,
        position=0,
        input_tokens=event.usage.input_tokens,
        output_tokens=event.usage.output_tokens,
        ended_at=event.at,
        started_at=view.started_at or event.at,
        reasoning=False,
    )
