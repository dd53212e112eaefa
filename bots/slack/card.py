"""One task's card on Slack: messages in a thread that are edited, each only when it differs from what is shown."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final

from bots.cards.ledger import CardBook
from bots.cards.strings import Strings
from bots.cards.surface import Priority
from bots.cards.view import CardView, Phase
from bots.errors import MessageGone, NotAuthorised, PlatformError, RateLimited, Refused, Unavailable
from bots.platform import ReplyAddress
from bots.slack.client import Mark, Place, SlackClient
from bots.slack.limits import CHAT_UPDATE, UPDATE_FLOOR_SECONDS, scaled
from bots.slack.render import SlackMessage, render

_STANDING_AT_MOST: Final = 2
"""How many posts of one message may ever stand in the channel: one that is known, and one whose fate is not."""


@dataclass(slots=True)
class _Posted:
    """A message that stands on Slack. `shown` is None while it is not known what it shows."""

    ts: str
    shown: SlackMessage | None
    part: int


@dataclass(slots=True)
class _Doubt:
    """A post that may stand on Slack without our knowing its ts.

    `undecided`: posts of this mark of which the look-up cannot say whether they arrived. `is_open`: the last one has
    not been looked for yet.
    """

    mark: Mark
    undecided: int = 0
    is_open: bool = True


class SlackCard:
    """The `CardSurface` of one task in edit mode.

    A view that is longer than a message takes several; `show` writes them in order and stops at the first failure, and
    the next call goes on from there. `book`: where the messages are written down, and where those are found that an
    earlier owner of the task has posted.
    """

    def __init__(
        self,
        client: SlackClient,
        address: ReplyAddress,
        task_id: str,
        *,
        strings: Strings,
        model: str,
        book: CardBook | None = None,
    ) -> None:
        self._client = client
        self._address = address
        self._task_id = task_id
        self._strings = strings
        self._model = model
        self._book = book
        self._is_restored = book is None
        self._messages: list[_Posted] = []
        self._stale: list[str] = []
        self._doubt: _Doubt | None = None
        self._next_part = 0
        self._reposting = False
        self._place: Place | None = None
        self._has_turn = False
        self._refused: tuple[int, SlackMessage, PlatformError] | None = None

    @property
    def messages(self) -> tuple[str, ...]:
        """The ts of every message of the card, in order."""
        return tuple(posted.ts for posted in self._messages)

    def wait_time(self, priority: Priority) -> float:
        """See `CardSurface`. The first write is a post, which waits in `turn`; every other one an edit."""
        return self._client.update_wait(priority) if self._messages else 0.0

    def interval(self, live_cards: int) -> float:
        """See `CardSurface`: all cards of a workspace share its limit of edits."""
        floor = UPDATE_FLOOR_SECONDS / max(1.0, self._client.rate_budget)
        limit = scaled(CHAT_UPDATE, self._client.rate_budget)
        return max(floor, live_cards * limit.per_seconds / limit.calls)

    @asynccontextmanager
    async def turn(self, priority: Priority) -> AsyncGenerator[None]:
        """See `CardSurface`. The channel's line is joined for the first post; later ones take their turn in `show`."""
        if self._place is None:
            # Before anything is waited for: cards come in the order in which they first asked.
            self._place = self._client.place()
        await self._restore()
        if self._doubt is not None and self._doubt.is_open:
            # Here, so that nobody waits for our look-up, which may take as long as the post that broke.
            await self._look_up()
        if self._messages:
            yield
            return
        async with self._client.post_turn(self._address.chat, self._place, priority):
            self._has_turn = True
            try:
                yield
            finally:
                self._has_turn = False

    async def show(self, view: CardView, priority: Priority) -> None:
        """See `CardSurface`."""
        await self._restore()
        messages = self._render(view)
        ends_long = view.phase.is_final and len(messages) > 1
        if not self._messages:
            # "Done" above half an answer would be wrong, but the first message has to be posted first. When everything
            # is posted anew, it goes out as it is: editing is what has failed.
            beginning = replace(view, phase=Phase.RUNNING) if ends_long and not self._reposting else view
            await self._write(0, self._render(beginning)[0], priority)
        for index in (*range(1, len(messages)), 0) if ends_long else range(len(messages)):
            await self._write(index, messages[index], priority)
        while len(self._messages) > len(messages):
            await self._client.delete(self._address.chat, self._messages[-1].ts)
            surplus = self._messages.pop()
            if self._book is not None:
                await self._book.gone(surplus.part)
        if self._book is not None and view.phase.is_final:
            await self._book.closed(view.phase.value)

    async def repost(self, view: CardView) -> None:
        """See `CardSurface`. The old messages are deleted as far as Slack allows it; may be called again."""
        await self._restore()
        if not self._reposting:
            if self._book is not None:
                await self._book.gone()
            self._stale += self.messages
            self._messages = []
            self._reposting = True
            self._refused = None
            if self._doubt is not None and not await self._found_at_last():
                # A new message is the last resort, so it does not wait for the fate of an old one.
                self._doubt = None
                self._next_part += 1
        await self.show(view, "final")
        self._reposting = False
        await self._delete_stale()

    async def remove(self) -> None:
        """See `CardSurface`. May be called again after a failure."""
        await self._restore()
        if self._doubt is not None:
            await self._look_up()
        self._stale += self.messages
        self._messages = []
        while self._stale:
            await self._client.delete(self._address.chat, self._stale[-1])
            self._stale.pop()
        if self._book is not None:
            await self._book.gone()

    def _render(self, view: CardView) -> list[SlackMessage]:
        value = f"{self._task_id}/{self._address.scope}"
        return render(view, model=self._model, strings=self._strings, value=value)

    async def _write(self, index: int, message: SlackMessage, priority: Priority) -> None:
        """Make the message with this number show this; one that is missing is the next one, and posted."""
        refused = self._refused
        if refused is not None and refused[:2] == (index, message):
            raise refused[2].with_traceback(None)
        try:
            if index >= len(self._messages):
                await self._post(message, priority)
            # Also after a post: one that was found again may show an older state.
            await self._edit(self._messages[index], message, priority)
        except (Refused, NotAuthorised) as error:
            self._refused = (index, message, error)
            raise
        if refused is not None and refused[0] == index:
            self._refused = None

    async def _edit(self, posted: _Posted, message: SlackMessage, priority: Priority) -> None:
        if posted.shown == message:
            return
        try:
            await self._client.update(
                self._address.chat, posted.ts, text=message.text, blocks=message.blocks, priority=priority
            )
        except Unavailable as error:
            if error.ambiguous:
                posted.shown = None
            raise
        posted.shown = message

    async def _post(self, message: SlackMessage, priority: Priority) -> None:
        """Post the next message, unless an earlier attempt turns out to have arrived."""
        if self._doubt is not None and self._doubt.is_open and await self._look_up():
            return
        doubt = self._doubt
        if doubt is not None and doubt.undecided >= _STANDING_AT_MOST:
            raise Unavailable("chat.postMessage: sent twice, and Slack does not say what arrived", ambiguous=True)
        mark = doubt.mark if doubt is not None else Mark(self._task_id, self._next_part)
        if self._book is not None:
            await self._book.opening(mark.part)
        try:
            ts = await self._client.post(
                self._address.chat,
                self._address.thread,
                text=message.text,
                blocks=message.blocks,
                mark=mark,
                priority=priority,
                place=self._place,
                has_turn=self._has_turn,
                # More of a long answer gives way to other cards, and waits outside of this call: by then there is more.
                waits=priority != "text" or not self._messages,
            )
        except Unavailable as error:
            if error.ambiguous:
                self._doubt = _Doubt(mark, doubt.undecided if doubt is not None else 0)
            raise
        await self._adopt(ts, message, mark)

    async def _look_up(self) -> bool:
        """Look for the post whose fate is not known; True when it stands on Slack.

        A post that is proved to be absent is no doubt at all: however often Slack fails, the next one is as good as the
        first. The mark stays the same, so one that arrives late is found before anything is posted again.
        """
        doubt, address = self._doubt, self._address
        assert doubt is not None
        try:
            ts = await self._client.find(address.chat, address.thread, doubt.mark, after=address.message)
        except MessageGone:
            # The thread is gone, and with it whatever arrived in it.
            ts = ""
        except (Refused, NotAuthorised):
            # We may post here and not read: nobody will ever say.
            ts = None
        if ts:
            await self._adopt(ts, None, doubt.mark)
            return True
        if ts is None and doubt.is_open:
            doubt.undecided += 1
        doubt.is_open = False
        return False

    async def _found_at_last(self) -> bool:
        try:
            return await self._look_up()
        except (RateLimited, Unavailable):
            return False

    async def _adopt(self, ts: str, shown: SlackMessage | None, mark: Mark) -> None:
        self._messages.append(_Posted(ts, shown, mark.part))
        self._next_part = mark.part + 1
        self._doubt = None
        if self._book is not None:
            await self._book.posted(mark.part, ts)

    async def _restore(self) -> None:
        """Know the messages that an earlier owner of the task has posted, the first time that anything is asked."""
        if self._is_restored or self._book is None:
            return
        standing = await self._book.standing()
        self._messages = [_Posted(ts, None, part) for part, ts in standing.messages]
        self._next_part = standing.next_part
        if standing.in_doubt is not None:
            self._next_part = standing.in_doubt
            self._doubt = _Doubt(Mark(self._task_id, standing.in_doubt))
        self._is_restored = True

    async def _delete_stale(self) -> None:
        for ts in list(self._stale):
            try:
                await self._client.delete(self._address.chat, ts)
            except PlatformError:
                # The new card is what counts; `remove` tries again.
                continue
            self._stale.remove(ts)
