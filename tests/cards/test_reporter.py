"""The card of one task against a platform that is slow, refuses, and disappears, each on order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog

from bots.cards import reporter as reporter_module
from bots.cards.reporter import (
    EDIT_DEADLINE_S,
    FIRST_REFUSAL_PAUSE_S,
    GIVE_UP_S,
    LONGEST_REFUSAL_PAUSE_S,
    RECALLED,
    CardReporter,
    Deck,
)
from bots.cards.surface import Priority
from bots.cards.throttle import FIRST_TEXT_CHARS
from bots.cards.view import CardView, Phase
from bots.errors import ChatGone, MessageGone, NotAuthorised, RateLimited, Refused, Unavailable
from harness.events import (
    Event,
    ModelDelta,
    ModelEnded,
    ModelStarted,
    RunEnded,
    RunStarted,
    TaskStateChanged,
    ToolStarted,
)
from harness.messages import ToolCall, Usage
from harness.status import StopReason, TaskStatus

ENOUGH = "x" * FIRST_TEXT_CHARS
DOWN = Unavailable("500", ambiguous=False)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Surface:
    """A `CardSurface` in memory. `behaviour`: what each write does, first in first out, then all is well.

    An exception is raised, an event is waited for first, a function is called. `line`: what each turn waits for.
    """

    def __init__(self) -> None:
        self.behaviour: deque[Exception | asyncio.Event | Callable[[], None]] = deque()
        self.calls: list[str] = []
        self.shown: list[CardView] = []
        self.priorities: list[Priority] = []
        self.waits: dict[Priority, float] = {}
        self.pace = 0.0
        self.live_cards: list[int] = []
        self.in_flight = 0
        self.line: deque[asyncio.Event | Exception] = deque()
        self.in_line = 0
        self.turns = 0

    def wait_time(self, priority: Priority) -> float:
        return self.waits.get(priority, 0.0)

    def interval(self, live_cards: int) -> float:
        self.live_cards.append(live_cards)
        return self.pace

    @asynccontextmanager
    async def turn(self, priority: Priority) -> AsyncGenerator[None]:
        self.in_line += 1
        try:
            step = self.line.popleft() if self.line else None
            if isinstance(step, Exception):
                raise step
            if step is not None:
                await step.wait()
        finally:
            self.in_line -= 1
        self.turns += 1
        yield

    async def show(self, view: CardView, priority: Priority) -> None:
        await self._write("show")
        self.shown.append(view)
        self.priorities.append(priority)

    async def repost(self, view: CardView) -> None:
        await self._write("repost")
        self.shown.append(view)

    async def remove(self) -> None:
        await self._write("remove")

    async def _write(self, name: str) -> None:
        self.calls.append(name)
        assert self.in_flight == 0, "two writes at once"
        self.in_flight += 1
        try:
            await asyncio.sleep(0)
            step = self.behaviour.popleft() if self.behaviour else None
            if isinstance(step, asyncio.Event):
                await step.wait()
                step = self.behaviour.popleft() if self.behaviour and isinstance(self.behaviour[0], Exception) else None
            if isinstance(step, Exception):
                raise step
            if step is not None:
                step()
        finally:
            self.in_flight -= 1


class Bench:
    """A reporter, its surface and its clock, and the events of a run."""

    def __init__(self, deck: Deck, **options: Any) -> None:
        self.deck = deck
        self.surface = Surface()
        self.clock = Clock()
        self.gone = 0
        self.reporter = CardReporter(self.surface, deck, clock=self.clock, on_chat_gone=self._chat_gone, **options)
        self._seq = 0

    def _chat_gone(self) -> None:
        self.gone += 1

    def emit(self, cls: type[Any], *fields: Any) -> None:
        """Hand over one event; `emit` must be through without waiting for anything."""
        self._seq += 1
        event: Event = cls("t", self._seq, 1.0, *fields)
        coroutine = self.reporter.emit(event)
        with pytest.raises(StopIteration):
            coroutine.send(None)

    def begin(self) -> None:
        self.emit(TaskStateChanged, None, TaskStatus.RUNNING)
        self.emit(RunStarted, "s", "go")
        self.emit(ModelStarted, 1)

    def say(self, text: str) -> None:
        self.emit(ModelDelta, text)

    def tool(self) -> None:
        self.emit(ToolStarted, ToolCall("c", "look", {}))

    def end(self, status: TaskStatus = TaskStatus.COMPLETED, reason: str = "") -> None:
        self.emit(TaskStateChanged, TaskStatus.RUNNING, status, reason)
        self.emit(RunEnded, status, StopReason.FINISHED, "", 1, Usage(1, 1))

    @property
    def last(self) -> CardView:
        return self.surface.shown[-1]

    async def until(self, look: Callable[[], Any], what: str = "it") -> None:
        async with asyncio.timeout(5):
            while not look():
                await asyncio.sleep(0.001)

    async def shows(self, phase: Phase) -> None:
        await self.until(lambda: self.surface.shown and self.last.phase is phase)

    async def settled(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(30):
            await asyncio.sleep(0)

    async def over(self) -> None:
        await self.until(lambda: not len(self.deck))


@pytest.fixture
async def deck() -> AsyncIterator[Deck]:
    deck = Deck()
    yield deck
    assert len(deck) == 0, "a writer is left behind"


@pytest.fixture(autouse=True)
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter_module, "_BACKOFF_S", (0.001,))


async def test_from_the_first_state_to_the_last(deck: Deck) -> None:
    bench = Bench(deck)
    bench.emit(TaskStateChanged, None, TaskStatus.QUEUED, "", 2)
    await bench.shows(Phase.QUEUED)
    bench.emit(TaskStateChanged, TaskStatus.QUEUED, TaskStatus.QUEUED, "", 1)
    await bench.until(lambda: bench.last.position == 1)
    bench.begin()
    await bench.shows(Phase.THINKING)
    bench.say(ENOUGH)
    await bench.shows(Phase.RUNNING)
    bench.tool()
    await bench.until(lambda: bench.last.tools)
    bench.end()
    await bench.over()
    assert bench.last.phase is Phase.DONE
    assert (bench.last.text, bench.last.output_tokens) == (ENOUGH, 1)
    assert bench.surface.priorities.count("final") == 1
    assert [view.phase.is_final for view in bench.surface.shown].count(True) == 1


async def test_the_newest_view_wins_and_nobody_waits_for_a_slow_platform(deck: Deck) -> None:
    bench = Bench(deck)
    slow = asyncio.Event()
    bench.surface.behaviour.append(slow)
    bench.begin()
    await bench.until(lambda: bench.surface.in_flight)
    for _ in range(1_000):
        bench.say("word ")  # each is through at once, see `Bench.emit`
    await bench.settled()
    assert bench.surface.calls == ["show"]
    slow.set()
    await bench.until(lambda: len(bench.surface.shown) == 2)
    assert bench.last.text == "word " * 1_000, "one write for a thousand pieces"
    bench.end()
    await bench.over()


async def test_the_first_words_go_out_when_there_are_a_few(deck: Deck) -> None:
    bench = Bench(deck)  # its clock stands still: time alone brings nothing
    bench.begin()
    await bench.shows(Phase.THINKING)
    await bench.settled()
    bench.clock.now += 60
    writes = len(bench.surface.shown)
    bench.say("H")
    await bench.settled()
    assert len(bench.surface.shown) == writes, "a single sign is not worth an edit"
    bench.say(ENOUGH)
    await bench.settled()
    assert bench.last.text == "H" + ENOUGH, "enough to read goes out at once, not after the 300 ms"
    bench.end()
    await bench.over()


async def test_the_first_words_do_not_wait_for_ever(deck: Deck) -> None:
    bench = Bench(deck)
    bench.begin()
    await bench.shows(Phase.THINKING)
    await bench.settled()
    bench.say("H")
    await bench.settled()
    bench.clock.now += 0.31
    await bench.until(lambda: bench.last.text == "H")
    bench.end()
    await bench.over()


async def test_text_keeps_its_pace_and_what_cannot_wait_does_not(deck: Deck) -> None:
    bench = Bench(deck)
    bench.surface.pace = 1.5
    bench.begin()
    await bench.shows(Phase.THINKING)
    bench.say(ENOUGH)
    await bench.shows(Phase.RUNNING)
    bench.say("more")
    await bench.settled()
    assert bench.last.text == ENOUGH
    bench.tool()
    await bench.settled()
    assert bench.last.tools, "a tool shows at once"
    assert bench.last.text == f"{ENOUGH}more", "and takes the newest text along"
    bench.say("!")
    await bench.settled()
    assert not bench.last.text.endswith("!")
    bench.end()
    await bench.settled()
    assert bench.last.phase is Phase.DONE
    await bench.over()


async def test_the_pace_depends_on_the_number_of_live_cards(deck: Deck) -> None:
    benches = [Bench(deck) for _ in range(3)]
    for bench in benches:
        bench.begin()
        await bench.shows(Phase.THINKING)
        bench.say(ENOUGH)
    for bench in benches:
        await bench.shows(Phase.RUNNING)
    assert benches[-1].surface.live_cards[-1] == 3
    for bench in benches:
        bench.end()
        await bench.over() if bench is benches[-1] else None
    await benches[0].over()


async def test_the_limits_hold_text_back_but_never_the_end(deck: Deck) -> None:
    bench = Bench(deck)
    bench.begin()
    await bench.shows(Phase.THINKING)
    bench.surface.waits = {"text": 30.0, "state": 30.0, "final": 30.0}
    bench.say(ENOUGH)
    bench.tool()
    await bench.settled()
    assert bench.last.phase is Phase.THINKING
    bench.end()
    # The surface itself decides about the final write: it raises RateLimited when there is no room.
    await bench.over()
    assert bench.last.phase is Phase.DONE


async def test_a_rate_limit_costs_intermediate_views_only(deck: Deck) -> None:
    bench = Bench(deck)
    bench.begin()
    await bench.shows(Phase.THINKING)
    bench.surface.behaviour.append(RateLimited("429", seconds=0.01))
    bench.say(ENOUGH)
    bench.say("more")
    await bench.until(lambda: bench.last.text == f"{ENOUGH}more")
    bench.end()
    await bench.over()
    assert "repost" not in bench.surface.calls


@pytest.mark.parametrize("error", [RateLimited("429", seconds=30.0), DOWN])
async def test_the_end_is_not_slept_through_when_it_comes_during_a_write_that_fails(
    deck: Deck, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter_module, "_BACKOFF_S", (30.0,))
    bench = Bench(deck)
    slow = asyncio.Event()
    bench.surface.behaviour += [slow, error]
    bench.begin()
    await bench.until(lambda: bench.surface.in_flight)
    bench.end()
    slow.set()
    await bench.over()
    assert bench.last.phase is Phase.DONE


async def test_the_end_interrupts_a_pause(deck: Deck) -> None:
    bench = Bench(deck)
    bench.surface.behaviour.append(RateLimited("429", seconds=30.0))
    bench.begin()
    await bench.until(lambda: bench.surface.calls)
    await bench.settled()
    bench.end()
    await bench.over()
    assert bench.last.phase is Phase.DONE


# --- the ladder of the final view ---


async def test_a_busy_platform_gets_the_final_view_as_an_edit_within_a_minute(deck: Deck) -> None:
    bench = Bench(deck)
    bench.begin()
    await bench.shows(Phase.THINKING)
    bench.surface.behaviour += [RateLimited("429", seconds=0.001), DOWN, DOWN, RateLimited("429", seconds=0.001)]
    bench.end()
    await bench.over()
    assert bench.surface.calls[-5:] == ["show"] * 5
    assert bench.last.phase is Phase.DONE


async def test_after_a_minute_the_final_view_goes_out_as_a_new_message(deck: Deck) -> None:
    bench = Bench(deck)
    bench.begin()
    await bench.shows(Phase.THINKING)

    def later() -> None:
        bench.clock.now += EDIT_DEADLINE_S / 2
        raise DOWN

    bench.surface.behaviour += [later, later, DOWN]
    bench.end()
    await bench.over()
    tries = bench.surface.calls[bench.surface.calls.index("repost") - 2 :]
    assert tries == ["show", "show", "repost", "repost"], "two edits within the minute, then a message until it is out"
    assert bench.last.phase is Phase.DONE


# Answers to the final edit that leave only a new message.
FOR_GOOD = [
    RateLimited("429", seconds=EDIT_DEADLINE_S + 1),
    Refused("too_long"),
    NotAuthorised("no scope"),
    TypeError(),
]


@pytest.mark.parametrize("error", FOR_GOOD, ids=repr)
async def test_an_edit_that_fails_for_good_becomes_a_new_message(deck: Deck, error: Exception) -> None:
    bench = Bench(deck)
    bench.begin()
    await bench.shows(Phase.THINKING)
    bench.surface.behaviour.append(error)
    bench.end()
    await bench.over()
    assert bench.surface.calls[-2:] == ["show", "repost"]
    assert bench.last.phase is Phase.DONE


async def test_when_nothing_helps_it_gives_up_and_leaves_nothing_running(deck: Deck) -> None:
    bench = Bench(deck)
    bench.begin()
    await bench.shows(Phase.THINKING)
    bench.surface.behaviour += [Refused("no"), RateLimited("429", seconds=GIVE_UP_S + 1)]
    bench.end()
    await bench.over()
    assert bench.surface.calls[-2:] == ["show", "repost"]


@pytest.mark.parametrize("error", [MessageGone("gone"), ChatGone("archived")])
async def test_a_card_that_is_gone_at_the_end_stays_gone(deck: Deck, error: Exception) -> None:
    bench = Bench(deck)
    bench.begin()
    await bench.shows(Phase.THINKING)
    bench.surface.behaviour.append(error)
    bench.end()
    await bench.over()
    assert "repost" not in bench.surface.calls
    assert bench.last.phase is Phase.THINKING


# --- in the middle ---


async def test_a_card_that_somebody_deleted_is_left_alone(deck: Deck) -> None:
    bench = Bench(deck)
    bench.begin()
    await bench.shows(Phase.THINKING)
    bench.surface.behaviour.append(MessageGone("gone"))
    bench.tool()
    await bench.over()
    calls = list(bench.surface.calls)
    bench.say(ENOUGH)
    bench.end()
    await bench.settled()
    assert (bench.surface.calls, bench.gone) == (calls, 0)


async def test_a_chat_that_is_gone_stops_the_task_once(deck: Deck) -> None:
    bench = Bench(deck)
    bench.surface.behaviour.append(ChatGone("archived"))
    bench.begin()
    await bench.over()
    assert bench.gone == 1
    bench.end(TaskStatus.CANCELED)
    await bench.settled()
    assert (bench.gone, bench.surface.calls) == (1, ["show"])


REFUSALS = [Refused("audit"), NotAuthorised("no scope"), TypeError("a fault of ours")]


@pytest.mark.parametrize("error", REFUSALS, ids=repr)
async def test_after_a_refusal_it_is_quiet_for_a_while_and_then_shows_what_has_changed(
    deck: Deck, error: Exception
) -> None:
    bench = Bench(deck)
    bench.begin()
    await bench.shows(Phase.THINKING)
    bench.surface.behaviour.append(error)
    bench.tool()
    await bench.until(lambda: not bench.surface.behaviour)
    await bench.settled()
    writes = len(bench.surface.calls)
    bench.clock.now += FIRST_REFUSAL_PAUSE_S - 1
    bench.tool()
    await bench.settled()
    assert len(bench.surface.calls) == writes, "not yet"
    bench.clock.now += 1
    bench.tool()
    await bench.until(lambda: len(bench.last.tools) == 3)
    assert len(bench.surface.calls) == writes + 1
    bench.tool()
    await bench.until(lambda: len(bench.last.tools) == 4, "no pause once it goes well again")
    bench.end()
    await bench.over()
    assert bench.last.phase is Phase.DONE


@pytest.mark.parametrize("error", REFUSALS, ids=repr)
async def test_what_was_refused_is_not_sent_again_and_the_pauses_grow(deck: Deck, error: Exception) -> None:
    bench = Bench(deck)
    bench.begin()
    await bench.shows(Phase.THINKING)
    bench.surface.behaviour += [error] * 5
    with structlog.testing.capture_logs() as logs:
        for number, pause in enumerate((30.0, 60.0, 120.0, LONGEST_REFUSAL_PAUSE_S, LONGEST_REFUSAL_PAUSE_S)):
            writes = len(bench.surface.calls)
            bench.tool()
            await bench.until(lambda writes=writes: len(bench.surface.calls) > writes)
            await bench.settled()
            bench.clock.now += pause - 0.5
            bench.reporter._wake.set()
            await bench.settled()
            bench.clock.now += 0.5
            bench.reporter._wake.set()
            await bench.settled()
            assert len(bench.surface.calls) == writes + 1, f"nothing has changed since refusal {number}"
    assert len([line for line in logs if line["log_level"] == "error"]) == 1, "a line for each kind, not for each try"
    bench.end()
    await bench.over()
    assert bench.last.phase is Phase.DONE, "no card stays running"


async def test_the_end_does_not_wait_for_the_pause_after_a_refusal(deck: Deck) -> None:
    bench = Bench(deck)
    bench.surface.behaviour.append(Refused("audit"))
    bench.begin()
    await bench.until(lambda: bench.surface.calls)
    bench.end()
    await bench.over()
    assert bench.last.phase is Phase.DONE


# --- waiting for other cards ---


async def test_what_is_shown_is_chosen_when_the_turn_comes(deck: Deck) -> None:
    bench = Bench(deck)
    turn = asyncio.Event()
    bench.surface.line.append(turn)
    bench.begin()
    await bench.until(lambda: bench.surface.in_line)
    bench.say(ENOUGH)
    bench.say("and more")
    await bench.settled()
    assert bench.surface.calls == []
    turn.set()
    await bench.until(lambda: bench.surface.shown)
    assert bench.surface.shown[0].text == f"{ENOUGH}and more"
    bench.end()
    await bench.over()


async def test_an_answer_that_is_done_before_its_turn_is_posted_once(deck: Deck) -> None:
    bench = Bench(deck)
    turn = asyncio.Event()
    bench.surface.line.append(turn)
    bench.begin()
    await bench.until(lambda: bench.surface.in_line)
    bench.say("2")
    bench.end()
    await bench.settled()
    assert bench.surface.calls == [], "being done is no reason to push in"
    turn.set()
    await bench.over()
    assert bench.surface.calls == ["show"]
    assert (bench.last.phase, bench.last.text, bench.last.output_tokens) == (Phase.DONE, "2", 1)


@pytest.mark.parametrize("remove", [False, True])
async def test_a_recalled_request_leaves_the_line_at_once(deck: Deck, remove: bool) -> None:
    bench = Bench(deck, remove_on_recall=remove)
    bench.surface.line.append(asyncio.Event())
    bench.begin()
    await bench.until(lambda: bench.surface.in_line)
    bench.end(TaskStatus.CANCELED, RECALLED)
    await bench.over()
    assert bench.surface.in_line == 0
    assert bench.surface.calls == ["remove"], "in case that a post in doubt has arrived after all"


async def test_a_recall_in_the_moment_in_which_the_turn_comes_posts_nothing(deck: Deck) -> None:
    for recall_first in (True, False):
        bench = Bench(deck)
        turn = asyncio.Event()
        bench.surface.line.append(turn)
        bench.begin()
        await bench.until(lambda bench=bench: bench.surface.in_line)
        if not recall_first:
            turn.set()
        bench.end(TaskStatus.CANCELED, RECALLED)
        turn.set()
        await bench.over()
        assert "show" not in bench.surface.calls


async def test_a_stop_waits_for_its_turn_and_is_shown(deck: Deck) -> None:
    bench = Bench(deck)
    turn = asyncio.Event()
    bench.surface.line.append(turn)
    bench.begin()
    await bench.until(lambda: bench.surface.in_line)
    bench.end(TaskStatus.CANCELED, "stop")
    await bench.settled()
    assert bench.surface.in_line == 1
    turn.set()
    await bench.over()
    assert [view.phase for view in bench.surface.shown] == [Phase.CANCELED]


@pytest.mark.parametrize("error", [RateLimited("429", seconds=0.001), DOWN, TypeError()], ids=repr)
async def test_a_turn_that_fails_is_like_a_write_that_fails(deck: Deck, error: Exception) -> None:
    bench = Bench(deck)
    bench.surface.line += [error]
    bench.begin()
    await bench.until(lambda: not bench.surface.line)
    bench.end()
    await bench.over()
    assert bench.last.phase is Phase.DONE


# --- recall ---


async def test_a_request_recalled_before_the_first_post_is_never_answered(deck: Deck) -> None:
    bench = Bench(deck)
    bench.begin()
    bench.end(TaskStatus.CANCELED, RECALLED)
    await bench.over()
    assert bench.surface.shown == []
    assert "show" not in bench.surface.calls


async def test_a_stop_before_the_first_post_is_shown(deck: Deck) -> None:
    bench = Bench(deck)
    bench.begin()
    bench.end(TaskStatus.CANCELED, "stop")
    await bench.over()
    assert bench.last.phase is Phase.CANCELED


async def test_a_recall_while_the_first_post_is_under_way_leaves_a_canceled_card(deck: Deck) -> None:
    bench = Bench(deck)
    slow = asyncio.Event()
    bench.surface.behaviour.append(slow)
    bench.begin()
    await bench.until(lambda: bench.surface.in_flight)
    bench.end(TaskStatus.CANCELED, RECALLED)
    slow.set()
    await bench.over()
    assert bench.last.phase is Phase.CANCELED


@pytest.mark.parametrize("error", [None, DOWN, RateLimited("429", seconds=0.001)])
async def test_a_recall_may_take_the_card_away(deck: Deck, error: Exception | None) -> None:
    bench = Bench(deck, remove_on_recall=True)
    bench.begin()
    await bench.shows(Phase.THINKING)
    if error is not None:
        bench.surface.behaviour.append(error)
    bench.end(TaskStatus.CANCELED, RECALLED)
    await bench.over()
    assert bench.surface.calls[-1] == "remove"
    assert all(not view.phase.is_final for view in bench.surface.shown)


async def test_a_card_that_cannot_be_taken_away_is_shown_as_canceled(deck: Deck) -> None:
    bench = Bench(deck, remove_on_recall=True)
    bench.begin()
    await bench.shows(Phase.THINKING)
    bench.surface.behaviour.append(NotAuthorised("cant_delete_message"))
    bench.end(TaskStatus.CANCELED, RECALLED)
    await bench.over()
    assert bench.last.phase is Phase.CANCELED, "or it would look as if it went on for ever"


# --- leaving ---


@pytest.mark.parametrize("when", ["before", "waiting", "writing"])
async def test_after_detach_nothing_is_written(deck: Deck, when: str) -> None:
    bench = Bench(deck)
    if when == "writing":
        bench.surface.behaviour.append(asyncio.Event())
    if when != "before":
        bench.begin()
        await bench.until(lambda: bench.surface.calls)
        await bench.settled()
    bench.reporter.detach()
    await bench.over()
    calls = list(bench.surface.calls)
    bench.begin()
    bench.say(ENOUGH)
    bench.end()
    await bench.settled()
    assert bench.surface.calls == calls
    bench.reporter.detach()


async def test_a_shutdown_waits_for_finals_and_then_no_longer() -> None:
    deck = Deck()
    quick, stuck = Bench(deck), Bench(deck)
    stuck.surface.behaviour.append(asyncio.Event())
    slow = asyncio.Event()
    quick.surface.behaviour.append(slow)
    for bench in (quick, stuck):
        bench.begin()
        bench.end()
    await quick.until(lambda: quick.surface.in_flight and stuck.surface.in_flight)
    asyncio.get_running_loop().call_later(0.01, slow.set)
    await asyncio.wait_for(deck.aclose(grace_s=0.5), 5)
    assert quick.last.phase is Phase.DONE
    assert stuck.surface.shown == []
    assert len(deck) == 0


async def test_without_streaming_the_whole_turn_is_text_like_any_other(deck: Deck) -> None:
    bench = Bench(deck)
    bench.begin()
    await bench.shows(Phase.THINKING)
    bench.emit(ModelEnded, "All at once.", (), "stop", Usage())
    bench.end()
    await bench.over()
    assert bench.last.text == "All at once."
