"""response_url: the only way to touch an ephemeral message. Five uses within thirty minutes.

docs.slack.dev/interactivity/handling-user-interaction
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from bots.playground.chat_server import JsonObject
from bots.playground.clock import Clock
from bots.playground.slack import blocks as block_rules
from bots.playground.slack import limits, mrkdwn
from bots.playground.slack.arguments import ApiError
from bots.playground.slack.model import Change, Channel, Message, Person, Workspace


@dataclass(slots=True)
class _Issued:
    channel: Channel
    message: Message
    person: Person
    at: float
    uses: int = 0


class ResponseUrls:
    """Issues the URLs that go with interactions and does what is posted to them."""

    def __init__(self, space: Workspace, *, clock: Clock, announce: Callable[[Iterable[Change]], object]) -> None:
        self._space = space
        self._clock = clock
        self._announce = announce
        self._issued: dict[str, _Issued] = {}

    def issue(self, channel: Channel, message: Message, person: Person) -> str:
        """A new path, bound to this person and channel."""
        path = f"/actions/{self._space.team.id}/{secrets.randbelow(10**13)}/{secrets.token_urlsafe(18)}"
        self._issued[path] = _Issued(channel, message, person, self._clock.now())
        return path

    def use(self, path: str, body: bytes) -> None:
        """Post, replace or delete as the payload says. Raises ApiError."""
        issued = self._issued.get(path)
        if issued is None:
            raise ApiError("expired_url", mistake="a response_url that was never issued")
        if self._clock.now() - issued.at > limits.RESPONSE_URL_LIFETIME_S:
            raise ApiError("expired_url")
        if issued.uses >= limits.RESPONSE_URL_USES:
            raise ApiError("used_url", mistake=f"a response_url used more than {limits.RESPONSE_URL_USES} times")
        payload = self._payload(body)
        issued.uses += 1
        live = issued.message.live
        if payload.get("delete_original") is True:
            if live:
                self._announce(self._space.delete(issued.channel, issued.message, "response_url"))
            return
        text, content = self._content(payload)
        if payload.get("replace_original") is True:
            if not live:
                raise ApiError("message_not_found")
            self._announce([self._space.edit(issued.channel, issued.message, "response_url", text, content)])
            return
        everyone = payload.get("response_type") == "in_channel"
        change = self._space.post(
            issued.channel,
            self._space.bot.user_id,
            "response_url",
            text,
            content,
            thread_ts=payload.get("thread_ts"),
            private_to=None if everyone else issued.person.id,
        )
        self._announce([change])

    def _payload(self, body: bytes) -> JsonObject:
        try:
            payload = json.loads(body)
        except ValueError:
            payload = None
        if not isinstance(payload, dict):
            raise ApiError("invalid_payload", mistake="the body is not a JSON object")
        return cast("JsonObject", payload)

    def _content(self, payload: JsonObject) -> tuple[str, list[JsonObject]]:
        text = str(payload.get("text") or "")
        content = cast("list[Any]", payload.get("blocks") or [])
        if not text and not content:
            raise ApiError("no_text", mistake="neither text nor blocks")
        faults = block_rules.validate(content, escaped=False)
        if faults:
            raise ApiError("invalid_blocks", mistake="; ".join(faults))
        return mrkdwn.escape(text), content
