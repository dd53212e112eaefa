"""A limit on silence that costs next to nothing per sign of life."""

import asyncio
from types import TracebackType
from typing import Self


class Watchdog:
    """Cancels the body of an `async with` when nothing has happened for too long, and turns that into TimeoutError.

    `first`: seconds until the first `alive`; `idle`: seconds between two. The timer is set again only when it fires,
    so `alive` is one assignment: a timer per piece of text would cost more than the piece itself.
    """

    __slots__ = ("_cancelling", "_due", "_expired", "_idle", "_last", "_limit", "_loop", "_now", "_task", "_timer")

    def __init__(self, *, first: float, idle: float) -> None:
        self._limit = first
        self._idle = idle
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._last = self._now()
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._expired = False
        self._cancelling = 0

    def alive(self) -> None:
        """Something has just arrived."""
        self._last = self._now()
        self._limit = self._idle

    @property
    def limit(self) -> float:
        """The limit in force, in seconds."""
        return self._limit

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        self._last = self._due = self._loop.time()
        self._watch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Only our own cancellation becomes a timeout: one that came from outside at the same time must win.
        if not self._expired or self._task is None:
            return
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError(f"nothing came for {self._limit:g} s") from error

    def _watch(self) -> None:
        now = self._loop.time()
        # The limit may have become shorter since the timer was set, so look at least as often as the shorter one.
        if now - self._due > self._limit / 2:
            # The loop was stuck or the process stopped (Ctrl-Z, a full pipe): nobody listened, so it was no silence.
            self._last = now
        elif now >= self._last + self._limit:
            assert self._task is not None
            self._expired = True
            self._task.cancel()
            return
        self._due = min(self._last + self._limit, now + self._idle)
        self._timer = self._loop.call_at(self._due, self._watch)
