"""The runtime: one way in (`start`), one way to stop (`cancel`), and one place where a task ends.

It owns the tasks of this process. Who may run, who waits and who owns a run is decided by `Admission` alone.
"""

import asyncio
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from harness.admission import (
    Admission,
    Admitted,
    CancelOrder,
    CancelOutcome,
    CancelRequested,
    Denied,
    Handover,
    Lease,
    Origin,
    RefusalReason,
    RemovedFromQueue,
    RunInput,
    SessionActivity,
    Waiting,
)
from harness.approval import Approval, Decision
from harness.engine import Engine
from harness.errors import ERROR_KINDS, AdmissionUnavailable, StoreError
from harness.events import RunError, StepTaken
from harness.gate import ApprovalGate
from harness.lease import keep_lease
from harness.live import LiveTask
from harness.parking import Parking, parked_run
from harness.reporters.base import Reporter
from harness.run_state import RunState
from harness.status import StopReason, TaskStatus
from harness.stores.base import ParkedRun, ParkingStore, Records, SessionStore
from harness.stores.memory import MemoryParkingStore
from harness.task import Task
from harness.task_factory import TaskFactory
from harness.task_registry import TaskRegistry
from harness.worker import WorkEnd, Worker

log = structlog.stdlib.get_logger(__name__)

MAX_WAIT_S: Final = 30 * 60
"""A request that waited longer than this is not run any more: its moment has passed, and the person is told."""
EXPIRED: Final = "expired"
"""The cancel reason of such a request."""
STOPPING: Final = "the service is stopping"
_FINISH_RETRY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Started:
    """Running."""

    task: Task


@dataclass(frozen=True, slots=True)
class Queued:
    """Waiting; `position` counts from 1."""

    task: Task
    position: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Not taken, nothing stored."""

    reason: RefusalReason


StartOutcome = Started | Queued | Refused


class Runtime:
    """Starts, runs and ends tasks.

    `reporter_for` makes the reporter of a task that was not started here with one of its own: it left the queue, or
    was recovered, perhaps on another replica. `speaker_name` finds what people call the speaker of an origin that names
    one; it is asked when the run starts, so that admission waits for nothing. `records`: where tasks, their events and
    their calls are written down, in the same database as `sessions` and `parking`; without, they are gone with the
    process.
    """

    def __init__(
        self,
        engine: Engine,
        sessions: SessionStore,
        admission: Admission,
        *,
        reporter_for: Callable[[RunInput], Reporter] | None = None,
        speaker_name: Callable[[Origin], Awaitable[str]] | None = None,
        parking: ParkingStore | None = None,
        records: Records | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._sessions = sessions
        self._admission = admission
        self._records = records
        self._factory = TaskFactory(records, reporter_for, now=now)
        self._now = now
        self._registry = TaskRegistry()
        self._worker = Worker(
            engine, sessions, admission, self._registry, records=records, speaker_name=speaker_name, now=now
        )
        self._live: dict[str, LiveTask] = {}
        self._waiting: dict[str, LiveTask] = {}
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._parking = Parking(parking or MemoryParkingStore(), engine.gate, admission, self, now=now)

    @property
    def live_tasks(self) -> Sequence[Task]:
        """The tasks that run in this process."""
        return [live.task for live in self._live.values()]

    async def start(
        self, session_key: str, prompt: str, reporter: Reporter | None = None, *, origin: Origin | None = None
    ) -> StartOutcome:
        """Ask for a task; returns as soon as it is admitted, before any work.

        Raises ValueError for an empty prompt, and `AdmissionUnavailable` when the coordinator does not answer: then
        the request is not taken, and whoever brought it must bring it again.
        """
        if not prompt.strip():
            raise ValueError("the prompt is empty: say what the model should do")
        if self._closing:
            return Refused("closed")
        run = RunInput(uuid.uuid4().hex, session_key, prompt, origin or Origin())
        # Shielded: when the caller goes away in the middle, an admitted run must still be worked on.
        outcome = await asyncio.shield(self._registry.start(self._admit(run, reporter), f"admit {run.task_id}"))
        if isinstance(outcome, AdmissionUnavailable):
            raise outcome
        return outcome

    async def run(
        self, session_key: str, prompt: str, reporter: Reporter | None = None, *, origin: Origin | None = None
    ) -> StartOutcome:
        """`start`, then wait for the end of the task."""
        outcome = await self.start(session_key, prompt, reporter, origin=origin)
        if not isinstance(outcome, Refused):
            await outcome.task.wait()
        return outcome

    async def cancel_task(self, session_key: str, task_id: str, *, by: str, reason: str) -> CancelOutcome:
        """Stop a task, running or waiting, wherever it is."""
        return await self._canceled(
            await self._admission.cancel_task(session_key, task_id, by=by, reason=reason), by, reason
        )

    async def cancel_message(self, session_key: str, message_id: str, *, by: str, reason: str) -> CancelOutcome:
        """Stop the task of a message; one that has not arrived yet will not start."""
        return await self._canceled(
            await self._admission.cancel_message(session_key, message_id, by=by, reason=reason), by, reason
        )

    def obey(self, order: CancelOrder) -> None:
        """A cancel order that reached this process by another way."""
        if live := self._live.get(order.task_id):
            live.task.cancel(order.reason, by=order.by)

    @property
    def gate(self) -> ApprovalGate:
        """Policy and standing grants."""
        return self._engine.gate

    async def find_approval(self, approval: str) -> Approval | None:
        """An approval by its id or its code, so that the caller can check who may decide it."""
        return await self._parking.find(approval)

    async def decide(self, approval_id: str, decision: Decision, *, by: str) -> Approval | None:
        """Answer a question; None when it is too late. The last answer of a task sets it going again.

        Checks no rights: whoever calls has done that.
        """
        return await self._parking.decide(approval_id, decision, by=by)

    async def activity(self, session_key: str) -> SessionActivity:
        """Who runs and who waits in a session."""
        return await self._admission.activity(session_key)

    async def retry(self, session_key: str, requester: str, *, task_id: str = "") -> StartOutcome | None:
        """Run the last request of a conversation once more, as a new task; None when there is none to run again.

        Only its own requester may, and only until the next request; `task_id` names the one that is meant. However
        often this is asked for one request, one task comes of it.
        """
        if self._records is None:
            return None
        last = next(iter(await self._records.tasks.of_session(session_key, limit=1)), None)
        if last is None or not last.status.is_terminal or task_id not in ("", last.id):
            return None
        if last.run.origin.requester != requester:
            return None
        origin = replace(last.run.origin, dedupe_id=f"retry:{last.id}")
        return await self.start(session_key, last.run.prompt, origin=origin)

    async def clear(self, session_key: str) -> None:
        """Forget the conversation."""
        await self._sessions.clear(session_key)

    async def take_over(self, run: RunInput, lease: Lease, *, begun: bool) -> None:
        """Take a run whose owner died: start it when nobody has worked on it yet, else end it as interrupted.

        Nothing is ever run again by itself: the card says what happened, and the queue moves on.
        """
        live = self._waiting.pop(run.task_id, None) or await self._factory.adopted(run, begun=begun)
        if await self._parking.ask_left(live, lease):
            # It waits for people, who may answer at any time; whoever has the last answer goes on with it.
            return
        if live.task.status is not None and live.task.status.is_terminal:
            # All but the hand-over was done.
            live.sink.detach()
            if (handover := await self._finish(lease)) is not None:
                await self._go_on(handover)
        elif begun:
            await self._bury(live, lease)
        else:
            self._launch(live, lease)

    async def sweep(self) -> None:
        """See to runs that wait for people: deny what nobody has answered in time, go on where nobody else can."""
        await self._parking.expire()
        await self._parking.resume_ready()

    async def adopt(self, run: RunInput) -> LiveTask:
        """See `Resumer`."""
        return await self._factory.adopted(run, begun=True)

    def resume(self, live: LiveTask, lease: Lease, parked: ParkedRun) -> None:
        """Go on with a run that was parked, or end it when it was canceled meanwhile."""
        self._launch(live, lease, parked)

    async def aclose(self, *, drain_s: float = 0.0) -> None:
        """Admit nothing more, let running tasks finish for `drain_s` seconds, then interrupt them honestly."""
        self._closing = True
        if self._records is None:
            # They would be gone with the process; where they are written down, any other can go on with them.
            for task_id in list(self._parking.tasks):
                await self._parking.cancel(task_id, by="", reason=STOPPING, stop=StopReason.INTERRUPTED)
        try:
            async with asyncio.timeout(drain_s):
                await self._idle.wait()
        except TimeoutError:
            self.hurry()
            await self._idle.wait()
        await self._parking.aclose()
        await self._registry.aclose()

    def hurry(self) -> None:
        """Wait for no running task any longer: each ends now, honestly, as interrupted."""
        for live in list(self._live.values()):
            live.task.cancel(STOPPING, stop=StopReason.INTERRUPTED)

    async def _admit(self, run: RunInput, reporter: Reporter | None) -> StartOutcome | AdmissionUnavailable:
        # Known before the answer comes: a FINISH here may hand the waiting run over before ADMIT has replied.
        live = self._factory.new(run, reporter)
        self._waiting[run.task_id] = live
        try:
            outcome = await self._admission.admit(run, secrets.token_hex(16))
        except AdmissionUnavailable as error:
            # Returned, not raised: an outage is the caller's to deal with and no fault of a background task.
            self._waiting.pop(run.task_id, None)
            return error
        except BaseException:
            self._waiting.pop(run.task_id, None)
            raise
        match outcome:
            case Denied(reason=reason):
                self._waiting.pop(run.task_id, None)
                return Refused(reason)
            case Admitted(lease=lease):
                self._waiting.pop(run.task_id, None)
                self._launch(live, lease)
                return Started(live.task)
            case Waiting(position=position):
                if live.task.status is None:
                    await live.queued(position)
                return Queued(live.task, position)

    def _launch(self, live: LiveTask, lease: Lease, parked: ParkedRun | None = None) -> None:
        self._live[live.task.id] = live
        self._idle.clear()
        before = live.task.step(TaskStatus.RUNNING)
        live.task.bind(self._registry.start(self._work(live, lease, before, parked), f"task {live.task.id}"))

    async def _work(self, live: LiveTask, lease: Lease, before: TaskStatus | None, parked: ParkedRun | None) -> None:
        """One task from its first event to its last, or to a question."""
        keeper = self._registry.start(keep_lease(self._admission, lease, live.task), f"lease {live.task.id}")
        end = await self._worker.work(live, lease, before, parked)
        # In a task of its own: a second cancellation, such as the loop's shutdown, must not tear the ending apart.
        await asyncio.shield(self._registry.start(self._settle(live, lease, keeper, end), f"end {live.task.id}"))

    async def _settle(self, live: LiveTask, lease: Lease, keeper: asyncio.Task[None], end: WorkEnd) -> None:
        waits = end.state is not None and bool(end.asked) and end.stop is StopReason.FINISHED
        if not waits:
            await self._worker.save_rest(live, end)
        # No renewal may follow the FINISH: a late one would bring the finished run back.
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        if waits and end.state is not None:
            await self._park(live, lease, end.state, end)
        else:
            await self._conclude(live, lease, end.state, end.stop, end.error)

    async def _park(self, live: LiveTask, lease: Lease, state: RunState, end: WorkEnd) -> None:
        try:
            parked = parked_run(live.task.run_input, state, end.asked, end.elapsed_s)
            await self._parking.park(live, lease, state, parked)
        except Exception:
            log.exception("a run could not be parked", task=live.task.id)
            error = RunError("internal", "The question for permission could not be stored.")
            await self._worker.save_rest(live, end)
            await self._conclude(live, lease, state, StopReason.FAILED, error)
            return
        self._live.pop(live.task.id, None)
        if not self._live:
            self._idle.set()
        await self._parking.ask(live, parked.approvals, lease)

    async def _bury(self, live: LiveTask, lease: Lease) -> None:
        """End a run whose process died, honestly and without running anything again."""
        self._live[live.task.id] = live
        self._idle.clear()
        if live.task.status is None:
            live.task.step(TaskStatus.RUNNING)
        live.task.cancel_reason = "its replica died"
        keeper = self._registry.start(keep_lease(self._admission, lease, live.task), f"lease {live.task.id}")
        try:
            end = await self._worker.left_behind(live, lease)
        except StoreError:
            log.exception("what a dead process left could not be read", task=live.task.id)
            end = WorkEnd(None, StopReason.INTERRUPTED, None, (), 0.0)
        self._registry.start(self._settle(live, lease, keeper, end), f"end {live.task.id}")

    async def _conclude(
        self, live: LiveTask, lease: Lease, state: RunState | None, stop: StopReason, error: RunError | None
    ) -> None:
        """Show the end, give the lease back, start whoever waits."""
        task = live.task
        if task.is_lost:
            live.sink.detach()
        if error is not None:
            getattr(log, ERROR_KINDS[error.kind].log_level)(
                "task failed", task=task.id, kind=error.kind, reason=error.message
            )
            live.sink.stage(StepTaken, (state.steps if state else 0) + 1, "error", error.kind)
        end = await live.end(state, stop, error, fence=lease.fence)
        if live.owed:
            self._registry.start(self._settle_owed(live), f"the end of {task.id}")
        handover = None if task.is_lost else await self._finish(lease)
        self._live.pop(task.id, None)
        task.finish(end)
        if handover is not None:
            await self._go_on(handover)
        if not self._live:
            self._idle.set()

    async def _settle_owed(self, live: LiveTask) -> None:
        while not self._closing and not await live.settle_owed():
            await asyncio.sleep(_FINISH_RETRY_S)

    async def _finish(self, lease: Lease) -> Handover | None:
        token = secrets.token_hex(16)
        try:
            return await self._admission.finish(lease, token)
        except AdmissionUnavailable:
            # The person has the answer already; the queue behind it moves on when the coordinator is back.
            self._registry.start(self._finish_later(lease, token), f"finish {lease.task_id}")
            return None

    async def _finish_later(self, lease: Lease, token: str) -> None:
        while not self._closing:
            await asyncio.sleep(_FINISH_RETRY_S)
            try:
                await self._go_on(await self._admission.finish(lease, token))
            except AdmissionUnavailable:
                continue
            return

    async def _go_on(self, handover: Handover) -> None:
        """Start the next run of the session, which is ours now, and tell the others their new position."""
        if handover.next is not None:
            run, lease = handover.next
            live = self._waiting.pop(run.task_id, None) or await self._factory.adopted(run, begun=False)
            self._launch(live, lease)
            if self._closing:
                live.task.cancel(STOPPING, stop=StopReason.INTERRUPTED)
            elif run.queued_at_ms and self._now() - run.queued_at_ms / 1000 > MAX_WAIT_S:
                live.task.cancel(EXPIRED)
        await self._moved_up(handover.waiting)

    async def _moved_up(self, waiting: Sequence[RunInput]) -> None:
        for position, run in enumerate(waiting, start=1):
            if live := self._waiting.get(run.task_id):
                await live.queued(position)

    async def _canceled(self, outcome: CancelOutcome, by: str, reason: str) -> CancelOutcome:
        match outcome:
            case CancelRequested(task_id=task_id):
                if not await self._parking.cancel(task_id, by=by, reason=reason):
                    self.obey(CancelOrder(task_id, by, reason))
            case RemovedFromQueue(removed=run, waiting=waiting):
                live = self._waiting.pop(run.task_id, None) or await self._factory.adopted(run, begun=False)
                if live.task.status is None:
                    live.task.step(TaskStatus.QUEUED)
                live.task.stopped_by, live.task.cancel_reason = by, reason
                live.task.finish(await live.end(None, StopReason.CANCELED))
                await self._moved_up(waiting)
            case _:
                pass
        return outcome
