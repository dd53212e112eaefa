"""The Slack server as a whole: HTTP in front, the workspace behind, and the people's side for the control API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
from collections import Counter
from collections.abc import AsyncGenerator

from bots.playground.chat_server import ChatInfo, ControlError, JsonObject, UnknownNameError, UserInfo
from bots.playground.clock import Clock, SystemClock
from bots.playground.faults import ANY_METHOD, Fault
from bots.playground.serving import serve_asgi
from bots.playground.slack import blocks, display, limits, mrkdwn, visible, wire
from bots.playground.slack.announcer import Announcer, MentionOrder
from bots.playground.slack.delivery import Attempt, Deliverer, Delivery
from bots.playground.slack.http_edge import Call, HttpEdge
from bots.playground.slack.model import Channel, Message, Person, Version, Workspace
from bots.playground.slack.rates import RateLimiter
from bots.playground.slack.response_urls import ResponseUrls
from bots.playground.slack.violations import Violations
from bots.playground.slack.web_api import OrphanReplies, WebApi

BOT_TOKEN = "xoxb-local-playground"  # noqa: S105 - known to everyone; opens nothing but this server
SIGNING_SECRET = "local-playground-signing-secret"  # noqa: S105 - the same


class SlackServer:
    """A workspace with alice, bob, carol and one app, and everything Slack does between them.

    Contract: `async with server.serving() as server:` runs it on loopback; `api_url` goes to SLACK_API_URL and
    `event_urls` (may be filled later) receive events and interactions in turn. `tier_scale` multiplies the vendor's
    rate limits, None switches them off; `clock` drives rate windows and event retries.
    """

    platform = "slack"

    def __init__(
        self,
        *,
        token: str = BOT_TOKEN,
        signing_secret: str = SIGNING_SECRET,
        event_urls: tuple[str, ...] = (),
        tier_scale: float | None = 1.0,
        rate_window_s: float = limits.RATE_WINDOW_S,
        clock: Clock | None = None,
        event_timeout_s: float = limits.EVENT_TIMEOUT_S,
        retry_delays_s: tuple[float, ...] = limits.EVENT_RETRY_DELAYS_S,
        events_in_order: bool = True,
        mention_order: MentionOrder = "message_first",
        reply_count_events: bool = True,
        orphan_replies: OrphanReplies = "fail",
    ) -> None:
        self.token = token
        self.signing_secret = signing_secret
        self.event_urls = list(event_urls)
        self.space = Workspace()
        self.violations = Violations()
        self.base_url = ""
        self._clock = clock or SystemClock()
        self.deliverer = Deliverer(
            urls=self.event_urls,
            secret=signing_secret,
            clock=self._clock,
            violations=self.violations,
            timeout_s=event_timeout_s,
            retry_delays_s=retry_delays_s,
            in_order=events_in_order,
        )
        self.announcer = Announcer(
            self.space, self.deliverer, mention_order=mention_order, reply_counts=reply_count_events
        )
        self.web_api = WebApi(
            self.space,
            clock=self._clock,
            announce=self.announcer.announce,
            violations=self.violations,
            orphan_replies=orphan_replies,
        )
        self._response_urls = ResponseUrls(self.space, clock=self._clock, announce=self.announcer.announce)
        self.http = HttpEdge(
            self.web_api,
            self._response_urls,
            token=token,
            clock=self._clock,
            rates=RateLimiter(self._clock, tier_scale=tier_scale, window_s=rate_window_s),
            violations=self.violations,
        )
        self.app = self.http.app

    @contextlib.asynccontextmanager
    async def serving(
        self, *, host: str = "127.0.0.1", port: int = 0, listener: socket.socket | None = None
    ) -> AsyncGenerator[SlackServer]:
        """Serve on loopback and deliver events until the block ends; what is still on its way then is dropped."""
        listening = serve_asgi(self.app, host=host, port=port, listener=listener)
        # Deliveries end first: what the app does meanwhile still finds the Web API.
        async with listening as self.base_url, self.deliverer.running():
            yield self

    @property
    def calls(self) -> list[Call]:
        """Every Web API call, oldest first."""
        return self.http.calls

    @property
    def api_url(self) -> str:
        """What SLACK_API_URL and slack_sdk's `base_url` take."""
        return f"{self.base_url}/api/"

    # -- the people's side (ChatServer)

    @property
    def version(self) -> int:
        """Grows with every change that a person could see, and with every call."""
        return self.space.version + len(self.calls) + len(self.violations.all)

    def chats(self) -> tuple[ChatInfo, ...]:
        """The channel, then the direct messages."""
        found: list[ChatInfo] = []
        for channel in self.space.channels.values():
            names = tuple(p.name for p in self.space.people.values() if p.id in channel.members)
            title = f"#{channel.name}" if channel.kind == "channel" else self.space.bot.real_name
            found.append(ChatInfo(channel.name, title, channel.kind, names))
        return tuple(found)

    def users(self) -> tuple[UserInfo, ...]:
        """The people of the workspace."""
        return tuple(UserInfo(person.name, person.real_name) for person in self.space.people.values())

    def say(self, chat: str, user: str, text: str, *, thread: str | None = None, mention: bool = False) -> str:
        """Write as a person; returns the ts. `@name` in the text mentions, `mention` puts the bot's mention first."""
        channel, person = self._member(chat, user)
        if thread is not None:
            root = self._message(channel, thread)
            # A click on a reply's "reply" button writes into the same thread.
            thread = root.thread_ts or root.ts
        if not text.strip() and not mention:
            msg = "A message needs a text: give `text`, or `mention: true` for the bare mention."
            raise ControlError(msg)
        typed = f"@{self.space.bot.name} {text}".rstrip() if mention else text
        stored, elements = mrkdwn.compose(typed, self.space.id_of)
        rich: JsonObject = {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": elements}]}
        change = self.space.post(
            channel,
            person.id,
            "say",
            stored,
            [rich],
            thread_ts=thread,
            client_msg_id=secrets.token_hex(16),
        )
        self.announcer.announce([change])
        return change.message.ts

    def edit(self, chat: str, message: str, text: str) -> None:
        """Edit a person's message, as its author; people then see "(edited)"."""
        channel = self._channel(chat)
        edited = self._live(channel, message)
        stored, elements = mrkdwn.compose(text, self.space.id_of)
        rich: JsonObject = {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": elements}]}
        change = self.space.edit(channel, edited, "edit", stored, [rich], edited_by=edited.author_id)
        self.announcer.announce([change])

    def recall(self, chat: str, message: str, *, user: str | None = None) -> None:
        """Delete a message, anybody's when no `user` is given: workspace admins can delete the bot's, too."""
        channel = self._channel(chat)
        recalled = self._live(channel, message)
        if user is not None and recalled.author_id != self._person(user).id:
            msg = f"{user} did not write message {message}; its author is {self.space.name_of(recalled.author_id)}."
            raise ControlError(msg)
        self.announcer.announce(self.space.delete(channel, recalled, "recall"))

    async def click(self, chat: str, message: str, action: str, user: str) -> None:
        """Press a button. What the app answers is on record in `deliverer.deliveries`."""
        await self.press(chat, message, action, user)

    async def press(self, chat: str, message: str, action: str, user: str) -> Delivery:
        """`click`, with the delivery for those who want to look at it."""
        channel, person = self._member(chat, user)
        clicked = self._live(channel, message)
        if clicked.private_to not in (None, person.id):
            msg = f"Message {message} is only visible to {self.space.name_of(clicked.private_to or '')}."
            raise ControlError(msg)
        found = blocks.buttons(list(clicked.now.blocks))
        button = next((b for b in found if b["action_id"] == action), None)
        if button is None:
            raise _unknown("button", action, [b["action_id"] for b in found])
        response_url = self.base_url + self._response_urls.issue(channel, clicked, person)
        payload = wire.block_actions(
            self.space,
            channel,
            clicked,
            button,
            person.id,
            trigger_id=f"{secrets.randbelow(10**13)}.{secrets.randbelow(10**13)}.{secrets.token_hex(16)}",
            response_url=response_url,
        )
        if not self.event_urls:
            msg = "No app is connected: the server has no event URL."
            raise ControlError(msg)
        return await self.deliverer.interact(payload)

    def messages(self, chat: str) -> list[JsonObject]:
        """All messages in order of time, deleted and private ones too."""
        channel = self._channel(chat)
        return [self._as_control_json(channel, message) for message in channel.messages.values()]

    def view(self, chat: str, viewer: str) -> list[JsonObject]:
        """What a person sees, ready to be drawn; vanished messages and other people's private ones are left out."""
        channel, person = self._member(chat, viewer)
        shown = [
            message
            for message in channel.messages.values()
            if message.now.shape != "gone" and message.private_to in (None, person.id)
        ]
        now = self._clock.now()
        return [
            self._as_control_json(channel, message)
            | {
                "content": display.message_nodes(message.now, self.space.name_of) if message.live else [],
                "tombstone": message.now.shape == "tombstone",
                "edited": message.now.edited,
                "replies": len(channel.replies(message.ts)),
                "reactions": [
                    {"name": name, "shown": display.emoji(f":{name}:"), "count": len(who)}
                    for name, who in message.reactions.items()
                ],
                "status": self.space.status(channel, message.ts, now),
                "at": float(message.ts),
            }
            for message in shown
        ]

    def add_fault(self, fault: Fault) -> None:
        """Order a fault for a method of the Web API, or for `*`."""
        if fault.method != ANY_METHOD and fault.method not in self.web_api.methods:
            raise _unknown("method", fault.method, [ANY_METHOD, *sorted(self.web_api.methods)])
        self.http.faults.add(fault)

    def stats(self) -> JsonObject:
        """Calls by method, 429 answers, open streams (none: native streaming is not here yet), violations."""
        return {
            "calls": dict(sorted(Counter(call.method for call in self.calls).items())),
            "rate_limited": self.http.rate_limited,
            "open_streams": 0,
            "violations": [violation.as_json() for violation in self.violations.all],
        }

    # -- the test's side

    async def url_verification(self, challenge: str = "local-challenge") -> Attempt:
        """What Slack does when a request URL is entered: one signed POST that must give the challenge back."""
        body = {"token": wire.LEGACY_TOKEN, "challenge": challenge, "type": "url_verification"}
        return await self.deliverer.raw(json.dumps(body).encode())

    async def redeliver(self, event_id: str, *, retry_num: int = 1, reason: str = "http_timeout") -> Attempt:
        """Post an event once more: same bytes, same event_id, new signature."""
        return await self.deliverer.redeliver(event_id, retry_num=retry_num, reason=reason)

    async def settled(self, *, within_s: float = 5.0) -> None:
        """Return when every delivery has ended, retries included; TimeoutError when one has not."""
        async with asyncio.timeout(within_s):
            await self.deliverer.settled()

    def history(self, chat: str, message: str) -> list[Version]:
        """Every state of a message, oldest first."""
        return list(self._message(self._channel(chat), message).versions)

    def visible_history(self, chat: str, message: str) -> list[str]:
        """What a person could read at each state of a message, oldest first."""
        return [visible.visible_text(version, self.space.name_of) for version in self.history(chat, message)]

    def archive(self, chat: str) -> None:
        """Archive a channel: writes answer is_archived."""
        self._channel(chat).archived = True

    def remove_bot(self, chat: str) -> None:
        """Take the bot out of a channel: calls answer not_in_channel and no event comes any more."""
        self._channel(chat).members.discard(self.space.bot.user_id)

    # -- names

    def _channel(self, chat: str) -> Channel:
        channel = self.space.channel_named(chat)
        if channel is None:
            raise _unknown("chat", chat, [known.name for known in self.space.channels.values()])
        return channel

    def _person(self, user: str) -> Person:
        person = self.space.person_named(user)
        if person is None:
            raise _unknown("user", user, [known.name for known in self.space.people.values()])
        return person

    def _member(self, chat: str, user: str) -> tuple[Channel, Person]:
        channel, person = self._channel(chat), self._person(user)
        if person.id not in channel.members:
            members = ", ".join(p.name for p in self.space.people.values() if p.id in channel.members)
            msg = f"{user} is not in {chat}; its people are: {members}."
            raise ControlError(msg)
        return channel, person

    def _message(self, channel: Channel, ts: str) -> Message:
        message = channel.messages.get(ts)
        if message is None:
            raise _unknown("message", ts, [known.ts for known in channel.messages.values()][-5:])
        return message

    def _live(self, channel: Channel, ts: str) -> Message:
        message = self._message(channel, ts)
        if not message.live:
            msg = f"Message {ts} is deleted."
            raise ControlError(msg)
        return message

    def _as_control_json(self, channel: Channel, message: Message) -> JsonObject:
        version = message.now
        return {
            "message": message.ts,
            "thread": message.thread_ts,
            "author": self.space.name_of(message.author_id),
            "text": visible.visible_text(version, self.space.name_of),
            "private_to": self.space.name_of(message.private_to) if message.private_to else None,
            "deleted": not message.live,
            "buttons": [
                {"action": button["action_id"], "label": button["text"]["text"], "style": button.get("style")}
                for button in blocks.buttons(list(version.blocks))
            ],
            "raw": wire.snapshot(self.space, channel, message) if version.shape != "gone" else None,
            "writes": [{"method": state.method, "at": state.at} for state in message.versions],
        }


def _unknown(what: str, name: str, known: list[str]) -> UnknownNameError:
    listed = ", ".join(known) or "none"
    return UnknownNameError(f"Unknown {what} {name!r}; known: {listed}.")
