"""What a reporter is, and the one place that hands events to it."""

from collections.abc import Coroutine
from typing import Any, Protocol, runtime_checkable

import structlog

from harness.events import Event
from harness.task import Task

log = structlog.stdlib.get_logger(__name__)


class Reporter(Protocol):
    """Shows one task to somebody.

    Contract: `emit` returns quickly, because the model waits for it; never reads input; need not be safe against
    concurrent calls. What it raises is logged and counted, never seen by the engine.
    """

    async def emit(self, event: Event) -> None:
        """One more event of the task, in order."""
        ...


@runtime_checkable
class CanDetach(Protocol):
    """A reporter that holds something open can be told that no further event will come."""

    def detach(self) -> None:
        """Somebody else owns the task now: show nothing more, release what is held."""
        ...


class SilentReporter:
    """Shows nothing: the caller reads the task itself."""

    async def emit(self, event: Event) -> None:
        """Drop the event."""


class EventSink:
    """Numbers the events of a task, keeps them, and passes them to the reporter."""

    __slots__ = ("reporter", "reporter_failures", "task")

    def __init__(self, task: Task, reporter: Reporter) -> None:
        self.task = task
        self.reporter = reporter
        self.reporter_failures = 0

    def emit(self, cls: type[Any], *fields: Any) -> Coroutine[Any, Any, None]:
        """Publish one event: `await sink.emit(ModelDelta, "text")`. Fields follow the envelope in order."""
        # No coroutine of its own around `publish`: this happens for every piece of text.
        return self.publish(cls(*self.task.next_envelope(), *fields))

    async def publish(self, event: Event) -> None:
        """Publish an event that has its envelope already."""
        self.task.record(event)
        try:
            await self.reporter.emit(event)
        except Exception:
            self.reporter_failures += 1
            if self.reporter_failures == 1:  # a broken reporter breaks at every event: say it once
                log.exception("reporter failed", task=self.task.id, kind=event.kind)
