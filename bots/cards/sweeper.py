"""Cards of tasks that are over, left behind by a process that died between the end of the task and its last view.

Nobody owns such a task any more, so nobody else would come: the card would say "Running" for ever.
"""

import asyncio
import time
from collections.abc import Callable
from functools import reduce
from typing import Final

import structlog

from bots.cards.ledger import is_card
from bots.cards.reporter import RECALLED
from bots.cards.surface import CardSurface
from bots.cards.view import CardView, fold
from bots.errors import PlatformError, RateLimited, Unavailable
from harness.admission import RunInput
from harness.errors import StoreError
from harness.stores.base import CardLedger, TaskStore, TraceStore
from harness.stores.records import TaskRecord

log = structlog.stdlib.get_logger(__name__)

SWEEP_S: Final = 2.0


class CardSweeper:
    """Shows the end on cards that do not show it yet.

    `surface_for` makes the card of a task, with its messages found again. `is_live`: whether a task's card is being
    written in this process. `grace_s`: how long the process that has ended a task is given for its last view; a view
    that is written twice is the same both times. `now` gives Unix seconds.
    """

    def __init__(
        self,
        ledger: CardLedger,
        tasks: TaskStore,
        traces: TraceStore,
        surface_for: Callable[[RunInput], CardSurface],
        *,
        is_live: Callable[[str], bool],
        grace_s: float,
        remove_on_recall: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._ledger = ledger
        self._tasks = tasks
        self._traces = traces
        self._surface_for = surface_for
        self._is_live = is_live
        self._grace_s = grace_s
        self._remove_on_recall = remove_on_recall
        self._now = now

    async def sweep(self, *, every_s: float = SWEEP_S) -> None:
        """Look for such cards until canceled."""
        while True:
            await self.settle_left()
            await asyncio.sleep(every_s)

    async def settle_left(self) -> None:
        """One round of `sweep`."""
        try:
            left = {card.task_id for card in await self._ledger.unfinished() if is_card(card)}
            for task_id in left:
                if not self._is_live(task_id) and (task := await self._tasks.get(task_id)) is not None:
                    await self._settle(task)
        except StoreError as error:
            log.warning("cards that were left behind could not be read", reason=str(error))

    async def _settle(self, task: TaskRecord) -> None:
        if task.ended_at is None or self._now() - task.ended_at < self._grace_s:
            return
        view = reduce(fold, await self._traces.read(task.id), CardView())
        if not view.phase.is_final:
            return
        try:
            await self._show(self._surface_for(task.run), view)
        except (RateLimited, Unavailable) as error:
            log.info("a card that was left behind has to wait", task=task.id, reason=str(error))
        except PlatformError as error:
            # Deleted, or in a chat that is gone: nobody will ever see it.
            log.info("a card that was left behind is given up", task=task.id, code=error.code)
            await self._give_up(task.id, view)
        except Exception:
            # A fault of ours, perhaps with this card only: the others come next, and it is not tried for ever.
            log.exception("a card that was left behind could not be written", task=task.id)
            await self._give_up(task.id, view)
        else:
            log.info("showed the end on a card that was left behind", task=task.id, phase=view.phase.value)

    async def _give_up(self, task_id: str, view: CardView) -> None:
        for card in await self._ledger.of_task(task_id):
            if is_card(card):
                await self._ledger.close(card.key, view.phase.value, at=self._now())

    async def _show(self, surface: CardSurface, view: CardView) -> None:
        if self._remove_on_recall and view.reason == RECALLED:
            await surface.remove()
            return
        async with surface.turn("final"):
            await surface.show(view, "final")
