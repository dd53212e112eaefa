"""Admission: who may run now, who waits, and who stops. One port, one owner of every queue.

`InProcessAdmission` (below) serves the terminal and tests; `bots.coordination` is the same port over Redis, where it
holds across replicas and crashes. One conformance suite runs against both.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

BusyPolicy = Literal["queue", "reject"]
RefusalReason = Literal["duplicate", "recalled", "full", "busy", "closed"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a task came from, kept with it so that any replica can answer there.

    `message_id`: the request's own id inside its chat; recall and cancel name it ("" in a terminal).
    `dedupe_id`: the same id means the same request, delivered again ("" = never a duplicate).
    `requester`: who asked, and may therefore stop it. `speaker`: their name, for the model.
    `reply_to`: what only the maker of the origin understands: the address of the answer.
    """

    message_id: str = ""
    dedupe_id: str = ""
    requester: str = ""
    speaker: str = ""
    reply_to: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class RunInput:
    """Everything needed to start a task anywhere: stored until the task has finished, so nothing can lose it.

    `queued_at_ms`: when it had to wait, the coordinator's clock at that moment, in ms since 1970; set by `admit`,
    0 for a request that never waited. What is too old to answer is the caller's to decide.
    """

    task_id: str
    session_key: str
    prompt: str
    origin: Origin
    queued_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on one run. `token` is the caller's own and unguessable; `fence` grows with every owner."""

    task_id: str
    session_key: str
    token: str
    fence: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """Run it now, under this lease."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Waiting:
    """Queued; `position` counts from 1."""

    position: int


@dataclass(frozen=True, slots=True)
class Denied:
    """Not taken: nothing of it will run, also when it is delivered again.

    `task_id`: what the first delivery of a duplicate became, when known.
    """

    reason: RefusalReason
    task_id: str = ""


AdmitOutcome = Admitted | Waiting | Denied


@dataclass(frozen=True, slots=True)
class CancelOrder:
    """Somebody wants this task to stop."""

    task_id: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lease is still ours. `cancel` is set when somebody asked to stop."""

    cancel: CancelOrder | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """Somebody else owns the run: stop at once and write nothing more."""


@dataclass(frozen=True, slots=True)
class Handover:
    """The lease was given back. `next`: the waiting run that is now ours to start; `waiting`: who waits behind it."""

    next: tuple[RunInput, Lease] | None = None
    waiting: Sequence[RunInput] = ()


@dataclass(frozen=True, slots=True)
class RemovedFromQueue:
    """The request waited and is gone from the queue. `waiting`: who still waits, in order."""

    removed: RunInput
    waiting: Sequence[RunInput] = ()


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The run is live; its owner has been told. `local`: the owner is this very process."""

    task_id: str
    local: bool


@dataclass(frozen=True, slots=True)
class NothingToCancel:
    """Neither running nor waiting. A recall of a message not seen yet is remembered, so that it never starts."""


CancelOutcome = RemovedFromQueue | CancelRequested | NothingToCancel


@dataclass(frozen=True, slots=True)
class SessionActivity:
    """A look at one session, for authorising a stop and for /status."""

    running: RunInput | None = None
    waiting: Sequence[RunInput] = ()


class Admission(Protocol):
    """The port.

    Contract: every method may be repeated with the same arguments after an unknown outcome and gives the same answer.
    Raises `AdmissionUnavailable` when the coordinator does not answer within its time limit, and nothing else; a
    call that breaks the contract (an empty token) is a ValueError.

    A session key is `<chat>/<scope>`: keys that agree before the first slash are sessions of one chat.
    """

    @property
    def renew_every(self) -> float | None:
        """Seconds between two `renew` calls; None when a lease cannot be lost."""
        ...

    @property
    def lease_seconds(self) -> float:
        """How long a lease lives after the last successful renewal."""
        ...

    async def admit(self, run: RunInput, token: str) -> AdmitOutcome:
        """Decide about one request. `token` is made by the caller, so that a repeated call is recognised."""
        ...

    async def mark_started(self, lease: Lease) -> None:
        """Note that work on the run has begun: whoever finds it without an owner must not begin it again."""
        ...

    async def renew(self, lease: Lease) -> Renewed | Lost:
        """Keep the lease alive; also brings cancel orders when every faster way was lost."""
        ...

    async def finish(self, lease: Lease, next_token: str) -> Handover:
        """Give the lease back and take the next waiting run, if any, under `next_token`. A wrong token is a no-op.

        An empty `next_token` takes nothing: who stops, leaves the waiting runs to another replica.
        """
        ...

    async def park(self, lease: Lease) -> None:
        """Give the lease back while the run waits for a person. The run stays: later messages queue behind it."""
        ...

    async def claim(self, session_key: str, token: str) -> tuple[RunInput, Lease, bool] | None:
        """Become the owner of a run that nobody works on: the run, the lease, and whether work had begun.

        None when there is none, or somebody else was faster.
        """
        ...

    async def cancel_task(self, session_key: str, task_id: str, *, by: str, reason: str) -> CancelOutcome:
        """Stop the task wherever it is: take it out of the queue, or tell its owner."""
        ...

    async def cancel_message(self, session_key: str, message_id: str, *, by: str, reason: str) -> CancelOutcome:
        """The same by the request's message id; an id not seen yet will be refused as `recalled` when it arrives.

        `session_key` may be any key of the same chat: recalls and clicks name no thread.
        """
        ...

    async def activity(self, session_key: str) -> SessionActivity:
        """Who runs and who waits in the session."""
        ...


def chat_of(session_key: str) -> str:
    """The chat that a session belongs to: all of its key before the first slash."""
    return session_key.partition("/")[0]


# How many requests, tombstones and message ids one process remembers of each kind; the oldest go first.
_REMEMBERED = 10_000

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(slots=True)
class _Session:
    """One session: the live run with its lease, the token of the run before it, and who waits."""

    running: RunInput | None = None
    lease: Lease | None = None
    previous_token: str = ""
    cancel: CancelOrder | None = None
    waiting: list[RunInput] = field(default_factory=list[RunInput])


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one request was told, for its repeats and duplicates."""

    token: str
    task_id: str
    outcome: AdmitOutcome


class InProcessAdmission:
    """`Admission` inside one process: for the terminal and for tests. Nothing outlives the process.

    No method waits for anything, so each is atomic on its event loop. `wall_clock` gives seconds since 1970.
    """

    def __init__(
        self, *, queue_cap: int = 5, busy_policy: BusyPolicy = "queue", wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._cap = queue_cap
        self._busy_policy = busy_policy
        self._wall_clock = wall_clock
        self._fence = 0
        self._sessions: dict[str, _Session] = {}
        # Each keyed by (chat, id); a request without a dedupe id by ("", token).
        self._answers: OrderedDict[tuple[str, str], _Answer] = OrderedDict()
        self._gone: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._by_message: OrderedDict[tuple[str, str], tuple[str, str]] = OrderedDict()
        self._removed: OrderedDict[tuple[str, str], RunInput] = OrderedDict()

    @property
    def renew_every(self) -> float | None:
        """None: no lease is ever lost."""
        return None

    @property
    def lease_seconds(self) -> float:
        """For ever."""
        return math.inf

    async def admit(self, run: RunInput, token: str) -> AdmitOutcome:
        """See the port."""
        _require(token)
        chat, origin = chat_of(run.session_key), run.origin
        if origin.message_id and (chat, origin.message_id) in self._gone:
            return Denied("recalled")
        known = (chat, origin.dedupe_id) if origin.dedupe_id else ("", token)
        if answer := self._answers.get(known):
            return answer.outcome if answer.token == token else Denied("duplicate", answer.task_id)

        session = self._sessions.setdefault(run.session_key, _Session())
        if session.running is None and not session.waiting:
            outcome: AdmitOutcome = Admitted(self._start(session, run, token))
        elif self._busy_policy == "reject":
            outcome = Denied("busy")
        elif len(session.waiting) >= self._cap:
            outcome = Denied("full")
        else:
            session.waiting.append(replace(run, queued_at_ms=self._now_ms()))
            outcome = Waiting(len(session.waiting))
        _remember(self._answers, known, _Answer(token, run.task_id, outcome))
        if origin.message_id and not isinstance(outcome, Denied):
            _remember(self._by_message, (chat, origin.message_id), (run.session_key, run.task_id))
        return outcome

    async def mark_started(self, lease: Lease) -> None:
        """See the port. Nobody outlives this process to ask."""

    async def renew(self, lease: Lease) -> Renewed | Lost:
        """See the port."""
        session = self._sessions.get(lease.session_key)
        return Renewed(session.cancel) if session and session.lease == lease else Lost()

    async def finish(self, lease: Lease, next_token: str) -> Handover:
        """See the port. Without a `next_token` the waiting runs stay where they are and go with the process."""
        session = self._sessions.get(lease.session_key)
        if session is None:
            return Handover()
        if session.lease == lease:
            following = session.waiting.pop(0) if session.waiting and next_token else None
            session.running = session.lease = session.cancel = None
            if following:
                self._start(session, following, next_token, after=lease.token)
            elif not session.waiting:
                del self._sessions[lease.session_key]
        elif session.lease is None or (session.previous_token, session.lease.token) != (lease.token, next_token):
            return Handover()
        if session.running and session.lease:
            return Handover((session.running, session.lease), tuple(session.waiting))
        return Handover(waiting=tuple(session.waiting))

    async def park(self, lease: Lease) -> None:
        """See the port."""
        session = self._sessions.get(lease.session_key)
        if session is not None and session.lease == lease:
            session.lease = None

    async def claim(self, session_key: str, token: str) -> tuple[RunInput, Lease, bool] | None:
        """See the port."""
        _require(token)
        session = self._sessions.get(session_key)
        if session is None or session.running is None:
            return None
        if session.lease is None:
            self._start(session, session.running, token)
        elif session.lease.token != token:
            return None
        assert session.lease is not None
        return session.running, session.lease, True

    async def cancel_task(self, session_key: str, task_id: str, *, by: str, reason: str) -> CancelOutcome:
        """See the port."""
        session = self._sessions.get(session_key, _Session())
        if session.running and session.running.task_id == task_id:
            session.cancel = session.cancel or CancelOrder(task_id, by, reason)
            return CancelRequested(task_id, local=True)
        for position, run in enumerate(session.waiting):
            if run.task_id == task_id:
                del session.waiting[position]
                _remember(self._removed, (session_key, task_id), run)
                if run.origin.message_id:
                    _remember(self._gone, (chat_of(session_key), run.origin.message_id), None)
                return RemovedFromQueue(run, tuple(session.waiting))
        if removed := self._removed.get((session_key, task_id)):
            return RemovedFromQueue(removed, tuple(session.waiting))
        return NothingToCancel()

    async def cancel_message(self, session_key: str, message_id: str, *, by: str, reason: str) -> CancelOutcome:
        """See the port."""
        if not message_id:
            return NothingToCancel()
        name = (chat_of(session_key), message_id)
        if task := self._by_message.get(name):
            return await self.cancel_task(*task, by=by, reason=reason)
        _remember(self._gone, name, None)
        return NothingToCancel()

    async def activity(self, session_key: str) -> SessionActivity:
        """See the port."""
        session = self._sessions.get(session_key, _Session())
        return SessionActivity(session.running, tuple(session.waiting))

    def _start(self, session: _Session, run: RunInput, token: str, *, after: str = "") -> Lease:
        self._fence = max(self._fence + 1, self._now_ms())
        session.running, session.previous_token = run, after
        session.lease = Lease(run.task_id, run.session_key, token, self._fence)
        return session.lease

    def _now_ms(self) -> int:
        return int(self._wall_clock() * 1000)


def _require(token: str) -> None:
    if not token:
        raise ValueError("the token is empty: make it with secrets.token_hex")


def _remember(memory: OrderedDict[_Key, _Value], key: _Key, value: _Value) -> None:
    memory[key] = value
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)
