"""Time as the stand-ins see it: real by default, by hand in tests."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import Protocol


class Clock(Protocol):
    """What rate windows and retry delays are measured with. Message timestamps and signatures use the wall clock."""

    def now(self) -> float:
        """Seconds, monotonic; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when `seconds` of this clock have passed."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep in real time."""
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that stands still until `advance` moves it: vendor minutes pass in no time."""

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        """The time that `advance` has reached."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Wait for `advance` to pass the given point; nothing to wait for = one turn of the loop."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waiter = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), waiter))
        await waiter

    @property
    def sleepers(self) -> tuple[float, ...]:
        """When each one that waits is due, in seconds from now, soonest first."""
        return tuple(sorted(due - self._now for due, _, waiter in self._sleepers if not waiter.done()))

    def advance(self, seconds: float) -> None:
        """Move the time forward and wake everyone who is due."""
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, waiter = heapq.heappop(self._sleepers)
            if not waiter.done():
                waiter.set_result(None)
