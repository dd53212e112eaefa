"""Any order of requests, finishes, crashes, claims and recalls, compared step by step with a simple model."""

import asyncio
import itertools
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from bots.coordination.connection import connect
from bots.coordination.keys import SessionKeys
from bots.coordination.redis import RedisAdmission
from harness.admission import (
    Admitted,
    CancelRequested,
    Denied,
    Handover,
    Lease,
    Lost,
    NothingToCancel,
    RemovedFromQueue,
    Renewed,
    Waiting,
    chat_of,
)
from harness.testing.admission_suite import names, request

T = TypeVar("T")

SESSIONS = ("test:T1:C1/one", "test:T1:C1/two", "test:T1:C2/")
CAP = 3
_prefixes = itertools.count()

sessions = st.integers(0, len(SESSIONS) - 1)
replicas = st.integers(0, 2)
messages = st.integers(0, 5)
any_lease = st.integers(0, 1000)


@dataclass
class Session:
    running: str = ""
    token: str = ""
    after: str = ""
    alive: bool = False
    queue: list[str] = field(default_factory=list[str])
    last_fence: int = 0
    started: list[str] = field(default_factory=list[str])
    accepted: list[str] = field(default_factory=list[str])
    removed: set[str] = field(default_factory=set[str])


class AdmissionMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.prefix = f"model{next(_prefixes)}"
        self.replicas = [RedisAdmission(self.url, prefix=self.prefix, queue_cap=CAP) for _ in range(3)]
        self.client = connect(self.url)
        self.sessions = {key: Session() for key in SESSIONS}
        self.answers: dict[tuple[str, str], tuple[str, Admitted | Waiting | Denied]] = {}
        self.gone: set[tuple[str, str]] = set()
        self.leases: list[Lease] = []
        self.claims = itertools.count()

    def teardown(self) -> None:
        for replica in self.replicas:
            self.run(replica.aclose())
        self.run(self.client.aclose())
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def given(self, lease: Lease) -> None:
        """Every owner's fence is higher than that of any owner before."""
        session = self.sessions[lease.session_key]
        assert lease.fence > session.last_fence
        session.last_fence = lease.fence
        self.leases.append(lease)

    @rule(s=sessions, r=replicas, n=messages, again=st.booleans())
    def admit(self, s: int, r: int, n: int, again: bool) -> None:
        key, name = SESSIONS[s], f"{s}{n}"
        session, token = self.sessions[key], f"token-{name}-{again}"
        outcome = self.run(self.replicas[r].admit(request(name, key), token))
        if (chat_of(key), f"m-{name}") in self.gone:
            assert outcome == Denied("recalled")
        elif known := self.answers.get((chat_of(key), name)):
            assert outcome == (known[1] if known[0] == token else Denied("duplicate", f"task-{name}"))
        elif not session.running:
            assert isinstance(outcome, Admitted)
            self.given(outcome.lease)
            session.running, session.token, session.after, session.alive = name, token, "", True
            session.started.append(name)
            session.accepted.append(name)
            self.answers[chat_of(key), name] = token, outcome
        elif len(session.queue) >= CAP:
            assert outcome == Denied("full")
            # Remembered as well: the person was told to send it again.
            self.answers[chat_of(key), name] = token, outcome
        else:
            session.queue.append(name)
            session.accepted.append(name)
            assert outcome == Waiting(len(session.queue))
            self.answers[chat_of(key), name] = token, outcome

    @precondition(lambda self: self.leases)
    @rule(which=any_lease, r=replicas, take=st.sampled_from([True, True, True, False]))
    def finish(self, which: int, r: int, take: bool) -> None:
        """By the owner, by a zombie, or once more after the reply was lost."""
        lease = self.leases[which % len(self.leases)]
        session, next_token = self.sessions[lease.session_key], f"after {lease.token}" if take else ""
        handover = self.run(self.replicas[r].finish(lease, next_token))
        if session.running and session.token == lease.token:
            session.after = lease.token
            session.running = session.queue.pop(0) if session.queue else ""
            session.token, session.alive = (next_token, take) if session.running else ("", False)
            if session.running:
                session.started.append(session.running)
            if session.running and take:
                assert handover.next is not None
                self.given(handover.next[1])
        elif not (take and session.running and (session.token, session.after) == (next_token, lease.token)):
            assert handover == Handover()
            return
        if not session.running or not take:
            assert handover.next is None
        else:
            assert handover.next is not None
            run, following = handover.next
            assert replace(run, queued_at_ms=0) == request(session.running, lease.session_key)
            assert (following.token, following.fence) == (next_token, session.last_fence)
        assert names(handover.waiting) == session.queue

    @precondition(lambda self: self.leases)
    @rule(which=any_lease, r=replicas)
    def renew(self, which: int, r: int) -> None:
        lease = self.leases[which % len(self.leases)]
        session = self.sessions[lease.session_key]
        outcome = self.run(self.replicas[r].renew(lease))
        if session.running and session.token == lease.token:
            assert isinstance(outcome, Renewed)
            session.alive = True
        else:
            assert outcome == Lost()

    @rule(s=sessions)
    def expire(self, s: int) -> None:
        self.run(self._delete(SessionKeys.of(SESSIONS[s], self.prefix).lease))
        self.sessions[SESSIONS[s]].alive = False

    async def _delete(self, key: str) -> None:
        await self.client.execute_command("DEL", key)

    @rule(s=sessions)
    def claim(self, s: int) -> None:
        """All three at once."""
        session = self.sessions[SESSIONS[s]]
        tokens = [f"claim-{next(self.claims)}" for _ in self.replicas]

        async def race() -> list[tuple[Any, Lease, bool]]:
            tries = (replica.claim(SESSIONS[s], token) for replica, token in zip(self.replicas, tokens, strict=True))
            return [claimed for claimed in await asyncio.gather(*tries) if claimed]

        claimed = self.run(race())
        assert len(claimed) == (1 if session.running and not session.alive else 0)
        for run, lease, _ in claimed:
            assert replace(run, queued_at_ms=0) == request(session.running, SESSIONS[s])
            self.given(lease)
            session.token, session.after, session.alive = lease.token, "", True

    @rule(s=sessions, via=sessions, r=replicas, n=messages)
    def recall(self, s: int, via: int, r: int, n: int) -> None:
        """Named by any session of the chat."""
        key, name = SESSIONS[s], f"{s}{n}"
        if chat_of(SESSIONS[via]) != chat_of(key):
            via = s
        session = self.sessions[key]
        outcome = self.run(self.replicas[r].cancel_message(SESSIONS[via], f"m-{name}", by="U1", reason="recalled"))
        if session.running == name:
            assert isinstance(outcome, CancelRequested)
        elif name in session.queue or name in session.removed:
            session.queue = [waiting for waiting in session.queue if waiting != name]
            session.removed.add(name)
            self.gone.add((chat_of(key), f"m-{name}"))
            assert isinstance(outcome, RemovedFromQueue)
            assert names([outcome.removed]) == [name]
            assert names(outcome.waiting) == session.queue
        else:
            assert outcome == NothingToCancel()
            known = self.answers.get((chat_of(key), name))
            if known is None or isinstance(known[1], Denied):
                self.gone.add((chat_of(key), f"m-{name}"))

    @invariant()
    def nothing_is_lost_and_order_is_kept(self) -> None:
        for key, session in self.sessions.items():
            now = self.run(self.replicas[0].activity(key))
            assert names([now.running] if now.running else []) == ([session.running] if session.running else [])
            assert names(now.waiting) == session.queue
            kept = [name for name in session.accepted if name not in session.removed]
            assert session.started + session.queue == kept


def test_any_interleaving(valkey_url: str) -> None:
    class Machine(AdmissionMachine):
        url = valkey_url

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            report_multiple_bugs=False,  # each more is another minute of shrinking against a real server
            suppress_health_check=list(HealthCheck),
        ),
    )
