"""The card of one task: folds events, and shows the newest view as often as the platform allows.

Nothing here makes the model wait: `emit` folds and returns, a loop of its own writes. One write is under way at a time,
and it always carries the newest view, so a slow platform costs intermediate views and nothing else. That holds for the
wait behind other cards too: the view is taken when the card's turn has come.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import structlog

from bots.cards.surface import CardSurface, Priority
from bots.cards.throttle import FIRST_TEXT_CHARS, CardThrottle
from bots.cards.view import CardView, Phase, fold, with_text
from bots.errors import ChatGone, MessageGone, NotAuthorised, PlatformError, RateLimited, Refused, Unavailable
from harness.errors import StoreError
from harness.events import Event, ModelDelta, TaskStateChanged
from harness.status import TaskStatus
from harness.task_registry import TaskRegistry

log = structlog.stdlib.get_logger(__name__)

RECALLED: Final = "recalled"
"""The cancel reason of a request that was deleted."""
EDIT_DEADLINE_S: Final = 60.0
"""How long the final view is tried as an edit before it goes out as a new message."""
GIVE_UP_S: Final = 600.0
_BACKOFF_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
FIRST_REFUSAL_PAUSE_S: Final = 30.0
"""How long nothing is written after the platform refused a view; doubles with each further refusal."""
LONGEST_REFUSAL_PAUSE_S: Final = 120.0


class _Pointless(Exception):
    """The request was recalled before anything of it was shown."""


class Deck:
    """The cards that are live in this process: what the pace of each depends on, and what a shutdown waits for."""

    def __init__(self) -> None:
        self._registry = TaskRegistry()
        self._wakes: dict[str, asyncio.Event] = {}
        self._closing = False

    def __len__(self) -> int:
        return len(self._registry)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._wakes

    @property
    def is_closing(self) -> bool:
        """No event will come any more: a card that shows its newest view is finished."""
        return self._closing

    def start(self, task_id: str, write: Coroutine[Any, Any, None], wake: asyncio.Event) -> asyncio.Task[None]:
        """Run the write loop of a card; `wake` makes it look again at what there is to do."""
        self._wakes[task_id] = wake
        writer = self._registry.start(write, f"card {task_id}")
        writer.add_done_callback(lambda _: self._ended(task_id, wake))
        return writer

    def _ended(self, task_id: str, wake: asyncio.Event) -> None:
        # A task that was taken over from here and came back has another card by now.
        if self._wakes.get(task_id) is wake:
            del self._wakes[task_id]

    async def aclose(self, *, grace_s: float) -> None:
        """Give views that are not out yet some time, then stop."""
        self._closing = True
        for wake in self._wakes.values():
            wake.set()
        if left := await self._registry.drain(grace_s):
            log.warning("stopped before every card was up to date", cards=left)
        await self._registry.aclose()


class CardReporter:
    """Reporter and card of one task.

    `on_chat_gone` is called once when nothing can be written to the chat any more: the task should stop.
    `keep`: writes down the text that people are about to see, before they see it.
    `remove_on_recall`: delete the card instead of showing it as canceled when the request was deleted.
    """

    def __init__(
        self,
        surface: CardSurface,
        deck: Deck,
        *,
        on_chat_gone: Callable[[], None] | None = None,
        remove_on_recall: bool = False,
        keep: Callable[[str], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._surface = surface
        self._deck = deck
        self._on_chat_gone = on_chat_gone
        self._remove_on_recall = remove_on_recall
        self._keep = keep
        self._kept = ""
        self._clock = clock
        self._view = CardView()
        self._more_text: list[str] = []
        self._only_text_grows = False
        self._shown: CardView | None = None
        self._throttle = CardThrottle()
        self._chars = 0
        self._recalled = False
        self._turn_wait: asyncio.Timeout | None = None
        self._refused: CardView | None = None
        self._refusals = 0
        self._resume_at = 0.0
        self._logged: set[str] = set()
        self._wake = asyncio.Event()
        self._wants_any_change = False
        self._writer: asyncio.Task[None] | None = None
        self._detached = False

    @property
    def can_retract(self) -> bool:
        """A card is edited, so what it shows can be taken back."""
        return True

    async def emit(self, event: Event) -> None:
        """Fold one event; returns at once."""
        if self._only_text_grows and type(event) is ModelDelta and not self._detached:
            # The pieces that come between two writes are folded in one step, when the view is looked at.
            self._more_text.append(event.text)
            self._chars += len(event.text)
            if self._wants_any_change:
                self._wake.set()
            return
        before = self._newest()
        view = fold(before, event)
        enough_to_begin = False
        if type(event) is ModelDelta:
            enough_to_begin = self._chars < FIRST_TEXT_CHARS <= self._chars + len(event.text)
            self._chars += len(event.text)
        elif type(event) is TaskStateChanged and event.to is TaskStatus.CANCELED:
            self._recalled = event.reason == RECALLED
            if self._recalled and self._shown is None and self._turn_wait is not None:
                # There will be no card, so those who wait behind it need not wait any longer.
                self._turn_wait.reschedule(asyncio.get_running_loop().time())
        if view is before or self._detached:
            return
        self._view = view
        # From here on one more piece changes nothing but the text; any other event ends that.
        self._only_text_grows = type(event) is ModelDelta and self._chars >= FIRST_TEXT_CHARS
        # A timer is running for text, so only what cannot wait wakes the writer: one wake-up per piece of text would
        # cost more than the piece.
        if self._wants_any_change or enough_to_begin or _state_differs(view, before):
            self._wake.set()
        if self._writer is None:
            self._writer = self._deck.start(event.task_id, self._write(), self._wake)

    def detach(self) -> None:
        """Write nothing more: somebody else owns this task now."""
        self._detached = True
        if self._writer is not None:
            self._writer.cancel()

    def _newest(self) -> CardView:
        """The view after every event so far."""
        if self._more_text:
            self._view = with_text(self._view, "".join(self._more_text))
            self._more_text.clear()
        return self._view

    async def _write(self) -> None:
        failures = 0
        while True:
            if not await self._is_due():
                return
            view = self._newest()
            if view.phase.is_final:
                await self._write_final()
                return
            try:
                async with self._turn(self._priority(view)):
                    # Only now: it may have changed, ended, or become pointless while other cards went first.
                    view = self._newest()
                    if view.phase.is_final:
                        # The place is kept, so the final view still comes before the cards behind this one.
                        continue
                    await self._keep_text(view)
                    await self._surface.show(view, self._priority(view))
            except (RateLimited, Unavailable) as error:
                failures += 1
                # What cannot wait may have come while the write was under way: `_pause` would sleep through it.
                if not _state_differs(self._view, view):
                    await self._pause(_seconds(error, failures))
                continue
            except _Pointless:
                continue
            except MessageGone:
                # Somebody deleted the card: they do not want to see it.
                self._detached = True
                return
            except ChatGone as error:
                log.info("chat is gone, stopping its task", code=error.code)
                self._detached = True
                if self._on_chat_gone is not None:
                    self._on_chat_gone()
                return
            except (Refused, NotAuthorised) as error:
                self._log_refusal(error)
                self._back_off(view)
                continue
            except Exception as error:
                # A fault of ours, perhaps with one view only: it must not leave the card behind as it is.
                self._log_fault(error)
                self._back_off(view)
                continue
            failures = self._refusals = 0
            self._refused = None
            self._shown = view
            self._throttle.shown(self._clock(), self._chars)

    @asynccontextmanager
    async def _turn(self, priority: Priority) -> AsyncGenerator[None]:
        """The surface's turn; `_Pointless` when the request is recalled while nothing has been shown of it."""
        async with AsyncExitStack() as stack:
            # The timeout is never due by itself: it is how `emit` ends the wait, and the wait alone. A write that is
            # under way is not torn apart, because then nobody would know what became of it.
            wait = asyncio.timeout(None)
            try:
                async with wait:
                    self._turn_wait = wait
                    await stack.enter_async_context(self._surface.turn(priority))
            except TimeoutError:
                if wait.expired():
                    raise _Pointless from None
                raise
            finally:
                self._turn_wait = None
            if self._recalled and self._shown is None:
                raise _Pointless
            yield

    async def _keep_text(self, view: CardView) -> None:
        if self._keep is None or (text := view.text) == self._kept:
            return
        self._kept = text
        try:
            await self._keep(text)
        except StoreError as error:
            # The person reads the answer all the same; only a crash now would show less of it.
            kind = type(error).__name__
            if kind not in self._logged:
                self._logged.add(kind)
                log.exception("what a card shows could not be written down", task=view.task_id)

    def _back_off(self, view: CardView) -> None:
        """Write nothing for a while, and this view never again: it would be refused again."""
        self._refused = view
        pause = min(FIRST_REFUSAL_PAUSE_S * 2**self._refusals, LONGEST_REFUSAL_PAUSE_S)
        self._refusals += 1
        self._resume_at = self._clock() + pause

    async def _write_final(self) -> None:
        view = self._newest()
        if self._recalled and self._shown is None:
            # Deleted before anything was shown: an answer now would only point at the deletion.
            await self._deliver(self._surface.remove, EDIT_DEADLINE_S)
            return
        if self._recalled and self._remove_on_recall and await self._deliver(self._surface.remove, EDIT_DEADLINE_S):
            return
        # A card that cannot be removed must at least not look as if it went on.

        async def edit() -> None:
            async with self._turn("final"):
                # What came with the end, as its figures do, is there by the time a turn comes.
                await self._surface.show(self._newest(), "final")

        async def repost() -> None:
            await self._surface.repost(self._newest())

        if not await self._deliver(edit, EDIT_DEADLINE_S) and not await self._deliver(repost, GIVE_UP_S):
            log.error("the final state of a card could not be delivered", task=view.task_id, phase=view.phase.value)

    async def _deliver(self, write: Callable[[], Awaitable[None]], seconds: float) -> bool:
        """Repeat a write until it is through (True), makes no sense any more (True), or the time is up (False)."""
        until = self._clock() + seconds
        failures = 0
        while True:
            try:
                await write()
            except (MessageGone, ChatGone):
                return True
            except (RateLimited, Unavailable) as error:
                failures += 1
                pause = _seconds(error, failures)
                if self._clock() + pause > until:
                    return False
                await asyncio.sleep(pause)
            except PlatformError as error:
                self._log_refusal(error)
                return False
            except Exception as error:
                self._log_fault(error)
                return False
            else:
                return True

    async def _is_due(self) -> bool:
        """Wait until there is something to show and it may be shown; False when nothing more will come."""
        while True:
            self._wake.clear()
            view = self._newest()
            if view is self._shown or (self._refused is not None and view == self._refused):
                if self._deck.is_closing:
                    return False
                self._wants_any_change = True
                await self._wake.wait()
                self._wants_any_change = False
                continue
            now = self._clock()
            wait = self._wait_time(view, now)
            if wait <= 0:
                return True
            await self._pause(wait)

    def _wait_time(self, view: CardView, now: float) -> float:
        if view.phase.is_final:
            # Not even the rate limits: `_deliver` waits for them, within its deadline.
            return 0.0
        priority = self._priority(view)
        wait = max(self._surface.wait_time(priority), self._resume_at - now)
        if priority == "text":
            interval = self._surface.interval(len(self._deck))
            wait = max(wait, self._throttle.due_at(now, self._chars, interval) - now)
        return wait

    async def _pause(self, seconds: float) -> None:
        """Wait, but not longer than until something comes up that cannot wait."""
        self._wake.clear()
        timer = asyncio.get_running_loop().call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _log_refusal(self, error: PlatformError) -> None:
        # The vendor's code says it all; a traceback would add nothing. Once for each kind, not for each try.
        kind = error.code or type(error).__name__
        if kind not in self._logged:
            self._logged.add(kind)
            log.error("card refused", code=error.code, reason=str(error), task=self._view.task_id)

    def _log_fault(self, error: Exception) -> None:
        kind = type(error).__name__
        if kind not in self._logged:
            self._logged.add(kind)
            log.error("card could not be written", task=self._view.task_id, exc_info=error)

    def _priority(self, view: CardView) -> Priority:
        shown = self._shown
        return "state" if shown is None or _state_differs(view, shown) else "text"


def _state_differs(one: CardView, other: CardView) -> bool:
    """Is there a difference that should show at once, that is, more than text?"""
    # The first words change the phase as well, but they are text: they wait until there are a few.
    begins = one.phase is Phase.RUNNING and other.phase is Phase.THINKING
    return (
        (one.phase is not other.phase and not begins)
        or one.tools is not other.tools
        or one.position != other.position
        or one.retry_attempt != other.retry_attempt
    )


def _seconds(error: PlatformError, failures: int) -> float:
    if isinstance(error, RateLimited):
        return error.seconds
    return _BACKOFF_S[min(failures, len(_BACKOFF_S)) - 1]
