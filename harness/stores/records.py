"""What the stores keep beside conversations: tasks, tool calls, cards. Values, and the steps that each may take.

A record is what is stored; a step advances one. Times are Unix seconds, and always the caller's: what is stored agrees
with the events that tell of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from harness.admission import RunInput
from harness.events import RunError
from harness.messages import ToolCall, Usage
from harness.status import StopReason, TaskStatus

TITLE_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A conversation in a list. `title`: its first prompt, shortened; `turns`: how many prompts it holds."""

    key: str
    title: str
    turns: int
    created_at: float
    updated_at: float


def title_of(prompt: str) -> str:
    """The prompt on one line of at most 80 characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in prompt[: 4 * TITLE_CHARS]).split())
    return line if len(line) <= TITLE_CHARS else f"{line[: TITLE_CHARS - 1]}…"


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task as it is known to every replica. `answer`: the text that was shown last, also while it runs."""

    run: RunInput
    status: TaskStatus
    created_at: float
    fence: int = 0
    model: str = ""
    answer: str = ""
    usage: Usage = field(default_factory=Usage)
    stop_reason: StopReason | None = None
    error: RunError | None = None
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def id(self) -> str:
        """The task's id."""
        return self.run.task_id

    @property
    def session_key(self) -> str:
        """The conversation that the task belongs to."""
        return self.run.session_key


@dataclass(frozen=True, slots=True)
class TaskStep:
    """One step of a task, along `harness.task.TRANSITIONS`. None leaves a column as it is.

    `fence`: of the lease under which the step is taken; 0 = taken without one, as in the queue.
    """

    task_id: str
    to: TaskStatus
    at: float
    fence: int = 0
    model: str | None = None
    answer: str | None = None
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    error: RunError | None = None


CallState = Literal[
    "proposed", "awaiting_approval", "approved", "started", "finished", "denied", "canceled", "in_doubt"
]

CALL_STEPS: Final[Mapping[CallState | None, frozenset[CallState]]] = {
    # Policy may have spoken before the call is written down.
    None: frozenset({"proposed", "awaiting_approval", "approved", "denied"}),
    "proposed": frozenset({"awaiting_approval", "approved", "denied", "canceled"}),
    "awaiting_approval": frozenset({"approved", "denied", "canceled"}),
    "approved": frozenset({"started", "denied", "canceled"}),
    # What was started and then stopped is in doubt: nobody knows whether it took effect.
    "started": frozenset({"finished", "in_doubt"}),
    "finished": frozenset(),
    "denied": frozenset(),
    "canceled": frozenset(),
    "in_doubt": frozenset(),
}
"""From each state of a tool call (None = not written down yet) to those that may follow it."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One tool call in the journal. `digest` binds it to what was permitted; `result` is what the model was told."""

    call: ToolCall
    task_id: str
    session_key: str
    side_effects: bool
    proposed_at: float
    digest: str = ""
    state: CallState = "proposed"
    result: str = ""
    is_error: bool = False
    started_at: float | None = None
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class CallStep:
    """One step of a tool call, along `CALL_STEPS`. `result` and `is_error` count at its end."""

    task_id: str
    call_id: str
    to: CallState
    at: float
    result: str = ""
    is_error: bool = False


CardState = Literal["opening", "open", "closed"]


@dataclass(frozen=True, slots=True)
class CardRecord:
    """A message that the bot has posted, or is about to post.

    `key` was given to the platform with the post and finds it again; `place` is the address, which only the platform's
    adapter understands. `message_id` is "" until the post has answered. `final`: the last state word.
    """

    key: str
    task_id: str
    session_key: str
    opened_at: float
    place: Mapping[str, str] = field(default_factory=dict[str, str])
    state: CardState = "opening"
    message_id: str = ""
    text: str = ""
    final: str = ""
    closed_at: float | None = None
