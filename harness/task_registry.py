"""One place that starts background work, so that no task can vanish with its exception."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.stdlib.get_logger(__name__)


class TaskRegistry:
    """Keeps a strong reference to every asyncio task it starts and logs what they raise.

    The event loop itself only keeps weak references: a task that nobody holds may be collected in mid-flight.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run the coroutine in the background until it ends or `aclose` cancels it."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def __len__(self) -> int:
        return len(self._tasks)

    async def drain(self, seconds: float) -> int:
        """Give what runs some time to end by itself; returns how many still run."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        return len(self._tasks)

    async def aclose(self) -> None:
        """Cancel what still runs and wait until it has ended."""
        while tasks := [task for task in self._tasks if task is not asyncio.current_task()]:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._tasks.difference_update(tasks)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background task failed", task=task.get_name(), exc_info=error)
