"""What happens in a task, as one closed union. Reporters, logs, traces and remote readers all see the same values.

    run:start
      model:start
        model:delta* | model:reasoning* | model:retry* | message:retracted*
      model:end
      step
      tool:start  tool:progress*  tool:end      (per call)
      step
      approval:request  approval:decided
      usage
    run:end                                     exactly one, the last
    task:state                                  at each step of the task itself, also while it is queued

Every event carries `task_id`, `seq` (1, 2, 3 .. within its task) and `at` (Unix seconds). `model:delta`,
`model:reasoning` and `tool:progress` are only published; all others are kept with the task first.
Close a `match` over `Event` with `assert_never`, so that a new kind cannot be forgotten.
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from harness.approval import Approval, Decision
from harness.errors import ErrorKind
from harness.messages import ToolCall, Usage
from harness.status import StopReason, TaskStatus

StepType = Literal["model", "tool", "finish", "error"]


@dataclass(frozen=True, slots=True)
class _Envelope:
    kind: ClassVar[str]
    stored: ClassVar[bool] = True
    task_id: str
    seq: int
    at: float


@dataclass(frozen=True, slots=True)
class RunStarted(_Envelope):
    """The run begins; the person's message is in the session now."""

    kind = "run:start"
    session: str
    input: str


@dataclass(frozen=True, slots=True)
class ModelStarted(_Envelope):
    """The model is asked; `turn` counts from 1."""

    kind = "model:start"
    turn: int


@dataclass(frozen=True, slots=True)
class ModelDelta(_Envelope):
    """A piece of the answer, never empty."""

    kind = "model:delta"
    stored = False
    text: str


@dataclass(frozen=True, slots=True)
class ModelReasoning(_Envelope):
    """A piece of the model's thinking, never empty."""

    kind = "model:reasoning"
    stored = False
    text: str


@dataclass(frozen=True, slots=True)
class ModelRetrying(_Envelope):
    """The request failed before anything was shown and is sent again in `delay_s` seconds; `attempt` counts from 1."""

    kind = "model:retry"
    attempt: int
    delay_s: float
    reason: ErrorKind


@dataclass(frozen=True, slots=True)
class ModelEnded(_Envelope):
    """The model's turn is complete: `text` is all of it, also when no delta was published."""

    kind = "model:end"
    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class MessageRetracted(_Envelope):
    """The text of this model turn is void and will be written anew."""

    kind = "message:retracted"
    reason: ErrorKind


@dataclass(frozen=True, slots=True)
class ToolStarted(_Envelope):
    """A call begins."""

    kind = "tool:start"
    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolProgressed(_Envelope):
    """A running call says something."""

    kind = "tool:progress"
    stored = False
    call_id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolEnded(_Envelope):
    """A call is over; `result` is what the model is told."""

    kind = "tool:end"
    call_id: str
    name: str
    result: str
    is_error: bool
    duration_ms: int


@dataclass(frozen=True, slots=True)
class StepTaken(_Envelope):
    """One step of the run is behind us; `n` counts from 1."""

    kind = "step"
    n: int
    type: StepType
    summary: str


@dataclass(frozen=True, slots=True)
class ApprovalRequested(_Envelope):
    """A call waits for a person."""

    kind = "approval:request"
    approval: Approval


@dataclass(frozen=True, slots=True)
class ApprovalDecided(_Envelope):
    """Somebody decided, or the time was up."""

    kind = "approval:decided"
    approval_id: str
    decision: Decision
    by: str


@dataclass(frozen=True, slots=True)
class TaskStateChanged(_Envelope):
    """The task took a step. While queued, `position` counts from 1 and a change of it is an event of its own."""

    kind = "task:state"
    from_: TaskStatus | None
    to: TaskStatus
    reason: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True)
class UsageReported(_Envelope):
    """Tokens used by the run so far; `cost` is None when no price is known."""

    kind = "usage"
    usage: Usage
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class RunError:
    """Why a run failed: `message` is one sentence for people, without secrets."""

    kind: ErrorKind
    message: str


@dataclass(frozen=True, slots=True)
class RunEnded(_Envelope):
    """The end: `answer` is all text that was shown, also after a failure."""

    kind = "run:end"
    status: TaskStatus
    stop_reason: StopReason
    answer: str
    steps: int
    usage: Usage
    error: RunError | None = None
    stop_by: str = ""


Event = (
    RunStarted
    | ModelStarted
    | ModelDelta
    | ModelReasoning
    | ModelRetrying
    | ModelEnded
    | MessageRetracted
    | ToolStarted
    | ToolProgressed
    | ToolEnded
    | StepTaken
    | ApprovalRequested
    | ApprovalDecided
    | TaskStateChanged
    | UsageReported
    | RunEnded
)


def to_json(event: Event) -> dict[str, Any]:
    """The public form of an event: `{"task_id", "seq", "at", "kind", ...}`, the same on every channel."""
    line: dict[str, Any] = {"task_id": event.task_id, "seq": event.seq, "at": round(event.at, 3), "kind": event.kind}
    for name in _FIELDS[type(event)]:
        line[_PUBLIC_NAMES.get(name, name)] = _plain(getattr(event, name))
    if isinstance(event, UsageReported):
        # The one event whose figures stand on the top level.
        line |= {**line.pop("usage"), "cost": event.cost}
    return line


_ENVELOPE = ("task_id", "seq", "at")
_PUBLIC_NAMES = {"from_": "from"}
_FIELDS: dict[type, tuple[str, ...]] = {
    cls: tuple(f.name for f in fields(cls) if f.name not in _ENVELOPE) for cls in Event.__args__
}


def _plain(value: Any) -> Any:
    match value:
        case ToolCall(id=id, name=name, arguments=arguments, raw_arguments=raw):
            call: dict[str, Any] = {"id": id, "name": name}
            return call | ({"raw_arguments": raw} if arguments is None else {"arguments": dict(arguments)})
        case Usage():
            return {
                "input_tokens": value.input_tokens,
                "output_tokens": value.output_tokens,
                "estimated": value.estimated,
                "cost": value.cost,
            }
        case Approval():
            return {
                "id": value.id,
                "code": value.code,
                "tool": value.tool,
                "arguments": dict(value.arguments),
                "expires_at": value.expires_at,
            }
        case RunError(kind=kind, message=message):
            return {"kind": kind, "message": message}
        case tuple():
            return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value
