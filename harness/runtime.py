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
from harness.engine import Engine, RunState
from harness.errors import ERROR_KINDS, AdmissionUnavailable, LimitExceeded, ProviderError, StaleFence
from harness.events import RunEnded, RunError, RunStarted, StepTaken, TaskStateChanged
from harness.lease import keep_lease
from harness.messages import Message, Usage, UserMessage
from harness.reporters.base import CanDetach, EventSink, Reporter, SilentReporter
from harness.status import StopReason, TaskStatus
from harness.stores.base import SessionStore
from harness.stores.session_log import SessionLog
from harness.task import Task
from harness.task_registry import TaskRegistry
from harness.tools.executor import Caller

log = structlog.stdlib.get_logger(__name__)

MAX_WAIT_S: Final = 30 * 60
"""A request that waited longer than this is not run any more: its moment has passed, and the person is told."""
EXPIRED: Final = "expired"
"""The cancel reason of such a request."""
_FINISH_RETRY_S: Final = 1.0
_STATUS = {
    StopReason.FINISHED: TaskStatus.COMPLETED,
    StopReason.CANCELED: TaskStatus.CANCELED,
    StopReason.TIMEOUT: TaskStatus.TIMED_OUT,
    StopReason.INTERRUPTED: TaskStatus.INTERRUPTED,
    StopReason.FAILED: TaskStatus.FAILED,
    StopReason.MAX_TURNS: TaskStatus.FAILED,
    StopReason.BUDGET: TaskStatus.FAILED,
}


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


@dataclass(slots=True)
class _Live:
    """A task that this process works on or keeps the card of, with what shows it."""

    task: Task
    sink: EventSink


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
        now: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._sessions = sessions
        self._admission = admission
        self._reporter_for = reporter_for or _silent
        self._speaker_name = speaker_name
        self._now = now
        self._registry = TaskRegistry()
        self._live: dict[str, _Live] = {}
        self._waiting: dict[str, _Live] = {}
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()

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
        return await asyncio.shield(self._registry.start(self._admit(run, reporter), f"admit {run.task_id}"))

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
        live = self._waiting.pop(run.task_id, None) or self._adopt(Task(run), None)
        self._launch(live, lease)
        if begun:
            live.task.cancel("its replica died", stop=StopReason.INTERRUPTED)

    async def aclose(self, *, drain_s: float = 0.0) -> None:
        """Admit nothing more, let running tasks finish for `drain_s` seconds, then interrupt them honestly."""
        self._closing = True
        try:
            async with asyncio.timeout(drain_s):
                await self._idle.wait()
        except TimeoutError:
            for live in list(self._live.values()):
                live.task.cancel("the service is stopping", stop=StopReason.INTERRUPTED)
            await self._idle.wait()
        await self._registry.aclose()

    async def _admit(self, run: RunInput, reporter: Reporter | None) -> StartOutcome:
        # Known before the answer comes: a FINISH here may hand the waiting run over before ADMIT has replied.
        live = self._waiting[run.task_id] = self._adopt(Task(run), reporter)
        try:
            outcome = await self._admission.admit(run, secrets.token_hex(16))
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
                    await _step(live, TaskStatus.QUEUED, position=position)
                return Queued(live.task, position)

    def _adopt(self, task: Task, reporter: Reporter | None) -> _Live:
        return _Live(task, EventSink(task, reporter or self._reporter_for(task.run_input)))

    def _launch(self, live: _Live, lease: Lease) -> None:
        self._live[live.task.id] = live
        self._idle.clear()
        before = live.task.step(TaskStatus.RUNNING)
        live.task.bind(self._registry.start(self._work(live, lease, before), f"task {live.task.id}"))

    async def _work(self, live: _Live, lease: Lease, before: TaskStatus | None) -> None:
        """One task from its first event to its last; whatever happens, it ends in `_conclude`."""
        task = live.task
        state: RunState | None = None
        error: RunError | None = None
        stop = StopReason.FINISHED
        deadline = asyncio.get_running_loop().call_later(
            self._engine.limits.run_timeout_s, lambda: task.cancel("out of time", stop=StopReason.TIMEOUT)
        )
        keeper = self._registry.start(keep_lease(self._admission, lease, task), f"lease {task.id}")
        try:
            task.enter()
            await live.sink.emit(TaskStateChanged, before, TaskStatus.RUNNING)
            state = await self._open(live, lease)
            await self._engine.run(state)
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
            stop = StopReason.MAX_TURNS if failure.kind == "max_turns" else StopReason.BUDGET
            error = RunError(failure.kind, failure.message)
        except Exception as failure:
            stop, error = StopReason.FAILED, RunError("internal", f"{type(failure).__name__} inside the harness.")
            log.exception("task failed inside the harness", task=task.id)
        finally:
            deadline.cancel()
            task.leave()
        # In a task of its own: a second cancellation, such as the loop's shutdown, must not tear the ending apart.
        ending = self._registry.start(self._end(live, lease, keeper, state, stop, error), f"end {task.id}")
        await asyncio.shield(ending)

    async def _open(self, live: _Live, lease: Lease) -> RunState:
        """Load the conversation and add the person's message to it."""
        task, run = live.task, live.task.run_input
        log_of_session = SessionLog(self._sessions, await self._sessions.load(run.session_key), lease.fence)

        async def save(messages: Sequence[Message]) -> None:
            # Shielded: a cancellation in the middle must not leave half a turn behind.
            await asyncio.shield(self._registry.start(log_of_session.append(messages), f"save {task.id}"))

        speaker = run.origin.speaker
        if speaker and self._speaker_name is not None:
            speaker = await self._speaker_name(run.origin)
        await save([UserMessage(run.prompt, speaker)])
        await live.sink.emit(RunStarted, run.session_key, run.prompt)
        # From here on a crash means "interrupted": the work must not begin a second time.
        await self._admission.mark_started(lease)
        caller = Caller(task.id, run.session_key, run.origin.requester)
        return RunState(live.sink, caller, list(log_of_session.session.messages), save)

    async def _end(
        self,
        live: _Live,
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

    async def _conclude(
        self, live: _Live, lease: Lease, state: RunState | None, stop: StopReason, error: RunError | None
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
        end = await _ended(live, state, stop, error)
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
            live = self._waiting.pop(run.task_id, None) or self._adopt(Task(run), None)
            self._launch(live, lease)
            if self._closing:
                live.task.cancel("the service is stopping", stop=StopReason.INTERRUPTED)
            elif run.queued_at_ms and self._now() - run.queued_at_ms / 1000 > MAX_WAIT_S:
                live.task.cancel(EXPIRED)
        await self._moved_up(handover.waiting)

    async def _moved_up(self, waiting: Sequence[RunInput]) -> None:
        for position, run in enumerate(waiting, start=1):
            if live := self._waiting.get(run.task_id):
                await _step(live, TaskStatus.QUEUED, position=position)

    async def _canceled(self, outcome: CancelOutcome, by: str, reason: str) -> CancelOutcome:
        match outcome:
            case CancelRequested(task_id=task_id):
                self.obey(CancelOrder(task_id, by, reason))
            case RemovedFromQueue(removed=run, waiting=waiting):
                live = self._waiting.pop(run.task_id, None) or self._adopt(Task(run), None)
                if live.task.status is None:
                    live.task.step(TaskStatus.QUEUED)
                live.task.stopped_by, live.task.cancel_reason = by, reason
                live.task.finish(await _ended(live, None, StopReason.CANCELED, None))
                await self._moved_up(waiting)
            case _:
                pass
        return outcome


def _silent(_run: RunInput) -> Reporter:
    return SilentReporter()


async def _step(live: _Live, to: TaskStatus, *, reason: str = "", position: int = 0) -> None:
    before = live.task.step(to)
    await live.sink.emit(TaskStateChanged, before, to, reason, position)


async def _ended(live: _Live, state: RunState | None, stop: StopReason, error: RunError | None) -> RunEnded:
    """Take the last step, publish `run:end`, and return it."""
    task = live.task
    status = _STATUS[stop]
    before = task.step(status)
    await live.sink.emit(TaskStateChanged, before, status, task.cancel_reason)
    if state is None:
        fields = (status, stop, "", 0, Usage(), error, task.stopped_by)
    else:
        steps = state.steps + (error is not None)
        fields = (status, stop, state.answer, steps, state.usage, error, task.stopped_by)
    end = RunEnded(*task.next_envelope(), *fields)
    await live.sink.publish(end)
    return end
