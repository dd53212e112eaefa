"""The calls to Slack's Web API that we make, within our share of its rate limits.

All go over one aiohttp session, and none is repeated here: slack_sdk's own handler would send a post again after a
connection reset, also when the first one was taken. Who may repeat what is decided by the callers.
"""

import asyncio
import bisect
import itertools
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from bots.cards.surface import Priority
from bots.cards.throttle import RateBudget, RateLimit
from bots.errors import MessageGone, PlatformError, RateLimited, Unavailable
from bots.slack import limits
from bots.slack.failures import platform_error
from bots.slack.render import Block

JsonObject = Mapping[str, object]

API_URL: Final = "https://slack.com/api/"
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10, connect=3)
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_log = logging.getLogger(f"{__name__}.sdk")
# slack_sdk formats every request and answer, with message texts, for a logger without a level of its own.
_log.setLevel(logging.WARNING)


class _Answer(Protocol):
    data: Any


class _Web(Protocol):
    """What we need of slack_sdk's client, whose own types are not complete."""

    async def api_call(
        self, api_method: str, *, json: dict[str, object] | None, params: dict[str, object] | None
    ) -> _Answer: ...


@dataclass(frozen=True, slots=True)
class Mark:
    """What finds a post again: the task whose card it is, or the id of the question, and which of its messages."""

    task: str
    part: int

    EVENT_TYPE = "harness_card"

    def as_metadata(self) -> JsonObject:
        """The form in which Slack keeps it with the message."""
        return {"event_type": self.EVENT_TYPE, "event_payload": {"task": self.task, "part": self.part}}


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place in a channel's line of posts: cards before notices, among equals the order of asking.

    Whoever keeps it may step out of the line and come back to the same place.
    """

    is_notice: bool
    number: int


class _PostLine:
    """Who may post to one channel next: one at a time, by `Place`, as soon as there is room.

    One at a time, because two posts over two connections may overtake each other. `sleep` waits.
    """

    def __init__(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._sleep = sleep
        self._waiting: list[_Ticket] = []
        self._is_taken = False

    @property
    def is_free(self) -> bool:
        """True when nobody posts and nobody waits."""
        return not self._is_taken and not self._waiting

    @asynccontextmanager
    async def turn(self, place: Place, room: Callable[[], float], patience: float) -> AsyncGenerator[None]:
        """Hold the line. `room`: seconds until a post fits; a wait longer than `patience` is `RateLimited`.

        Leaving early, also by a cancellation, lets the next one through at once.
        """
        ticket = _Ticket(place)
        bisect.insort(self._waiting, ticket, key=_place_of)
        try:
            await self._until_turn(ticket, room, patience)
            self._is_taken = True
        finally:
            self._waiting.remove(ticket)
            self._wake_first()
        try:
            yield
        finally:
            self._is_taken = False
            self._wake_first()

    async def _until_turn(self, ticket: "_Ticket", room: Callable[[], float], patience: float) -> None:
        while True:
            if self._is_taken or self._waiting[0] is not ticket:
                ticket.wake.clear()
                await ticket.wake.wait()
                continue
            seconds = room()
            if seconds > patience:
                raise RateLimited("chat.postMessage: not sent, our own limit", seconds=seconds, code="own_limit")
            if seconds <= 0:
                return
            # Who comes during this sleep with a better place is first from then on, and sleeps as well.
            await self._sleep(seconds)

    def _wake_first(self) -> None:
        if self._waiting:
            self._waiting[0].wake.set()


@dataclass(frozen=True, slots=True, eq=False)
class _Ticket:
    """One who waits in a line."""

    place: Place
    wake: asyncio.Event = field(default_factory=asyncio.Event)


def _place_of(ticket: _Ticket) -> Place:
    return ticket.place


def open_session() -> aiohttp.ClientSession:
    """The session that all calls share; needs a running event loop."""
    return aiohttp.ClientSession(timeout=_TIMEOUT)


def web_client(token: str, api_url: str, session: aiohttp.ClientSession) -> AsyncWebClient:
    """slack_sdk's client on our session, without retries."""
    web = AsyncWebClient(
        token=token, base_url=api_url or API_URL, session=session, retry_handlers=[], logger=_log, timeout=10
    )
    if urlsplit(web.base_url).hostname in _LOOPBACK:
        web.proxy = None  # taken from HTTPS_PROXY without a look at NO_PROXY
    return web


class SlackClient:
    """Slack's Web API for one workspace.

    Contract: methods raise `PlatformError`. A call that does not fit our rate limits raises `RateLimited` and is not
    sent; a post waits for its turn in its channel first, see `post_turn`. `rate_budget` is the share of the documented
    limits to use, `sleep` waits.
    """

    def __init__(
        self,
        web: AsyncWebClient,
        budget: RateBudget,
        *,
        rate_budget: float = 0.95,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._web = cast("_Web", web)
        self._budget = budget
        self._rate_budget = rate_budget
        self._sleep = sleep
        self._lines: WeakValueDictionary[str, _PostLine] = WeakValueDictionary()
        self._numbers = itertools.count()
        self.team_id = ""
        """The workspace that the limits are counted for; set once it is known."""

    @property
    def rate_budget(self) -> float:
        """The share of Slack's documented limits that we use."""
        return self._rate_budget

    def post_wait(self, channel: str, priority: Priority) -> float:
        """Seconds until a post to the channel fits; 0 = now."""
        return self._wait(self._post_key(channel), limits.CHAT_POST, priority)

    def update_wait(self, priority: Priority) -> float:
        """Seconds until an edit fits; 0 = now."""
        return self._wait(self._key("chat.update"), limits.CHAT_UPDATE, priority)

    async def auth_test(self) -> JsonObject:
        """Who the token belongs to."""
        return await self._send("auth.test", params={})

    async def user_info(self, user: str) -> JsonObject:
        """What Slack knows about a user; the inner object."""
        key = self._key("users.info")
        answer = await self._within(key, limits.USERS_INFO, "text", "users.info", params={"user": user})
        found = answer.get("user")
        return cast("JsonObject", found) if isinstance(found, Mapping) else {}

    async def post(
        self,
        channel: str,
        thread: str,
        *,
        text: str,
        blocks: Sequence[Block] = (),
        mark: Mark | None = None,
        priority: Priority = "state",
        place: Place | None = None,
        has_turn: bool = False,
        waits: bool = True,
    ) -> str:
        """Post a message, in the thread unless that is "", and give its ts. Slack unfolds no links in it.

        Waits its turn where the channel's limit has room within seconds; `RateLimited` where Slack wants us to be
        quiet for longer. `place`: where to wait, at the end of the cards unless given; `waits` False: not at all, and
        not before others who do. `has_turn`: the caller is inside `post_turn` for this channel.
        """
        body: dict[str, object] = {"channel": channel, "text": text, "unfurl_links": False, "unfurl_media": False}
        if thread:  # an empty thread_ts is an error, not the absence of one
            body["thread_ts"] = thread
        if blocks:
            body["blocks"] = blocks
        if mark is not None:
            body["metadata"] = mark.as_metadata()
        patience = limits.POST_PATIENCE_SECONDS / min(1.0, self._rate_budget) if waits else 0.0
        line = self._line(channel)
        if has_turn:
            # Only the second post of one turn waits here.
            while 0 < (seconds := self.post_wait(channel, priority)) <= patience:
                await self._sleep(seconds)
            answer = await self._post(channel, priority, body)
        elif waits or line.is_free:
            async with line.turn(place or self.place(), lambda: self.post_wait(channel, priority), patience):
                answer = await self._post(channel, priority, body)
        else:
            limit = limits.scaled(limits.CHAT_POST, self._rate_budget)
            seconds = max(limit.per_seconds / limit.calls, self.post_wait(channel, priority))
            raise RateLimited("chat.postMessage: not sent, others go first", seconds=seconds, code="own_limit")
        ts = answer.get("ts")
        if not isinstance(ts, str) or not ts:
            raise Unavailable("chat.postMessage: the answer has no ts", ambiguous=True)
        return ts

    def place(self, *, is_notice: bool = False) -> Place:
        """A place at the end of the cards, or of the notices, of whatever channel it is used for."""
        return Place(is_notice, next(self._numbers))

    @asynccontextmanager
    async def post_turn(self, channel: str, place: Place, priority: Priority) -> AsyncGenerator[None]:
        """Wait until one post to the channel may be sent, and keep all others waiting inside of the block.

        What is posted can be chosen inside, so it is the newest there is. A turn that is not used costs nothing.
        `RateLimited` where Slack wants us to be quiet for longer than minutes.
        """
        line = self._line(channel)
        async with line.turn(place, lambda: self.post_wait(channel, priority), limits.TURN_PATIENCE_SECONDS):
            yield

    async def post_privately(self, channel: str, thread: str, user: str, text: str) -> None:
        """Show a message to one member of a channel; Slack does not keep it."""
        body: dict[str, object] = {"channel": channel, "user": user, "text": text}
        if thread:
            body["thread_ts"] = thread
        method = "chat.postEphemeral"
        await self._within(self._key(method), limits.CHAT_POST_EPHEMERAL, "state", method, body=body)

    async def update(self, channel: str, ts: str, *, text: str, blocks: Sequence[Block], priority: Priority) -> None:
        """Replace a message. With blocks Slack shows no "(edited)"; the text goes to notifications only."""
        body: dict[str, object] = {"channel": channel, "ts": ts, "text": text, "blocks": blocks}
        await self._within(self._key("chat.update"), limits.CHAT_UPDATE, priority, "chat.update", body=body)

    async def delete(self, channel: str, ts: str) -> None:
        """Delete one of our messages; one that is gone already is a success."""
        key = self._key("chat.delete")
        try:
            await self._within(key, limits.CHAT_DELETE, "final", "chat.delete", body={"channel": channel, "ts": ts})
        except MessageGone:
            return

    async def find(self, channel: str, thread: str, mark: Mark, *, after: str) -> str | None:
        """The ts of the message that carries this mark, "" when there is none. `after`: the ts to look from.

        None when there is more after it than we read, so that neither can be said.
        """
        method = "conversations.replies" if thread else "conversations.history"
        params: dict[str, object] = {
            "channel": channel,
            "include_all_metadata": True,
            "limit": limits.LOOKUP_PAGE,
            **({"ts": thread} if thread else {}),
            **({"oldest": after} if after else {}),
        }
        for _ in range(limits.LOOKUP_PAGES):
            answer = await self._within(self._key(method), limits.CONVERSATIONS, "final", method, params=params)
            messages = answer.get("messages")
            if not isinstance(messages, list):
                return None
            for message in cast("list[object]", messages):
                if isinstance(message, Mapping) and _carries(cast("JsonObject", message), mark):
                    ts = cast("JsonObject", message).get("ts")
                    return ts if isinstance(ts, str) else None
            cursor = _next_cursor(answer)
            if not cursor:
                return None if answer.get("has_more") else ""
            params["cursor"] = cursor
        return None

    def _key(self, method: str) -> str:
        return f"{method}:{self.team_id}"

    def _post_key(self, channel: str) -> str:
        return f"chat.postMessage:{self.team_id}:{channel}"

    def _line(self, channel: str) -> _PostLine:
        # Kept by those who wait in it: a workspace has more channels than anybody posts to at a time.
        line = self._lines.get(channel)
        if line is None:
            line = self._lines[channel] = _PostLine(self._sleep)
        return line

    async def _post(self, channel: str, priority: Priority, body: JsonObject) -> JsonObject:
        return await self._within(self._post_key(channel), limits.CHAT_POST, priority, "chat.postMessage", body=body)

    def _wait(self, key: str, limit: RateLimit, priority: Priority) -> float:
        return self._budget.wait_time(key, limits.scaled(limit, self._rate_budget), priority)

    async def _within(
        self,
        key: str,
        limit: RateLimit,
        priority: Priority,
        method: str,
        *,
        body: JsonObject | None = None,
        params: JsonObject | None = None,
    ) -> JsonObject:
        if (seconds := self._wait(key, limit, priority)) > 0:
            raise RateLimited(f"{method}: not sent, our own limit", seconds=seconds, code="own_limit")
        self._budget.spend(key, limits.scaled(limit, self._rate_budget))
        try:
            return await self._send(method, body=body, params=params)
        except RateLimited as limited:
            self._budget.block(key, limited.seconds)
            raise

    async def _send(
        self, method: str, *, body: JsonObject | None = None, params: JsonObject | None = None
    ) -> JsonObject:
        # Slack reads JSON bodies only for methods that write; the others take form fields or a query.
        failure: PlatformError | None
        try:
            response = await self._web.api_call(
                method,
                json=dict(body) if body is not None else None,
                params=dict(params) if params is not None else None,
            )
            data: object = response.data
        except Exception as error:
            failure = platform_error(method, error)
            if failure is None:
                raise
            # Without the cause: its text holds the request.
            raise failure from None
        return cast("JsonObject", data) if isinstance(data, Mapping) else {}


def _next_cursor(answer: JsonObject) -> str:
    metadata = answer.get("response_metadata")
    cursor = cast("JsonObject", metadata).get("next_cursor") if isinstance(metadata, Mapping) else ""
    return cursor if isinstance(cursor, str) else ""


def _carries(message: JsonObject, mark: Mark) -> bool:
    return message.get("metadata") == mark.as_metadata()
