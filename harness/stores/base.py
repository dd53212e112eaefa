"""What the runtime asks of a store."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from harness.admission import RunInput
from harness.approval import Approval, Decision, Grant
from harness.events import Event
from harness.messages import AssistantMessage, Message, Usage
from harness.stores.records import CallRecord, CallStep, CardRecord, SessionSummary, TaskRecord, TaskStep


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation as it was when loaded. `version` grows with every append; `fence` is the last writer's."""

    key: str
    messages: tuple[Message, ...] = ()
    version: int = 0
    fence: int = 0


class SessionStore(Protocol):
    """Conversations by key.

    Contract: what `append` was given is durable when it returns, whole or not at all. A loaded session never changes.
    """

    async def load(self, key: str) -> Session:
        """The conversation; an unknown key gives an empty one."""
        ...

    async def append(self, session: Session, messages: Sequence[Message], *, fence: int = 0) -> Session:
        """Add messages to the session as it was loaded and return the new one.

        Raises `VersionConflict` when somebody else appended since, `StaleFence` when a writer with a higher fence did.
        """
        ...

    async def clear(self, key: str) -> None:
        """Forget the conversation. Writers that still hold the old one get `VersionConflict`."""
        ...


class SessionIndex(Protocol):
    """The conversations as a list."""

    async def summaries(self, *, prefix: str = "", limit: int = 100) -> Sequence[SessionSummary]:
        """Conversations that hold something, whose key begins with `prefix`, the last used first."""
        ...


class GrantStore(Protocol):
    """Standing permissions.

    Contract: what `add` was given is durable when it returns. An expired grant is never found.
    """

    async def add(self, grant: Grant) -> None:
        """Keep a grant; one with the same id is replaced."""
        ...

    async def find(self, digest: str, *, chat: str, user: str, session_key: str, now: float) -> Grant | None:
        """A grant that covers this call, None when there is none."""
        ...

    async def list(self, *, now: float, chat: str = "", user: str = "") -> Sequence[Grant]:
        """The grants in force, oldest first; empty `chat` or `user` = of all."""
        ...

    async def revoke(self, grant_id: str) -> bool:
        """Take a grant back; False when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class ParkedRun:
    """A run that waits for people: everything needed to go on anywhere.

    `message` holds the calls; none of them has run. `refused`: call id to result of those that policy refuses.
    `elapsed_s` is the running time so far: it stands while waiting.
    """

    run: RunInput
    message: AssistantMessage
    approvals: tuple[Approval, ...]
    turns: int
    tool_calls: int
    steps: int
    usage: Usage
    answered: tuple[str, ...]
    elapsed_s: float
    denials: int = 0
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def is_decided(self) -> bool:
        """True when nobody is waited for any more."""
        return all(approval.status != "pending" for approval in self.approvals)


class ParkingStore(Protocol):
    """Runs that wait for a decision.

    Contract: `decide` is a compare-and-set: of many callers exactly one gets the row, the others None.
    """

    async def park(self, parked: ParkedRun) -> None:
        """Keep the run with its pending approvals, in one step."""
        ...

    async def find(self, approval: str) -> Approval | None:
        """An approval by its id or its code, whatever its status."""
        ...

    async def decide(self, approval_id: str, decision: Decision, *, by: str, now: float) -> Approval | None:
        """Set a pending, unexpired approval; None when somebody was faster, it has expired, or it is not known."""
        ...

    async def expire(self, *, now: float) -> Sequence[Approval]:
        """Deny every pending approval whose time is up, and return them."""
        ...

    async def parked(self, task_id: str) -> ParkedRun | None:
        """A parked run with its approvals as they stand."""
        ...

    async def ready(self) -> Sequence[str]:
        """Task ids of parked runs that wait for nobody any more."""
        ...

    async def unpark(self, task_id: str) -> ParkedRun | None:
        """Take the run out, to go on with it or to end it; one of many gets it. What is pending becomes void."""
        ...


class TaskStore(Protocol):
    """Tasks, for every replica.

    Contract: what was written is durable when the call returns. A task takes only the steps of its table.
    """

    async def put(self, record: TaskRecord) -> None:
        """Keep a new task; one that is known already stays as it is."""
        ...

    async def step(self, step: TaskStep) -> None:
        """Take one step.

        A new owner may take a task from running to running. Raises `InvalidTransition` when the table has no such step,
        `StaleFence` when a newer owner took one, and StoreError when the task is not known.
        """
        ...

    async def show(self, task_id: str, answer: str, *, fence: int = 0) -> None:
        """Note the text that people see now. Does nothing once the task is over or has a newer owner."""
        ...

    async def get(self, task_id: str) -> TaskRecord | None:
        """A task by its id."""
        ...

    async def of_session(self, session_key: str, *, limit: int = 100) -> Sequence[TaskRecord]:
        """The tasks of a conversation, the newest first."""
        ...

    async def unfinished(self, *, limit: int = 1000) -> Sequence[TaskRecord]:
        """Tasks that have not come to an end, the oldest first."""
        ...


class TraceStore(Protocol):
    """The stored events of each task; a trace is a reading of them.

    Contract: events are durable when `append` returns, all or none. A `seq` is written once in its task.
    """

    async def append(self, events: Sequence[Event]) -> None:
        """Keep events. Those that are only published (`stored` is False) are passed over."""
        ...

    async def read(self, task_id: str, *, after: int = 0, limit: int = 10_000) -> Sequence[Event]:
        """The events of a task with a higher `seq`, in order."""
        ...

    async def last_seq(self, task_id: str) -> int:
        """The highest `seq` of the task, 0 when it has none: whoever takes the task over goes on from there."""
        ...


class Journal(Protocol):
    """Every tool call, and how far it came: what tells "never ran" from "may have taken effect" after a crash.

    Contract: what was written is durable when the call returns, so that `started` stands before the tool runs.
    """

    async def propose(self, calls: Sequence[CallRecord]) -> None:
        """Write new calls down, all or none; a call that is written down already is a StoreError."""
        ...

    async def step(self, steps: Sequence[CallStep]) -> None:
        """Take steps, all or none; `InvalidTransition` when `CALL_STEPS` has no such step or the call is not known."""
        ...

    async def doubt(self, task_id: str, *, at: float) -> Sequence[CallRecord]:
        """Set each call of the task that was started and never finished to in_doubt, and return those."""
        ...

    async def of_task(self, task_id: str) -> Sequence[CallRecord]:
        """The calls of a task, in the order in which they were proposed."""
        ...


class CardLedger(Protocol):
    """The messages that the bot has posted, so that a kill at any moment leaves none behind unknown.

    Contract: what was written is durable when the call returns. A key that is not known (any more) is passed over.
    """

    async def open(self, card: CardRecord) -> None:
        """Write a card down, before it is posted. A key that is known already stays as it is."""
        ...

    async def posted(self, key: str, message_id: str) -> None:
        """The post has answered with this id. A card that was closed meanwhile stays closed, with the id."""
        ...

    async def keep(self, key: str, text: str) -> None:
        """Note what the card shows now."""
        ...

    async def close(self, key: str, final: str, *, at: float, text: str | None = None) -> None:
        """The card shows its last state. The first close counts."""
        ...

    async def of_task(self, task_id: str) -> Sequence[CardRecord]:
        """The cards of a task, the oldest first."""
        ...

    async def unfinished(self, *, limit: int = 1000) -> Sequence[CardRecord]:
        """Cards that were not closed, the oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class AppendMessages:
    """The append of `SessionStore` as a value, for a unit of work."""

    session: Session
    messages: tuple[Message, ...]
    fence: int = 0

    @property
    def after(self) -> Session:
        """The session as it is once the unit is committed."""
        session = self.session
        return replace(
            session,
            messages=(*session.messages, *self.messages),
            version=session.version + 1,
            fence=max(self.fence, session.fence),
        )


Change = AppendMessages | TaskRecord | TaskStep | CallRecord | CallStep | ParkedRun | CardRecord | Event
"""What a unit of work may hold. A record is added, a step is taken, a run is parked, an event is kept."""


class UnitOfWork(Protocol):
    """Several changes as one: an answer with its calls and results, the journal, the task, the parked run.

    A value and not a context manager: nothing is open while the caller thinks, so nothing can be left open, and many
    callers' units share one commit.
    """

    async def commit(self, *changes: Change) -> None:
        """All of it is durable when this returns, or nothing of it is and an error says why.

        The errors are those of the stores. A session is appended to once per unit.
        """
        ...


class Retention(Protocol):
    """Deletion. A session's conversation, tasks, events, calls, cards and approvals go together.

    Contract: may be called again after a failure. What is being worked on is kept by `purge`, and forgotten by
    `forget_*`: the caller stops it first.
    """

    async def purge(self, *, before: float) -> int:
        """Delete what was last used before this time (Unix seconds) and is finished; how many sessions and tasks."""
        ...

    async def forget_session(self, session_key: str) -> None:
        """Delete all that is known of a session."""
        ...

    async def forget_user(self, user: str) -> None:
        """Delete all that a person asked for, and their standing permissions.

        A conversation in which they asked goes whole: it cannot be told apart who said what in the model's answers.
        The tasks of others in it stay.
        """
        ...


class Records(UnitOfWork, Protocol):
    """What the runtime keeps of tasks beside their conversations; all of it in one database."""

    @property
    def tasks(self) -> TaskStore:
        """How far each task has come."""
        ...

    @property
    def traces(self) -> TraceStore:
        """What happened in it."""
        ...

    @property
    def journal(self) -> Journal:
        """The calls that it made."""
        ...


@dataclass(frozen=True, slots=True)
class Stores:
    """Every store of one database; `Records` among other things."""

    sessions: SessionStore
    index: SessionIndex
    grants: GrantStore
    parking: ParkingStore
    tasks: TaskStore
    traces: TraceStore
    journal: Journal
    cards: CardLedger
    retention: Retention
    unit: UnitOfWork

    async def commit(self, *changes: Change) -> None:
        """Several changes as one; see `UnitOfWork`."""
        await self.unit.commit(*changes)
