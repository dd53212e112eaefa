"""A task: one request, from admission to its end, and the table of steps that it may take."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from harness.admission import RunInput
from harness.errors import InvalidTransition
from harness.events import ApprovalRequested, Event, RunEnded, RunError, RunStarted
from harness.status import StopReason, TaskStatus

_ENDS = frozenset(status for status in TaskStatus if status.is_terminal)
TRANSITIONS: Final[dict[TaskStatus | None, frozenset[TaskStatus]]] = {
    None: frozenset({TaskStatus.QUEUED, TaskStatus.RUNNING}),
    # A change of the position is a step of its own. A queued task can be canceled, or interrupted by a shutdown.
    TaskStatus.QUEUED: frozenset(
        {TaskStatus.QUEUED, TaskStatus.RUNNING, TaskStatus.CANCELED, TaskStatus.INTERRUPTED, TaskStatus.FAILED}
    ),
    TaskStatus.RUNNING: _ENDS | {TaskStatus.WAITING_APPROVAL},
    TaskStatus.WAITING_APPROVAL: _ENDS | {TaskStatus.RUNNING},
    **{status: frozenset[TaskStatus]() for status in _ENDS},
}
"""From each status (None = not created yet) to those that may follow it."""


class Task:
    """One request and all that is known about it.

    Public: `id`, `session_key`, `status`, `wait()`, `cancel(reason)`, `error`, `result`, `events(after=seq)`.
    The runtime drives it; everybody else only looks and cancels. `status` and `events`: where a task stands that
    another process has worked on, and what has been kept of it.
    """

    def __init__(
        self,
        run: RunInput,
        *,
        status: TaskStatus | None = None,
        events: Sequence[Event] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        self.run_input = run
        self.status = status
        self.end: RunEnded | None = None
        self.stop_reason: StopReason | None = None
        self.stopped_by = ""
        self.cancel_reason = ""
        self.is_lost = False
        self._now = now
        self._seq = events[-1].seq if events else 0
        self._stored: list[Event] = list(events)
        self._readers: set[asyncio.Queue[Event]] = set()
        self._done = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._entered = False
        self._can_stop = False
        self._wake: Callable[[], None] | None = None

    @property
    def id(self) -> str:
        """Unique among all tasks."""
        return self.run_input.task_id

    @property
    def session_key(self) -> str:
        """The conversation that the task belongs to."""
        return self.run_input.session_key

    @property
    def error(self) -> RunError | None:
        """Why the task failed, once it has."""
        return self.end.error if self.end else None

    @property
    def result(self) -> str:
        """The answer that was shown, also after a failure; "" before the end."""
        return self.end.answer if self.end else ""

    @property
    def asked(self) -> frozenset[str]:
        """The ids of the questions that were put."""
        return frozenset(event.approval.id for event in self._stored if isinstance(event, ApprovalRequested))

    @property
    def has_begun(self) -> bool:
        """Whether the person's message is in the conversation already, put there perhaps by a process that died."""
        return any(isinstance(event, RunStarted) for event in self._stored)

    @property
    def is_done(self) -> bool:
        """True once the task has reached its end."""
        return self._done.is_set()

    async def wait(self) -> TaskStatus:
        """Wait for the end. Cancelling the waiter does not cancel the task."""
        await self._done.wait()
        assert self.status is not None
        return self.status

    def cancel(self, reason: str = "", *, by: str = "", stop: StopReason = StopReason.CANCELED) -> bool:
        """Ask a running task to stop; True when there was something to stop.

        The first call decides the reason. A task that waits in the queue is taken out by `Runtime.cancel`.
        """
        if self.is_done or not self._can_stop or self.stop_reason is not None:
            return False
        self.stop_reason, self.cancel_reason, self.stopped_by = stop, reason, by
        if self._entered and self._worker is not None:
            self._worker.cancel()
        if self._wake is not None:
            self._wake()
        return True

    async def events(self, after: int = 0) -> AsyncIterator[Event]:
        """Every stored event with a higher `seq`, then all events as they happen; ends after `run:end`.

        Pieces of text that were published before the call are not repeated: `model:end` has the whole text.
        """
        queue: asyncio.Queue[Event] = asyncio.Queue()
        missed = [event for event in self._stored if event.seq > after]
        if not self.is_done:
            self._readers.add(queue)
        try:
            for event in missed:
                yield event
                if isinstance(event, RunEnded):
                    return  # published, though the runtime may still be at work on the end
            while queue in self._readers:
                event = await queue.get()
                yield event
                if isinstance(event, RunEnded):
                    return
        finally:
            self._readers.discard(queue)

    # What follows is for the runtime and the engine.

    def next_envelope(self) -> tuple[str, int, float]:
        """`task_id`, `seq` and `at` of the next event."""
        self._seq += 1
        return self.run_input.task_id, self._seq, self._now()

    def record(self, event: Event) -> None:
        """Keep the event if its kind is kept, and pass it to whoever reads `events`."""
        if event.stored:
            self._stored.append(event)
        for reader in self._readers:
            reader.put_nowait(event)

    def bind(self, worker: asyncio.Task[None]) -> None:
        """The asyncio task that works on this; the only thing that `cancel` cancels."""
        self._worker = worker
        self._wake = None
        self._entered = False
        self._can_stop = True

    def enter(self) -> None:
        """The worker has begun. Raises CancelledError when it was canceled before.

        An asyncio task that is canceled before its first step never runs at all, and would leave its lease behind.
        """
        self._entered = True
        if self.stop_reason is not None:
            raise asyncio.CancelledError

    def leave(self, *, parking: bool) -> None:
        """The worker has stopped working on the request.

        From here on cancelling has no effect, unless the run is being parked: then the reason is noted for whoever
        has parked it.
        """
        self._worker = None
        self._can_stop = parking

    def rest(self, wake: Callable[[], None]) -> None:
        """Nobody works on the request while it waits for a person: `wake` is called when it is canceled."""
        self._wake = wake

    def step(self, to: TaskStatus) -> TaskStatus | None:
        """Take one step of the table and return the status before; InvalidTransition when there is no such step."""
        before = self.status
        if to not in TRANSITIONS[before]:
            raise InvalidTransition(f"task {self.id} cannot go from {before} to {to}")
        self.status = to
        return before

    def finish(self, end: RunEnded) -> None:
        """The end: `wait` returns from now on."""
        self.end = end
        self._done.set()
