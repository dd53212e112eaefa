"""What a reporter is, and the one place that hands events to it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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


@runtime_checkable
class CanRetract(Protocol):
    """A reporter that can take back text it has shown, such as an edited card; a terminal cannot."""

    @property
    def can_retract(self) -> bool:
        """Whether it can right now."""
        ...


class SilentReporter:
    """Shows nothing: the caller reads the task itself."""

    async def emit(self, event: Event) -> None:
        """Drop the event."""


class EventSink:
    """Numbers the events of a task, keeps them, and passes them to the reporter.

    `keep` makes events durable; one of a kind that is kept is published only when that is done, so that nobody has seen
    what a crash could take back. What it raises passes through `emit`. Events that need not be seen at once are staged:
    they go out with whatever is written next, which saves a commit for each.
    """

    __slots__ = ("_keep", "_staged", "order", "reporter", "reporter_failures", "task")

    def __init__(
        self, task: Task, reporter: Reporter, keep: Callable[[Sequence[Event]], Awaitable[None]] | None = None
    ) -> None:
        self.task = task
        self.reporter = reporter
        self.reporter_failures = 0
        self._keep = keep
        self._staged: list[tuple[type[Any], tuple[Any, ...]]] = []
        self.order = asyncio.Lock()
        """Held from the number of an event until it is published, so that tools side by side keep the order."""

    @property
    def can_retract(self) -> bool:
        """Can what was shown be taken back?"""
        return isinstance(self.reporter, CanRetract) and self.reporter.can_retract

    def detach(self) -> None:
        """The reporter shows nothing more, if it can be told so."""
        if isinstance(self.reporter, CanDetach):
            self.reporter.detach()

    async def emit(self, cls: type[Any], *fields: Any) -> None:
        """Publish one event: `await sink.emit(ModelDelta, "text")`. Fields follow the envelope in order."""
        if cls.stored or self._staged or self.order.locked():
            self.stage(cls, *fields)
            async with self.order:
                await self._keep_and_publish(self.take())
            return
        # Says what `publish` says, without a call of it: this happens for every piece of text.
        task = self.task
        event: Event = cls(*task.next_envelope(), *fields)
        task.record(event)
        try:
            await self.reporter.emit(event)
        except Exception:
            self._note_failure(event)

    def stage(self, cls: type[Any], *fields: Any) -> None:
        """The next event, to go out with whatever is written next: a later event, or what `take` is called for."""
        self._staged.append((cls, fields))

    def take(self) -> Sequence[Event]:
        """The staged events, for whoever writes them down together with something else, and then publishes them.

        To be called while `order` is held, unless nobody else can have anything to tell.
        """
        staged, self._staged = self._staged, []
        return [cls(*self.task.next_envelope(), *fields) for cls, fields in staged]

    async def _keep_and_publish(self, events: Sequence[Event]) -> None:
        if self._keep is not None and (kept := [event for event in events if event.stored]):
            await self._keep(kept)
        for event in events:
            await self.publish(event)

    async def publish(self, event: Event) -> None:
        """Publish an event that has its envelope already, and is kept as it should be."""
        self.task.record(event)
        try:
            await self.reporter.emit(event)
        except Exception:
            self._note_failure(event)

    async def replay(self, events: Sequence[Event]) -> None:
        """Show the reporter what happened before it was there."""
        for event in events:
            try:
                await self.reporter.emit(event)
            except Exception:
                self._note_failure(event)

    def _note_failure(self, event: Event) -> None:
        self.reporter_failures += 1
        if self.reporter_failures == 1:  # a broken reporter breaks at every event: say it once
            log.exception("reporter failed", task=self.task.id, kind=event.kind)
