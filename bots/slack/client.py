"""The calls to Slack's Web API that we make, within our share of its rate limits.

All go over one aiohttp session, and none is repeated here: slack_sdk's own handler would send a post again after a
connection reset, also when the first one was taken. Who may repeat what is decided by the callers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
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
    """What finds a post again: the task whose card it is, and which of its messages."""

    task: str
    part: int

    EVENT_TYPE = "harness_card"

    def as_metadata(self) -> JsonObject:
        """The form in which Slack keeps it with the message."""
        return {"event_type": self.EVENT_TYPE, "event_payload": {"task": self.task, "part": self.part}}


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
    sent; a post waits for its turn a few seconds first. `rate_budget` is the share of the documented limits to use,
    `sleep` waits.
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
        self._post_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
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
    ) -> str:
        """Post a message, in the thread unless that is "", and give its ts. Slack unfolds no links in it.

        Waits its turn where the channel's limit has room within seconds; `RateLimited` where Slack wants us to be
        quiet for longer.
        """
        body: dict[str, object] = {"channel": channel, "text": text, "unfurl_links": False, "unfurl_media": False}
        if thread:  # an empty thread_ts is an error, not the absence of one
            body["thread_ts"] = thread
        if blocks:
            body["blocks"] = blocks
        if mark is not None:
            body["metadata"] = mark.as_metadata()
        method = "chat.postMessage"
        # One at a time, in the order of the calls, and so waiting here: else the cards of quick messages would overtake
        # each other, over several connections as well as while they wait for the channel's limit.
        async with self._post_turns.setdefault(channel, asyncio.Lock()):
            patience = limits.POST_PATIENCE_SECONDS / min(1.0, self._rate_budget)
            while 0 < (seconds := self.post_wait(channel, priority)) <= patience:
                await self._sleep(seconds)
            answer = await self._within(self._post_key(channel), limits.CHAT_POST, priority, method, body=body)
        ts = answer.get("ts")
        if not isinstance(ts, str) or not ts:
            raise Unavailable("chat.postMessage: the answer has no ts", ambiguous=True)
        return ts

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

    async def find(self, channel: str, thread: str, mark: Mark, *, after: str) -> str:
        """The ts of the message that carries this mark, "" when there is none. `after`: the ts to look from."""
        method = "conversations.replies" if thread else "conversations.history"
        params: dict[str, object] = {
            "channel": channel,
            "include_all_metadata": True,
            "limit": limits.LOOKUP_PAGE,
            **({"ts": thread} if thread else {}),
            **({"oldest": after} if after else {}),
        }
        answer = await self._within(self._key(method), limits.CONVERSATIONS, "final", method, params=params)
        messages = answer.get("messages")
        for message in cast("list[object]", messages) if isinstance(messages, list) else []:
            if isinstance(message, Mapping) and _carries(cast("JsonObject", message), mark):
                ts = cast("JsonObject", message).get("ts")
                return ts if isinstance(ts, str) else ""
        return ""

    def _key(self, method: str) -> str:
        return f"{method}:{self.team_id}"

    def _post_key(self, channel: str) -> str:
        return f"chat.postMessage:{self.team_id}:{channel}"

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


def _carries(message: JsonObject, mark: Mark) -> bool:
    return message.get("metadata") == mark.as_metadata()
