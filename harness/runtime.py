"""The runtime: one way in (`start`), one way to stop (`cancel`), and one place where a task ends.

It owns the tasks of this process. Who may run, who waits and who owns a run is decided by `Admission` alone.
"""

import asyncio
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
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
from harness.errors import ERROR_KINDS, AdmissionUnavailable, LimitExceeded, ProviderError, StaleFence
from harness.events import RunError, RunStarted, StepTaken, TaskStateChanged
from harness.gate import ApprovalGate
from harness.lease import keep_lease
from harness.live import LiveTask
from harness.messages import Message, UserMessage
from harness.parking import Parking, parked_run, state_of
from harness.reporters.base import CanDetach, EventSink, Reporter, SilentReporter
from harness.run_state import RunState
from harness.status import StopReason, TaskStatus
from harness.stores.base import ParkedRun, ParkingStore, SessionStore
from harness.stores.memory import MemoryParkingStore
from harness.stores.session_log import SessionLog
from harness.task import Task
from harness.task_registry import TaskRegistry
from harness.tools.executor import Caller

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


_LIMITS = {"max_turns": StopReason.MAX_TURNS, "budget": StopReason.BUDGET}
StartOutcome = Started | Queued | Refused


class Runtime:
    """Starts, runs and ends tasks.

    `reporter_for` makes the reporter of a task that was not started here with one of its own: it left the queue, or
    was recovered, perhaps on another replica. `speaker_name` finds what people call the speaker of an origin that names
    one; it is asked when the run starts, so that admission waits for nothing.
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
        now: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._sessions = sessions
        self._admission = admission
        self._reporter_for = reporter_for or _silent
        self._speaker_name = speaker_name
        self._now = now
        self._registry = TaskRegistry()
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

    async def clear(self, session_key: str) -> None:
        """Forget the conversation."""
        await self._sessions.clear(session_key)

    async def take_over(self, run: RunInput, lease: Lease, *, begun: bool) -> None:
        """Take a run whose owner died: start it when nobody has worked on it yet, else end it as interrupted.

        Nothing is ever run again by itself: the card says what happened, and the queue moves on.
        """
        live = self._waiting.pop(run.task_id, None) or self.adopt(run)
        self._launch(live, lease)
        if begun:
            live.task.cancel("its replica died", stop=StopReason.INTERRUPTED)

    def adopt(self, run: RunInput) -> LiveTask:
        """The task of a run that another process had, with a reporter made from its origin."""
        task = Task(run)
        return LiveTask(task, EventSink(task, self._reporter_for(run)))

    def resume(self, live: LiveTask, lease: Lease, parked: ParkedRun) -> None:
        """Go on with a run that was parked, or end it when it was canceled meanwhile."""
        self._launch(live, lease, parked)

    async def aclose(self, *, drain_s: float = 0.0) -> None:
        """Admit nothing more, let running tasks finish for `drain_s` seconds, then interrupt them honestly."""
        self._closing = True
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
        task = Task(run)
        sink = EventSink(task, reporter or self._reporter_for(run))
        live = self._waiting[run.task_id] = LiveTask(task, sink)
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
                    await live.step(TaskStatus.QUEUED, position=position)
                return Queued(live.task, position)

    def _launch(self, live: LiveTask, lease: Lease, parked: ParkedRun | None = None) -> None:
        self._live[live.task.id] = live
        self._idle.clear()
        before = live.task.step(TaskStatus.RUNNING)
        live.task.bind(self._registry.start(self._work(live, lease, before, parked), f"task {live.task.id}"))

    async def _work(self, live: LiveTask, lease: Lease, before: TaskStatus | None, parked: ParkedRun | None) -> None:
        """One task from its first event to its last, or to a question; whatever happens, it ends in `_end`."""
        task = live.task
        state: RunState | None = None
        error: RunError | None = None
        asked: Sequence[Approval] = ()
        stop = StopReason.FINISHED
        left = self._engine.limits.run_timeout_s - (parked.elapsed_s if parked else 0.0)
        loop = asyncio.get_running_loop()
        started = loop.time()
        deadline = loop.call_later(left, lambda: task.cancel("out of time", stop=StopReason.TIMEOUT))
        keeper = self._registry.start(keep_lease(self._admission, lease, task), f"lease {task.id}")
        try:
            if parked is not None:
                # Before the look at cancellations: a run that was canceled while it waited still has its text.
                state = await self._open(live, lease, parked)
            task.enter()
            await live.sink.emit(TaskStateChanged, before, TaskStatus.RUNNING)
            state = state or await self._open(live, lease, None)
            asked = await self._engine.run(state)
        except asyncio.CancelledError:
            stop = task.stop_reason or StopReason.INTERRUPTED
        except AdmissionUnavailable:
            stop = StopReason.INTERRUPTED
        except StaleFence:
            # The store knows of a new owner before the next renewal does.
            task.is_lost = True
            stop = StopReason.INTERRUPTED
        except ProviderError as failure:
            stop, error = StopReason.FAILED, RunError(failure.kind, failure.message)
        except LimitExceeded as failure:
            stop = _LIMITS.get(failure.kind, StopReason.FAILED)
            error = RunError(failure.kind, failure.message)
        except Exception as failure:
            stop, error = StopReason.FAILED, RunError("internal", f"{type(failure).__name__} inside the harness.")
            log.exception("task failed inside the harness", task=task.id)
        finally:
            deadline.cancel()
            task.leave(parking=bool(asked))
        # In a task of its own: a second cancellation, such as the loop's shutdown, must not tear the ending apart.
        if state is not None and asked and stop is StopReason.FINISHED:
            elapsed = loop.time() - started + (parked.elapsed_s if parked else 0.0)
            ending = self._park(live, lease, keeper, parked_run(task.run_input, state, asked, elapsed))
        else:
            ending = self._end(live, lease, keeper, state, stop, error)
        await asyncio.shield(self._registry.start(ending, f"end {task.id}"))

    async def _open(self, live: LiveTask, lease: Lease, parked: ParkedRun | None) -> RunState:
        """Load the conversation, and add the person's message to it unless the run goes on after a question."""
        task, run = live.task, live.task.run_input
        log_of_session = SessionLog(self._sessions, await self._sessions.load(run.session_key), lease.fence)

        async def save(messages: Sequence[Message]) -> None:
            # Shielded: a cancellation in the middle must not leave half a turn behind.
            await asyncio.shield(self._registry.start(log_of_session.append(messages), f"save {task.id}"))

        caller = Caller(task.id, run.session_key, run.origin.requester)
        if parked is not None:
            return state_of(parked, RunState(live.sink, caller, list(log_of_session.session.messages), save))
        speaker = run.origin.speaker
        if speaker and self._speaker_name is not None:
            speaker = await self._speaker_name(run.origin)
        await save([UserMessage(run.prompt, speaker)])
        await live.sink.emit(RunStarted, run.session_key, run.prompt)
        # From here on a crash means "interrupted": the work must not begin a second time.
        await self._admission.mark_started(lease)
        return RunState(live.sink, caller, list(log_of_session.session.messages), save)

    async def _end(
        self,
        live: LiveTask,
        lease: Lease,
        keeper: asyncio.Task[None],
        state: RunState | None,
        stop: StopReason,
        error: RunError | None,
    ) -> None:
        if state is not None and not live.task.is_lost:
            try:
                if unsaved := state.unsaved(canceled=stop is StopReason.CANCELED):
                    await state.save(unsaved)
            except StaleFence:
                live.task.is_lost = True
            except Exception:
                # Whatever the store does: the task ends, and the session is free again.
                log.exception("the end of the conversation could not be saved", task=live.task.id)
        # No renewal may follow the FINISH: a late one would bring the finished run back.
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        await self._conclude(live, lease, state, stop, error)

    async def _park(self, live: LiveTask, lease: Lease, keeper: asyncio.Task[None], parked: ParkedRun) -> None:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)
        try:
            await self._parking.park(live, lease, parked)
        except Exception:
            log.exception("a run could not be parked", task=live.task.id)
            error = RunError("internal", "The question for permission could not be stored.")
            await self._conclude(live, lease, None, StopReason.FAILED, error)
            return
        self._live.pop(live.task.id, None)
        if not self._live:
            self._idle.set()

    async def _conclude(
        self, live: LiveTask, lease: Lease, state: RunState | None, stop: StopReason, error: RunError | None
    ) -> None:
        """Show the end, give the lease back, start whoever waits."""
        task = live.task
        if live.task.is_lost and isinstance(live.sink.reporter, CanDetach):
            live.sink.reporter.detach()
        if error is not None:
            getattr(log, ERROR_KINDS[error.kind].log_level)(
                "task failed", task=task.id, kind=error.kind, reason=error.message
            )
            await live.sink.emit(StepTaken, (state.steps if state else 0) + 1, "error", error.kind)
        end = await live.end(state, stop, error)
        handover = None if live.task.is_lost else await self._finish(lease)
        self._live.pop(task.id, None)
        task.finish(end)
        if handover is not None:
            await self._go_on(handover)
        if not self._live:
            self._idle.set()

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
            live = self._waiting.pop(run.task_id, None) or self.adopt(run)
            self._launch(live, lease)
            if self._closing:
                live.task.cancel(STOPPING, stop=StopReason.INTERRUPTED)
            elif run.queued_at_ms and self._now() - run.queued_at_ms / 1000 > MAX_WAIT_S:
                live.task.cancel(EXPIRED)
        await self._moved_up(handover.waiting)

    async def _moved_up(self, waiting: Sequence[RunInput]) -> None:
        for position, run in enumerate(waiting, start=1):
            if live := self._waiting.get(run.task_id):
                await live.step(TaskStatus.QUEUED, position=position)

    async def _canceled(self, outcome: CancelOutcome, by: str, reason: str) -> CancelOutcome:
        match outcome:
            case CancelRequested(task_id=task_id):
                if not await self._parking.cancel(task_id, by=by, reason=reason):
                    self.obey(CancelOrder(task_id, by, reason))
            case RemovedFromQueue(removed=run, waiting=waiting):
                live = self._waiting.pop(run.task_id, None) or self.adopt(run)
                if live.task.status is None:
                    live.task.step(TaskStatus.QUEUED)
                live.task.stopped_by, live.task.cancel_reason = by, reason
                live.task.finish(await live.end(None, StopReason.CANCELED))
                await self._moved_up(waiting)
            case _:
                pass
        return outcome


def _silent(_run: RunInput) -> Reporter:
    return SilentReporter()
