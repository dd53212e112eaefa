"""What every `Admission` must do, as one class of pytest tests: inherit it and give it a `new_admission` fixture.

    class TestInProcess(AdmissionSuite):
        @pytest.fixture
        def new_admission(self) -> NewAdmission:
            return InProcessAdmission

Several calls of `new_admission` in one test may share a backend or not; the suite uses one admission per test.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from harness.admission import (
    Admission,
    Admitted,
    BusyPolicy,
    CancelOrder,
    CancelRequested,
    Denied,
    Handover,
    Lease,
    Lost,
    NothingToCancel,
    Origin,
    RemovedFromQueue,
    Renewed,
    RunInput,
    SessionActivity,
    Waiting,
)

SESSION = "test:T1:C1/thread"
SAME_CHAT = "test:T1:C1/another"
OTHER_CHAT = "test:T1:C2/thread"


class NewAdmission(Protocol):
    """Makes an admission with these two settings; an `InProcessAdmission` class is one."""

    def __call__(self, *, queue_cap: int = 5, busy_policy: BusyPolicy = "queue") -> Admission:
        """Make one."""
        ...


def request(name: str, session_key: str = SESSION, *, dedupe: bool = True) -> RunInput:
    """Make a request whose ids all follow from one name."""
    origin = Origin(
        message_id=f"m-{name}",
        dedupe_id=f"d-{name}" if dedupe else "",
        requester="U1",
        speaker="Ann",
        reply_to={"channel": "C1", "ts": name},
    )
    return RunInput(f"task-{name}", session_key, f"question {name}", origin)


async def admitted(admission: Admission, name: str, session_key: str = SESSION) -> Lease:
    """Start a run that must start."""
    outcome = await admission.admit(request(name, session_key), f"token-{name}")
    assert isinstance(outcome, Admitted), outcome
    return outcome.lease


async def waiting(admission: Admission, *names: str) -> None:
    """Queue requests that must queue."""
    for name in names:
        outcome = await admission.admit(request(name), f"token-{name}")
        assert isinstance(outcome, Waiting), outcome


def names(runs: Sequence[RunInput]) -> list[str]:
    """Tell short who waits."""
    return [run.task_id.removeprefix("task-") for run in runs]


class AdmissionSuite:
    """The contract of `harness.admission.Admission`, but for what needs time or crashes."""

    # --- admit ---------------------------------------------------------------------------------------------------

    async def test_an_idle_session_starts(self, new_admission: NewAdmission) -> None:
        """A lease comes back, with the caller's own token."""
        lease = await admitted(new_admission(), "a")
        assert (lease.task_id, lease.session_key, lease.token) == ("task-a", SESSION, "token-a")
        assert lease.fence > 0

    async def test_a_busy_session_queues_in_order(self, new_admission: NewAdmission) -> None:
        """Positions count from 1."""
        admission = new_admission()
        await admitted(admission, "a")
        outcomes = [await admission.admit(request(name), f"token-{name}") for name in "bcd"]
        assert outcomes == [Waiting(1), Waiting(2), Waiting(3)]

    async def test_a_full_queue_refuses_for_good(self, new_admission: NewAdmission) -> None:
        """The person was told to send it again: a late second delivery must not run beside that."""
        admission = new_admission(queue_cap=1)
        lease = await admitted(admission, "a")
        await waiting(admission, "b")
        assert await admission.admit(request("c"), "token-c") == Denied("full")
        assert await admission.admit(request("c"), "token-c") == Denied("full"), "a repeat gets the same answer"
        await admission.finish(lease, "next")
        assert await admission.admit(request("c"), "token-c2") == Denied("duplicate", "task-c")
        assert await admission.admit(request("d"), "token-d") == Waiting(1)

    async def test_policy_reject(self, new_admission: NewAdmission) -> None:
        """Nobody ever waits."""
        admission = new_admission(busy_policy="reject")
        lease = await admitted(admission, "a")
        assert await admission.admit(request("b"), "token-b") == Denied("busy")
        assert await admission.finish(lease, "next") == Handover()
        await admitted(admission, "c")

    async def test_fifty_racing_duplicates_start_once(self, new_admission: NewAdmission) -> None:
        """One start; every other one is a duplicate of it."""
        admission = new_admission()
        tries = [admission.admit(replace(request("a"), task_id=f"task-{n}"), f"token-{n}") for n in range(50)]
        outcomes = await asyncio.gather(*tries)
        [winner] = [outcome.lease.task_id for outcome in outcomes if isinstance(outcome, Admitted)]
        assert outcomes.count(Denied("duplicate", winner)) == 49

    async def test_a_later_duplicate(self, new_admission: NewAdmission) -> None:
        """While it runs, while it waits, and when it is long finished."""
        admission = new_admission()
        lease = await admitted(admission, "a")
        await waiting(admission, "b")
        for name in "ab":
            assert await admission.admit(request(name), "other") == Denied("duplicate", f"task-{name}")
        handover = await admission.finish(lease, "next")
        assert handover.next is not None
        await admission.finish(handover.next[1], "next2")
        for name in "ab":
            assert await admission.admit(request(name), "other") == Denied("duplicate", f"task-{name}")

    async def test_without_a_dedupe_id_nothing_is_a_duplicate(self, new_admission: NewAdmission) -> None:
        """Typing the same twice in a terminal asks twice."""
        admission = new_admission()
        assert isinstance(await admission.admit(request("a", dedupe=False), "token-1"), Admitted)
        assert await admission.admit(request("a", dedupe=False), "token-2") == Waiting(1)

    async def test_a_repeated_admit_gets_the_same_answer(self, new_admission: NewAdmission) -> None:
        """The token tells a repeat from a duplicate, with and without a dedupe id, and also once it has finished."""
        admission = new_admission()
        for dedupe in (True, False):
            session = f"test:T1:C1/{dedupe}"
            run, follower = request(f"a{dedupe}", session, dedupe=dedupe), request(f"b{dedupe}", session, dedupe=dedupe)
            first = await admission.admit(run, f"1{dedupe}")
            assert isinstance(first, Admitted)
            assert await admission.admit(run, f"1{dedupe}") == first
            assert await admission.admit(follower, f"2{dedupe}") == Waiting(1)
            assert await admission.admit(follower, f"2{dedupe}") == Waiting(1)
            assert names((await admission.activity(session)).waiting) == [f"b{dedupe}"]
            handover = await admission.finish(first.lease, f"3{dedupe}")
            assert await admission.admit(follower, f"2{dedupe}") == Waiting(1)
            assert handover.next is not None
            await admission.finish(handover.next[1], f"4{dedupe}")
            assert await admission.admit(run, f"1{dedupe}") == first
            assert await admission.activity(session) == SessionActivity()

    async def test_sessions_of_one_chat_run_side_by_side(self, new_admission: NewAdmission) -> None:
        """The chat groups the keys, it is not the lock."""
        admission = new_admission()
        await admitted(admission, "a")
        await admitted(admission, "b", SAME_CHAT)
        await admitted(admission, "c", OTHER_CHAT)

    async def test_the_token_must_not_be_empty(self, new_admission: NewAdmission) -> None:
        """An empty token would be everybody's."""
        with_error = False
        try:
            await new_admission().admit(request("a"), "")
        except ValueError:
            with_error = True
        assert with_error

    # --- finish and renew ----------------------------------------------------------------------------------------

    async def test_finishing_hands_over_in_order_with_all_of_the_input(self, new_admission: NewAdmission) -> None:
        """A chain of finishes gives every waiting request once, in the order of arrival, as it was asked."""
        admission = new_admission()
        lease, fences = await admitted(admission, "a"), list[int]()
        await waiting(admission, *"bcdef")
        for number, (name, behind) in enumerate([("b", "cdef"), ("c", "def"), ("d", "ef"), ("e", "f"), ("f", "")]):
            fences.append(lease.fence)
            handover = await admission.finish(lease, f"next-{number}")
            assert handover.next is not None
            run, lease = handover.next
            assert (lease.token, lease.task_id, lease.session_key) == (f"next-{number}", f"task-{name}", SESSION)
            assert run.queued_at_ms > 0
            assert replace(run, queued_at_ms=0) == request(name)
            assert "".join(names(handover.waiting)) == behind
            assert await admission.renew(lease) == Renewed()
        fences.append(lease.fence)
        assert fences == sorted(set(fences))
        assert await admission.finish(lease, "last") == Handover()
        assert await admission.activity(SESSION) == SessionActivity()

    async def test_a_repeated_finish_gets_the_same_next_run(self, new_admission: NewAdmission) -> None:
        """Nothing is popped twice."""
        admission = new_admission()
        lease = await admitted(admission, "a")
        await waiting(admission, "b", "c")
        first = await admission.finish(lease, "next")
        assert await admission.finish(lease, "next") == first
        assert names((await admission.activity(SESSION)).waiting) == ["c"]
        assert first.next is not None
        assert await admission.renew(first.next[1]) == Renewed()

    async def test_a_repeated_finish_leaves_a_new_run_alone(self, new_admission: NewAdmission) -> None:
        """Its reply was lost, somebody else has started meanwhile."""
        admission = new_admission()
        lease = await admitted(admission, "a")
        assert await admission.finish(lease, "next") == Handover()
        newer = await admitted(admission, "b")
        assert newer.fence > lease.fence
        await waiting(admission, "c")
        assert (await admission.finish(lease, "next")).next is None
        assert await admission.renew(newer) == Renewed()
        assert names((await admission.activity(SESSION)).waiting) == ["c"]

    async def test_a_wrong_token_changes_nothing(self, new_admission: NewAdmission) -> None:
        """Neither finishes nor renews."""
        admission = new_admission()
        lease = await admitted(admission, "a")
        await waiting(admission, "b")
        forged = replace(lease, token=lease.token[::-1])
        assert await admission.finish(forged, "next") == Handover()
        assert await admission.renew(forged) == Lost()
        assert await admission.renew(lease) == Renewed()

    async def test_a_finished_run_is_lost(self, new_admission: NewAdmission) -> None:
        """Also when nobody came after it: a late renewal must not bring it back."""
        admission = new_admission()
        lease = await admitted(admission, "a")
        await admission.finish(lease, "next")
        assert await admission.renew(lease) == Lost()
        assert await admission.activity(SESSION) == SessionActivity()

    async def test_without_a_next_token_nothing_is_taken(self, new_admission: NewAdmission) -> None:
        """And who waited keeps the place before newcomers."""
        admission = new_admission()
        lease = await admitted(admission, "a")
        await waiting(admission, "b")
        assert (await admission.finish(lease, "")).next is None
        assert isinstance(await admission.admit(request("c"), "token-c"), Waiting)
        now = await admission.activity(SESSION)
        assert names([now.running] if now.running else []) + names(now.waiting) == ["b", "c"]

    # --- cancel --------------------------------------------------------------------------------------------------

    async def test_a_parked_run_keeps_the_session_busy_and_has_no_owner(self, new_admission: NewAdmission) -> None:
        """Until somebody claims it, under a higher fence; what came meanwhile has waited."""
        admission = new_admission()
        lease = await admitted(admission, "a")
        await admission.park(lease)
        assert await admission.renew(lease) == Lost()
        assert await admission.admit(request("b"), "token-b") == Waiting(1)
        assert await admission.finish(lease, "next") == Handover(), "the old lease ends nothing"
        claimed = await admission.claim(SESSION, "claim")
        assert claimed is not None
        run, new, _ = claimed
        assert run.task_id == "task-a"
        assert new.fence > lease.fence
        assert await admission.claim(SESSION, "claim") == claimed, "a repeated claim is the same claim"
        assert await admission.claim(SESSION, "other") is None
        handover = await admission.finish(new, "next")
        assert handover.next is not None
        assert handover.next[0].task_id == "task-b"

    async def test_there_is_nothing_to_claim_of_a_run_that_is_worked_on_or_over(
        self, new_admission: NewAdmission
    ) -> None:
        """One run has one owner."""
        admission = new_admission()
        assert await admission.claim(SESSION, "claim") is None
        lease = await admitted(admission, "a")
        assert await admission.claim(SESSION, "claim") is None
        await admission.finish(lease, "")
        assert await admission.claim(SESSION, "claim") is None

    async def test_a_message_recalled_before_it_arrives_never_starts(self, new_admission: NewAdmission) -> None:
        """The recall names no thread, and counts in its own chat only."""
        admission = new_admission()
        for _ in range(2):
            outcome = await admission.cancel_message(SAME_CHAT, "m-a", by="U1", reason="recalled")
            assert outcome == NothingToCancel()
        assert await admission.admit(request("a"), "token-a") == Denied("recalled")
        await admitted(admission, "a", OTHER_CHAT)

    async def test_recall_of_a_waiting_message(self, new_admission: NewAdmission) -> None:
        """It leaves the queue, and stays out when it is delivered or decided again."""
        admission = new_admission()
        await admitted(admission, "a")
        await waiting(admission, "b", "c", "d")
        for _ in range(2):
            outcome = await admission.cancel_message(SAME_CHAT, "m-c", by="U1", reason="recalled")
            assert isinstance(outcome, RemovedFromQueue)
            assert replace(outcome.removed, queued_at_ms=0) == request("c")
            assert names(outcome.waiting) == ["b", "d"]
        assert await admission.admit(request("c"), "token-c") == Denied("recalled")
        assert names((await admission.activity(SESSION)).waiting) == ["b", "d"]

    async def test_recall_of_a_running_message(self, new_admission: NewAdmission) -> None:
        """The owner hears of it, at the latest by its next renewal; the first order stands."""
        admission = new_admission()
        lease = await admitted(admission, "a")
        await waiting(admission, "b")
        outcome = await admission.cancel_message(SAME_CHAT, "m-a", by="U1", reason="recalled")
        assert outcome == CancelRequested("task-a", local=True)
        await admission.cancel_task(SESSION, "task-a", by="U2", reason="stopped")
        assert await admission.renew(lease) == Renewed(CancelOrder("task-a", "U1", "recalled"))
        handover = await admission.finish(lease, "next")
        assert handover.next is not None
        assert await admission.renew(handover.next[1]) == Renewed()

    async def test_recall_of_a_finished_message(self, new_admission: NewAdmission) -> None:
        """Too late."""
        admission = new_admission()
        await admission.finish(await admitted(admission, "a"), "next")
        assert await admission.cancel_message(SESSION, "m-a", by="U1", reason="recalled") == NothingToCancel()

    async def test_cancel_by_task(self, new_admission: NewAdmission) -> None:
        """Running, waiting, unknown."""
        admission = new_admission()
        await admitted(admission, "a")
        await waiting(admission, "b")
        removed = await admission.cancel_task(SESSION, "task-b", by="U1", reason="stopped")
        assert isinstance(removed, RemovedFromQueue)
        requested = await admission.cancel_task(SESSION, "task-a", by="U1", reason="stopped")
        assert requested == CancelRequested("task-a", local=True)
        assert await admission.cancel_task(SESSION, "task-x", by="U1", reason="stopped") == NothingToCancel()
        assert await admission.cancel_task(OTHER_CHAT, "task-a", by="U1", reason="stopped") == NothingToCancel()

    async def test_activity(self, new_admission: NewAdmission) -> None:
        """Who runs and who waits, whole."""
        admission = new_admission()
        assert await admission.activity(SESSION) == SessionActivity()
        await admitted(admission, "a")
        await waiting(admission, "b", "c")
        now = await admission.activity(SESSION)
        assert now.running == request("a")
        assert [replace(run, queued_at_ms=0) for run in now.waiting] == [request("b"), request("c")]
