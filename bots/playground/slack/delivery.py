"""Delivery to the app as Slack does it: signed, within three seconds, retried by the clock, every attempt on record."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode

import aiohttp

from bots.playground.chat_server import JsonObject
from bots.playground.clock import Clock
from bots.playground.serving import TaskScope
from bots.playground.slack import limits
from bots.playground.slack.violations import Violations
from bots.playground.slack.wire import Envelope

# An outage that the app admits to is what 503 is for; Slack tries again.
_HONEST_OUTAGE = 503
_ORDER_WITHIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Attempt:
    """One HTTP request to the app. `reason` is Slack's word for what went wrong, None when it was accepted."""

    at: float
    url: str
    retry_num: int
    status: int | None
    reason: str | None
    answer: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class Delivery:
    """Everything that happened to one event or interaction."""

    envelope: Envelope
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    done: bool = False

    @property
    def accepted(self) -> bool:
        """Whether some attempt got a 2xx."""
        return any(attempt.reason is None for attempt in self.attempts)

    @property
    def payload(self) -> JsonObject:
        """The body as JSON."""
        return json.loads(self.envelope.body)


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """docs.slack.dev/authentication/verifying-requests-from-slack: `v0=` and the HMAC of `v0:{timestamp}:{body}`."""
    return "v0=" + hmac.new(secret.encode(), f"v0:{timestamp}:".encode() + body, hashlib.sha256).hexdigest()


class Deliverer:
    """Posts to the app's URLs, in turn, as the load balancer in front of several replicas would.

    Contract: `send` returns at once; a delivery ends with the first 2xx, the answer header X-Slack-No-Retry, or the
    last retry. Retries wait on `clock`; signatures carry the wall clock, because the app checks their age. Slack
    promises no order. `in_order` gives what people see nearly always, first attempts of one conversation one after the
    other; without it they race.
    """

    def __init__(
        self,
        *,
        urls: list[str],
        secret: str,
        clock: Clock,
        violations: Violations,
        timeout_s: float = limits.EVENT_TIMEOUT_S,
        retry_delays_s: tuple[float, ...] = limits.EVENT_RETRY_DELAYS_S,
        in_order: bool = True,
    ) -> None:
        self.urls = urls
        self.deliveries: list[Delivery] = []
        self._secret = secret
        self._clock = clock
        self._violations = violations
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._retry_delays = retry_delays_s
        self._turn = 0
        self._in_order = in_order
        self._last_of: dict[str, asyncio.Event] = {}
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._scope: TaskScope | None = None
        self._http: aiohttp.ClientSession | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Deliver until the block ends; what is still on its way then is dropped, later events are not sent."""
        # The tasks end before the session that they use closes.
        async with aiohttp.ClientSession(timeout=self._timeout) as self._http, TaskScope() as self._scope:
            try:
                yield
            finally:
                self._scope = None

    def send(self, *envelopes: Envelope) -> list[Delivery]:
        """Deliver events; each further one starts after the first attempt of the one before."""
        deliveries = [Delivery(envelope) for envelope in envelopes]
        self.deliveries += deliveries
        if self._scope is None or not self.urls:
            for delivery in deliveries:
                delivery.done = True
            return deliveries
        self._running += 1
        self._idle.clear()
        self._scope.start(self._deliver_in_order(deliveries))
        return deliveries

    async def settled(self) -> None:
        """Return when every delivery has ended, its retries included."""
        await self._idle.wait()

    async def redeliver(self, event_id: str, *, retry_num: int = 1, reason: str = "http_timeout") -> Attempt:
        """Post the bytes of a known event once more, newly signed, as a late retry would; recorded with the others."""
        delivery = next(d for d in self.deliveries if d.envelope.event_id == event_id)
        return await self._attempt(delivery, retry_num, reason)

    async def interact(self, payload: JsonObject) -> Delivery:
        """Post an interaction as a signed form, once: Slack does not retry these."""
        body = urlencode({"payload": json.dumps(payload, ensure_ascii=False)}).encode()
        delivery = Delivery(Envelope(str(payload["trigger_id"]), str(payload["type"]), body))
        self.deliveries.append(delivery)
        await self._attempt(delivery, 0, None, content_type="application/x-www-form-urlencoded")
        delivery.done = True
        return delivery

    async def raw(
        self,
        body: bytes,
        *,
        timestamp: str | None = None,
        signature: str | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Attempt:
        """Post any bytes, signed unless a timestamp or signature is given. Breaks rules on purpose: not recorded."""
        stamp = str(int(time.time())) if timestamp is None else timestamp
        signed = sign(self._secret, stamp, body) if signature is None else signature
        all_headers = {
            "Content-Type": content_type,
            "X-Slack-Request-Timestamp": stamp,
            "X-Slack-Signature": signed,
            **(headers or {}),
        }
        return await self._post(body, all_headers, 0)

    async def _deliver_in_order(self, deliveries: list[Delivery]) -> None:
        answered = asyncio.Event()
        channel = deliveries[0].envelope.channel
        before, self._last_of[channel] = self._last_of.get(channel), answered
        try:
            if before is not None and self._in_order:
                # A slow app does not hold up what comes after, it only loses the order.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ORDER_WITHIN_S):
                        await before.wait()
            async with asyncio.TaskGroup() as retries:
                for delivery in deliveries:
                    attempt = await self._attempt(delivery, 0, None)
                    retries.create_task(self._retry(delivery, attempt))
                answered.set()
        finally:
            answered.set()
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _retry(self, delivery: Delivery, last: Attempt) -> None:
        for number, delay in enumerate(self._retry_delays, start=1):
            if last.reason is None or last.headers.get("x-slack-no-retry") == "1":
                break
            await self._clock.sleep(delay)
            last = await self._attempt(delivery, number, last.reason)
        delivery.done = True

    async def _attempt(
        self, delivery: Delivery, retry_num: int, reason: str | None, *, content_type: str = "application/json"
    ) -> Attempt:
        body = delivery.envelope.body
        stamp = str(int(time.time()))
        headers = {
            "Content-Type": content_type,
            "User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
            "X-Slack-Request-Timestamp": stamp,
            "X-Slack-Signature": sign(self._secret, stamp, body),
        }
        if retry_num:
            headers |= {"X-Slack-Retry-Num": str(retry_num), "X-Slack-Retry-Reason": reason or "unknown_error"}
        attempt = await self._post(body, headers, retry_num)
        delivery.attempts.append(attempt)
        refused = attempt.status is not None and attempt.status != _HONEST_OUTAGE
        if attempt.reason == "http_timeout" or (attempt.reason and refused):
            kind = "event_timeout" if attempt.status is None else "event_refused"
            answer = "no answer in time" if attempt.status is None else f"answered {attempt.status}"
            self._violations.add(kind, delivery.envelope.kind, f"{delivery.envelope.event_id}: {answer}")
        return attempt

    async def _post(self, body: bytes, headers: dict[str, str], retry_num: int) -> Attempt:
        if self._http is None:
            msg = "Nothing can be delivered before the server runs: use `async with server.serving()`."
            raise RuntimeError(msg)
        url = self.urls[self._turn % len(self.urls)]
        self._turn += 1
        at = time.time()
        try:
            async with self._http.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                content = await answer.read()
                reason = None if answer.status // 100 == 2 else "http_error"
                shown = {name.lower(): value for name, value in answer.headers.items()}
                return Attempt(at, url, retry_num, answer.status, reason, content, shown)
        except TimeoutError:
            return Attempt(at, url, retry_num, None, "http_timeout")
        except aiohttp.ClientError:
            return Attempt(at, url, retry_num, None, "connection_failed")
