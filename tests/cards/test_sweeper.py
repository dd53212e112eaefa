"""Cards of tasks that ended in a process which died before it could show it: the next one shows the end."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bots.cards.ledger import CardBook
from bots.cards.reporter import RECALLED, CardReporter, Deck
from bots.cards.surface import Priority
from bots.cards.sweeper import CardSweeper
from bots.cards.view import CardView, Phase
from bots.errors import ChatGone, MessageGone, NotAuthorised, PlatformError, RateLimited, Unavailable
from harness.admission import InProcessAdmission, RunInput
from harness.engine import Engine
from harness.events import ModelDelta, RunStarted, TaskStateChanged
from harness.limits import Limits
from harness.providers.script import Hang, Say, Script
from harness.providers.scripted import ScriptedProvider
from harness.runtime import Runtime, Started
from harness.status import TaskStatus
from harness.stores.sql import SqlStores, open_stores
from harness.task import Task
from harness.tools.executor import ToolExecutor

GRACE_S = 15.0
ANSWER: Script = [Say("Here "), Say("it is.")]


class Surface:
    """A `CardSurface` whose messages are in a book. `errors` are raised by the next writes."""

    def __init__(self, book: CardBook) -> None:
        self._book = book
        self.errors: list[PlatformError | RuntimeError] = []
        self.shown: list[CardView] = []
        self.is_removed = False

    def wait_time(self, priority: Priority) -> float:
        return 0.0

    def interval(self, live_cards: int) -> float:
        return 0.0

    def turn(self, priority: Priority) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    async def show(self, view: CardView, priority: Priority) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.shown.append(view)
        await self._book.standing()
        if view.phase.is_final:
            await self._book.closed(view.phase.value)

    async def repost(self, view: CardView) -> None:
        await self.show(view, "final")

    async def remove(self) -> None:
        self.is_removed = True
        await self._book.standing()
        await self._book.gone()


class House:
    """A runtime that writes everything down, and a sweeper that comes `later` seconds after the end."""

    def __init__(self, stores: SqlStores, runtime: Runtime) -> None:
        self.stores = stores
        self.runtime = runtime
        self.surfaces: dict[str, Surface] = {}
        self.live: set[str] = set()

    def surface_for(self, run: RunInput) -> Surface:
        return self.surfaces.setdefault(run.task_id, Surface(self.book(run.task_id)))

    def book(self, task_id: str) -> CardBook:
        return CardBook(self.stores.cards, task_id, "s", {})

    async def start(self) -> Task:
        """A task whose card was posted, and closed by nobody."""
        outcome = await self.runtime.start("s", "Where is it?")
        assert isinstance(outcome, Started)
        book = self.book(outcome.task.id)
        await book.opening(0)
        await book.posted(0, "message")
        return outcome.task

    async def sweep(self, *, later: float = 2 * GRACE_S, remove_on_recall: bool = False) -> None:
        sweeper = CardSweeper(
            self.stores.cards, self.stores.tasks, self.stores.traces, self.surface_for,
            is_live=self.live.__contains__, grace_s=GRACE_S, remove_on_recall=remove_on_recall,
            now=lambda: time.time() + later,
        )  # fmt: skip
        await sweeper.settle_left()

    async def left(self) -> int:
        return len(await self.stores.cards.unfinished())


@asynccontextmanager
async def house(*answers: Script) -> AsyncIterator[House]:
    async with open_stores("sqlite:///:memory:", Path()) as stores:
        engine = Engine(ScriptedProvider(answers), ToolExecutor({}), Limits(), system="")
        runtime = Runtime(engine, stores.sessions, InProcessAdmission(), parking=stores.parking, records=stores)
        try:
            yield House(stores, runtime)
        finally:
            await runtime.aclose()


async def test_the_end_is_shown_with_the_whole_answer_once() -> None:
    async with house(ANSWER) as h:
        task = await h.start()
        await task.wait()
        for _ in range(2):
            await h.sweep()
        [view] = h.surfaces[task.id].shown
        assert (view.phase, view.text) == (Phase.DONE, "Here it is.")
        assert await h.left() == 0


async def test_whoever_may_still_be_at_it_is_left_alone() -> None:
    async with house(ANSWER, [Say("Half"), Hang()]) as h:
        ended = await h.start()
        await ended.wait()
        await h.sweep(later=0)
        h.live.add(ended.id)
        await h.sweep()
        running = await h.start()
        await h.sweep()
        assert (h.surfaces, await h.left()) == ({}, 2)
        running.cancel()
        await running.wait()


@pytest.mark.parametrize("error", [RateLimited("wait", seconds=1), Unavailable("503", ambiguous=False)])
async def test_a_platform_that_cannot_now_is_asked_again(error: PlatformError) -> None:
    async with house(ANSWER) as h:
        task = await h.start()
        await task.wait()
        h.surface_for(task.run_input).errors = [error]
        await h.sweep()
        assert await h.left() == 1
        await h.sweep()
        assert len(h.surfaces[task.id].shown) == 1
        assert await h.left() == 0


@pytest.mark.parametrize(
    "error", [MessageGone("deleted"), ChatGone("archived"), NotAuthorised("scope"), RuntimeError("a fault of ours")]
)
async def test_what_can_never_be_shown_is_tried_once(error: PlatformError | RuntimeError) -> None:
    async with house(ANSWER, ANSWER) as h:
        tasks = [await h.start()]
        await tasks[0].wait()
        tasks.append(await h.start())
        await tasks[1].wait()
        h.surface_for(tasks[0].run_input).errors = [error]
        await h.sweep()
        assert await h.left() == 0
        assert [len(h.surfaces[task.id].shown) for task in tasks] == [0, 1], "the other one is shown all the same"


async def test_the_card_of_a_deleted_request_is_taken_away_where_that_is_wished() -> None:
    async with house([Say("Half"), Hang()]) as h:
        task = await h.start()
        task.cancel(RECALLED)
        assert await task.wait() is TaskStatus.CANCELED
        await h.sweep(remove_on_recall=True)
        assert h.surfaces[task.id].is_removed
        assert await h.left() == 0


async def test_a_stop_does_not_wait_for_a_card_that_shows_all_there_is() -> None:
    deck = Deck()
    async with house() as h:
        surface = Surface(h.book("t"))
        card = CardReporter(surface, deck)
        await card.emit(RunStarted("t", 1, 0.0, "s", "Where is it?"))
        await card.emit(TaskStateChanged("t", 2, 0.0, TaskStatus.RUNNING, TaskStatus.WAITING_APPROVAL))
        async with asyncio.timeout(5):
            while not surface.shown:
                await asyncio.sleep(0)
        assert "t" in deck
        async with asyncio.timeout(20):
            await deck.aclose(grace_s=600)
        assert "t" not in deck
        assert surface.shown[-1].phase is Phase.WAITING


async def test_a_stop_waits_for_a_view_that_is_not_out_yet() -> None:
    deck = Deck()
    async with house() as h:
        surface = Surface(h.book("t"))
        surface.errors = [Unavailable("503", ambiguous=False)]
        card = CardReporter(surface, deck)
        await card.emit(RunStarted("t", 1, 0.0, "s", "Where is it?"))
        await card.emit(ModelDelta("t", 2, 0.0, "All of it"))
        await deck.aclose(grace_s=20)
        assert surface.shown[-1].text == "All of it"
