"""One task's card on Slack: messages in a thread that are edited, each only when it differs from what is shown."""

from dataclasses import dataclass, field
from typing import Final

from bots.cards.strings import Strings
from bots.cards.surface import Priority
from bots.cards.view import CardView
from bots.errors import MessageGone, PlatformError, Unavailable
from bots.platform import ReplyAddress
from bots.slack.client import Mark, SlackClient
from bots.slack.limits import CHAT_UPDATE, UPDATE_FLOOR_SECONDS, scaled
from bots.slack.render import SlackMessage, render

_POSTS_AT_MOST: Final = 2
"""How often one message is posted when it is not known whether the first one was taken."""


@dataclass(slots=True)
class _Posted:
    """A message that stands on Slack. `shown` is None while it is not known what it shows."""

    ts: str
    shown: SlackMessage | None


@dataclass(slots=True)
class _Doubt:
    """A post whose fate is not known. `posts`: how often it was sent."""

    mark: Mark
    posts: int = field(default=1)


class SlackCard:
    """The `CardSurface` of one task in edit mode.

    A view that is longer than a message takes several; `show` writes them in order and stops at the first failure, and
    the next call goes on from there.
    """

    def __init__(
        self, client: SlackClient, address: ReplyAddress, task_id: str, *, strings: Strings, model: str
    ) -> None:
        self._client = client
        self._address = address
        self._task_id = task_id
        self._strings = strings
        self._model = model
        self._messages: list[_Posted] = []
        self._stale: list[str] = []
        self._doubt: _Doubt | None = None
        self._next_part = 0
        self._reposting = False

    @property
    def messages(self) -> tuple[str, ...]:
        """The ts of every message of the card, in order."""
        return tuple(posted.ts for posted in self._messages)

    def wait_time(self, priority: Priority) -> float:
        """See `CardSurface`. The first write is a post, which waits for its turn by itself; every other one an edit."""
        return self._client.update_wait(priority) if self._messages else 0.0

    def interval(self, live_cards: int) -> float:
        """See `CardSurface`: all cards of a workspace share its limit of edits."""
        floor = UPDATE_FLOOR_SECONDS / max(1.0, self._client.rate_budget)
        limit = scaled(CHAT_UPDATE, self._client.rate_budget)
        return max(floor, live_cards * limit.per_seconds / limit.calls)

    async def show(self, view: CardView, priority: Priority) -> None:
        """See `CardSurface`."""
        messages = render(
            view, model=self._model, strings=self._strings, stop_value=f"{self._task_id}/{self._address.scope}"
        )
        for index, message in enumerate(messages):
            if index >= len(self._messages):
                await self._post(message, priority)
            # Also after a post: one that was found again may show an older state.
            await self._edit(self._messages[index], message, priority)
        while len(self._messages) > len(messages):
            await self._client.delete(self._address.chat, self._messages[-1].ts)
            self._messages.pop()

    async def repost(self, view: CardView) -> None:
        """See `CardSurface`. The old messages are deleted as far as Slack allows it; may be called again."""
        if not self._reposting:
            self._stale += self.messages
            self._messages = []
            self._reposting = True
            if self._doubt is not None and not await self._find():
                # A new message is the last resort, so it does not wait for the fate of an old one.
                self._doubt = None
                self._next_part += 1
        await self.show(view, "final")
        self._reposting = False
        await self._delete_stale()

    async def remove(self) -> None:
        """See `CardSurface`. May be called again after a failure."""
        if self._doubt is not None:
            await self._find()
        self._stale += self.messages
        self._messages = []
        while self._stale:
            await self._client.delete(self._address.chat, self._stale[-1])
            self._stale.pop()

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
        if self._doubt is not None and await self._find():
            return
        doubt = self._doubt
        if doubt is not None and doubt.posts >= _POSTS_AT_MOST:
            raise Unavailable(f"chat.postMessage: sent {doubt.posts} times, arrived never", ambiguous=True)
        mark = doubt.mark if doubt is not None else Mark(self._task_id, self._next_part)
        try:
            ts = await self._client.post(
                self._address.chat,
                self._address.thread,
                text=message.text,
                blocks=message.blocks,
                mark=mark,
                priority=priority,
            )
        except Unavailable as error:
            if error.ambiguous:
                self._doubt = _Doubt(mark, doubt.posts + 1 if doubt is not None else 1)
            raise
        self._adopt(ts, message)

    async def _find(self) -> bool:
        """Look for the post whose fate is not known; True when it stands on Slack."""
        assert self._doubt is not None
        address = self._address
        try:
            ts = await self._client.find(address.chat, address.thread, self._doubt.mark, after=address.message)
        except MessageGone:
            # The thread is gone, and with it whatever arrived in it.
            ts = ""
        if ts:
            self._adopt(ts, None)
        return bool(ts)

    def _adopt(self, ts: str, shown: SlackMessage | None) -> None:
        self._messages.append(_Posted(ts, shown))
        self._next_part += 1
        self._doubt = None

    async def _delete_stale(self) -> None:
        for ts in list(self._stale):
            try:
                await self._client.delete(self._address.chat, ts)
            except PlatformError:
                # The new card is what counts; `remove` tries again.
                continue
            self._stale.remove(ts)
