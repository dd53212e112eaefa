"""Runs that wait for a person. They are parked, not held: no coroutine, no lease, no clock runs meanwhile.

`park` stores the calls and the questions, `decide` answers one, and whoever gives the last answer takes the run out
again and goes on with it. The same path serves a normal click, an expiry and, with a durable store, a restart.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

import structlog

from harness.admission import Admission, Lease, RunInput
from harness.approval import Approval, Decision
from harness.errors import AdmissionUnavailable
from harness.events import ApprovalDecided, ApprovalRequested
from harness.gate import ApprovalGate
from harness.live import LiveTask
from harness.run_state import RunState
from harness.status import StopReason
from harness.stores.base import ParkedRun, ParkingStore
from harness.task import Task
from harness.task_registry import TaskRegistry

log = structlog.stdlib.get_logger(__name__)

DENIED: Final = "Denied by {by}. Do not make this call again; go on without it or ask what to do instead."
EXPIRED_TEXT: Final = "Nobody gave permission in time. Do not make this call again; go on without it."
_CLAIM_RETRY_S: Final = 0.5
_PATIENCE_S: Final = 60.0
"""How long the lease of a run is waited for that is to go on; after that the next sweep tries again."""


class Resumer(Protocol):
    """Who goes on with a run that was taken out."""

    async def adopt(self, run: RunInput) -> LiveTask:
        """The task of a run that was parked by another process."""
        ...

    def resume(self, live: LiveTask, lease: Lease, parked: ParkedRun) -> None:
        """Go on with the run under this lease."""
        ...


class Parking:
    """The parked runs. `now` gives Unix seconds."""

    def __init__(
        self,
        store: ParkingStore,
        gate: ApprovalGate,
        admission: Admission,
        resumer: Resumer,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._gate = gate
        self._admission = admission
        self._resumer = resumer
        self._now = now
        self._live: dict[str, LiveTask] = {}
        self._expiries: dict[str, asyncio.Task[None]] = {}
        self._registry = TaskRegistry()

    @property
    def tasks(self) -> Mapping[str, LiveTask]:
        """The parked tasks whose reporter lives in this process."""
        return self._live

    async def park(self, live: LiveTask, lease: Lease, state: RunState, parked: ParkedRun) -> None:
        """Store the run with its questions; `ask` comes next."""
        task = live.task
        step = live.waiting(lease.fence)
        if live.records is None:
            await state.propose()
            await self._store.park(parked)
        else:
            await state.propose(parked, step)
        self._live[task.id] = live
        latest = max(approval.expires_at for approval in parked.approvals)
        self._expiries[task.id] = self._registry.start(self._expire_at(latest), f"expiry {task.id}")
        task.rest(lambda: self._stopped(task))
        if task.stop_reason is not None:
            self._stopped(task)  # it came while the run was being parked

    async def ask(self, live: LiveTask, approvals: Sequence[Approval], lease: Lease) -> None:
        """Put the questions, then give the lease back: a run whose questions were not put still has an owner to lose.

        An answer or a stop that comes meanwhile has its turn after that.
        """
        async with live.talking:
            try:
                for approval in approvals:
                    await live.sink.emit(ApprovalRequested, approval)
            finally:
                try:
                    await self._admission.park(lease)
                except AdmissionUnavailable:
                    # The lease runs out by itself; whoever goes on waits for that.
                    log.warning("a waiting run keeps its lease until it runs out", task=live.task.id)

    async def ask_left(self, live: LiveTask, lease: Lease) -> bool:
        """Put the questions that the process which has parked the run could not; False when it is not parked."""
        parked = await self._store.parked(live.task.id)
        if parked is None:
            return False
        live = self._only(live)
        left = [a for a in parked.approvals if a.status == "pending" and a.id not in live.task.asked]
        await self.ask(live, left, lease)
        return True

    async def find(self, approval: str) -> Approval | None:
        """An approval by its id or code, for whoever has to check who may decide."""
        return await self._store.find(approval)

    async def decide(self, approval_id: str, decision: Decision, *, by: str) -> Approval | None:
        """Answer one question; None when it was answered already, has expired, or is not known.

        Checks no rights: the caller has done that. The last answer of a run sets it going again.
        """
        decided = await self._store.decide(approval_id, decision, by=by, now=self._now())
        if decided is not None:
            await self._gate.remember(decided, decision, by)
            await self._answered(decided)
        return decided

    async def expire(self) -> None:
        """Deny what nobody has answered in time, whoever asked it."""
        for expired in await self._store.expire(now=self._now()):
            # Each by itself: one whose lease is still held must not keep the others waiting.
            self._registry.start(self._answered(expired), f"expired {expired.task_id}")

    async def resume_ready(self) -> None:
        """Go on with runs whose last answer was given and whose process died before it could."""
        for task_id in await self._store.ready():
            if (parked := await self._store.parked(task_id)) is not None:
                await self._take_out(await self._live_of(parked.run), parked.run, patience_s=0.0)

    async def cancel(self, task_id: str, *, by: str, reason: str, stop: StopReason = StopReason.CANCELED) -> bool:
        """End a parked run: none of its waiting calls runs. False when it is not parked (any more)."""
        parked = await self._store.parked(task_id)
        if parked is None:
            return False
        live = await self._live_of(parked.run)
        live.task.stop_reason, live.task.stopped_by, live.task.cancel_reason = stop, by, reason
        return await self._take_out(live, parked.run)

    async def aclose(self) -> None:
        """Stop watching the time, and keep nothing open for what may go on anywhere later."""
        await self._registry.aclose()
        for live in self._live.values():
            live.sink.detach()

    async def _answered(self, approval: Approval) -> None:
        parked = await self._store.parked(approval.task_id)
        if parked is None:
            return
        live = await self._live_of(parked.run)
        async with live.talking:
            await live.sink.emit(ApprovalDecided, approval.id, approval.decision or "deny", approval.decided_by)
        if parked.is_decided:
            await self._take_out(live, parked.run)

    async def _live_of(self, run: RunInput) -> LiveTask:
        """What shows the task; made anew when another process has asked, which may have died since."""
        if run.task_id not in self._live:
            return self._only(await self._resumer.adopt(run))
        return self._live[run.task_id]

    def _only(self, live: LiveTask) -> LiveTask:
        """What shows the task in this process: whoever came first. Two would write over each other on one card."""
        first = self._live.setdefault(live.task.id, live)
        if first is not live:
            live.sink.detach()
        return first

    def _stopped(self, task: Task) -> None:
        stop = task.stop_reason or StopReason.CANCELED
        self._registry.start(
            self.cancel(task.id, by=task.stopped_by, reason=task.cancel_reason, stop=stop), f"stop {task.id}"
        )

    async def _take_out(self, live: LiveTask, run: RunInput, *, patience_s: float = _PATIENCE_S) -> bool:
        """Become the owner of a parked run and go on with it; False when somebody else has, or has the lease.

        It stays parked until the lease is held: whatever dies in between, the next owner finds it as it is.
        """
        expiry = self._expiries.pop(run.task_id, None)
        if expiry is not None and expiry is not asyncio.current_task():
            expiry.cancel()
        async with live.talking:
            pass  # everything about the question has been said
        token = secrets.token_hex(16)
        until = asyncio.get_running_loop().time() + patience_s
        while await self._store.parked(run.task_id) is not None:
            with contextlib.suppress(AdmissionUnavailable):
                claimed = await self._admission.claim(run.session_key, token)
                if claimed is not None and claimed[0].task_id == run.task_id:
                    parked = await self._store.unpark(run.task_id)
                    self._live.pop(run.task_id, None)
                    if parked is None:
                        return False
                    self._resumer.resume(live, claimed[1], parked)
                    return True
            # The coordinator is away, or the lease from before the question has not run out yet.
            if asyncio.get_running_loop().time() >= until:
                return False
            await asyncio.sleep(_CLAIM_RETRY_S)
        if self._live.get(run.task_id) is live:
            del self._live[run.task_id]
            live.sink.detach()
        return False

    async def _expire_at(self, when: float) -> None:
        # In steps: the wall clock may be set, and the machine may sleep.
        while (left := when - self._now()) > 0:
            await asyncio.sleep(min(left, 30.0))
        await self.expire()


def verdicts(parked: ParkedRun) -> dict[str, str]:
    """For each call of a parked run: "" = run it, else the result that the model gets instead."""
    found = {call.id: "" for call in parked.message.tool_calls}
    for approval in parked.approvals:
        match approval.status:
            case "allowed":
                found[approval.call_id] = ""
            case "denied":
                found[approval.call_id] = DENIED.format(by=approval.decided_by or "a person")
            case "pending" | "expired" | "void":
                found[approval.call_id] = EXPIRED_TEXT
    return found | dict(parked.refused)


def parked_run(run: RunInput, state: RunState, asked: Sequence[Approval], elapsed_s: float) -> ParkedRun:
    """What has to be kept of a run that waits for these answers."""
    assert state.running is not None, "only a message with calls can wait"
    return ParkedRun(
        run=run,
        message=state.running,
        approvals=tuple(asked),
        turns=state.turns,
        tool_calls=state.tool_calls,
        steps=state.steps,
        usage=state.usage,
        answered=tuple(state.answered),
        elapsed_s=elapsed_s,
        denials=state.denials,
        refused=tuple((call_id, text) for call_id, text in state.verdicts.items() if text),
    )


def state_of(parked: ParkedRun, fresh: RunState) -> RunState:
    """The state with which a parked run goes on, on top of one that was made anew."""
    return replace(
        fresh,
        turns=parked.turns,
        tool_calls=parked.tool_calls,
        steps=parked.steps,
        usage=parked.usage,
        answered=list(parked.answered),
        running=parked.message,
        is_logged=True,
        verdicts=verdicts(parked),
        denials=parked.denials,
    )
