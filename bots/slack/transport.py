"""Slack over HTTP: receive, verify, hand on, and acknowledge only what was handled.

Slack sends an event again, at once, after a minute and after five, unless it is answered with 200 within 3 seconds. So
200 says "handled or nothing for us", and everything that went wrong on our side is a 5xx: the next delivery is the
second chance, and it is never refused for being one. Whatever cannot be from Slack gets the same empty 401.
"""

import hashlib
import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast
from urllib.parse import parse_qsl

import orjson
import structlog
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bots.inbound import Inbound
from bots.slack.limits import BODY_BYTES, SIGNATURE_AGE_SECONDS
from bots.slack.parse import Identity, MalformedPayload, parse_command, parse_event, parse_interaction
from harness.errors import AdmissionUnavailable, Closed, ConfigError

log = structlog.stdlib.get_logger(__name__)

PATH: Final = "/slack/events"
_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"
_TIMESTAMP: Final = re.compile(r"[0-9]{1,12}", re.ASCII)
_RETRY_AFTER: Final = {"Retry-After": "1"}
_INBOUND: Final = "inbound"

_bolt_log = logging.getLogger(f"{__name__}.bolt")
# Bolt finds SLACK_BOT_TOKEN in the environment by itself and warns that it does not use it.
_bolt_log.setLevel(logging.ERROR)

Handle = Callable[[Inbound], Awaitable[object]]


class KnowsItself(Protocol):
    """Something that knows who the bot is, as soon as Slack has said so."""

    @property
    def identity(self) -> Identity | None:
        """None as long as it is not known."""
        ...


class _TakesMiddleware(Protocol):
    """What we need of Bolt's app, whose own types are not complete."""

    def use(self, middleware: Callable[..., Awaitable[BoltResponse]], /) -> object: ...


@dataclass(frozen=True, slots=True)
class _Delivery:
    """One verified request. `payload`: the JSON, or a command's form. `kind` is one of event, interaction, command."""

    kind: str
    payload: Mapping[str, object]
    sent_at: float

    @property
    def id(self) -> str:
        """What Slack calls this delivery, for the log."""
        for key in ("event_id", "trigger_id"):
            if isinstance(value := self.payload.get(key), str):
                return value
        return ""


class SlackTransport:
    """The one address that Slack posts to: events, clicks and slash commands.

    `handle` takes one inbound value; what it raises decides the answer: AdmissionUnavailable and Closed mean "send it
    again", anything else is our fault. `platform` knows who the bot is. `clock` gives Unix seconds. ConfigError when
    the signing secret is empty: it would let everybody in.
    """

    def __init__(
        self,
        handle: Handle,
        signing_secret: str,
        platform: KnowsItself,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not signing_secret.strip():
            raise ConfigError(
                "SLACK_SIGNING_SECRET is empty: set it to the signing secret from your Slack app's page Basic "
                "Information."
            )
        self._handle = handle
        self._platform = platform
        self._signing_secret = signing_secret.encode()
        self._clock = clock
        self._bolt = self._build_bolt(signing_secret)

    @property
    def route(self) -> Route:
        """The route for a Starlette application."""
        return Route(PATH, self.receive, methods=["POST"])

    async def receive(self, request: Request) -> Response:
        """Answer one request of Slack's."""
        body = await _read_body(request)
        if body is None:
            return Response(status_code=413)
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        timestamp = request.headers.get("x-slack-request-timestamp", "")
        signature = request.headers.get("x-slack-signature", "")
        if content_type not in (_JSON, _FORM) or not self._is_from_slack(body, timestamp, signature):
            return Response(status_code=401)
        try:
            delivery = _read_delivery(body, content_type, float(timestamp))
        except MalformedPayload as error:
            log.warning("slack.malformed", reason=str(error))
            return Response(status_code=400)
        if delivery is None:
            return Response(status_code=200)
        if delivery.kind == "event" and delivery.payload.get("type") == "url_verification":
            return _challenge(delivery.payload)
        return await self._answer(delivery)

    async def _answer(self, delivery: _Delivery) -> Response:
        started = time.monotonic()
        identity = self._platform.identity
        if identity is None:
            _log_outcome(delivery, "", "not_ready", started)
            return Response(status_code=503, headers=_RETRY_AFTER)
        app = delivery.payload.get("api_app_id")
        if identity.app_id and app is not None and app != identity.app_id:
            _log_outcome(delivery, "", "foreign_app", started)
            return Response(status_code=401)
        try:
            inbound = _parse(delivery, identity)
        except MalformedPayload as error:
            log.warning("slack.malformed", reason=str(error), id=delivery.id)
            return Response(status_code=400)
        if inbound is None:
            _log_outcome(delivery, "", "ignored", started)
            return Response(status_code=200)
        try:
            answer = await self._bolt.async_dispatch(
                # The mode for bodies that are parsed already; in the other one Bolt would parse the JSON once more.
                AsyncBoltRequest(mode="socket_mode", body=dict(delivery.payload), context={_INBOUND: inbound})
            )
        except (AttributeError, KeyError, TypeError, IndexError) as error:
            # What our handler raises is answered below; this is Bolt stumbling over a field of the wrong shape.
            log.warning("slack.malformed", reason=f"{type(error).__name__} in Bolt: {error}", id=delivery.id)
            return Response(status_code=400)
        outcome = answer.body if answer.status == 200 else {503: "unavailable"}.get(answer.status, "failed")
        _log_outcome(delivery, type(inbound).__name__, outcome, started)
        return Response(status_code=answer.status, headers=_RETRY_AFTER if answer.status == 503 else None)

    def _is_from_slack(self, body: bytes, timestamp: str, signature: str) -> bool:
        # Over the raw bytes: slack_sdk's verifier decodes them first, so it raises for a body that is not UTF-8, as it
        # does for a timestamp that is no number, and Bolt would answer that with 500.
        if not _TIMESTAMP.fullmatch(timestamp) or abs(self._clock() - int(timestamp)) > SIGNATURE_AGE_SECONDS:
            return False
        expected = hmac.new(self._signing_secret, b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256)
        return hmac.compare_digest(b"v0=" + expected.hexdigest().encode(), signature.encode())

    def _build_bolt(self, signing_secret: str) -> AsyncApp:
        async def authorize() -> AuthorizeResult:
            # Bolt's own would call auth.test for every event, and acknowledge the event when that fails.
            identity = self._platform.identity
            assert identity is not None
            return AuthorizeResult(
                enterprise_id=None,
                team_id=identity.team_id,
                bot_user_id=identity.bot_user_id,
                bot_id=identity.bot_id,
                bot_token="",  # the gateway writes through SlackClient, never through Bolt
            )

        app = AsyncApp(
            name="harness-bots",
            logger=_bolt_log,
            signing_secret=signing_secret,
            client=AsyncWebClient(),
            authorize=authorize,
            request_verification_enabled=False,  # done above, before anything is parsed
            ignoring_self_events_enabled=False,  # it would hide that somebody deleted our card
            ssl_check_enabled=False,
            url_verification_enabled=False,
            attaching_function_token_enabled=False,
        )
        # The only middleware of ours, and no listeners: Bolt acknowledges an event before a listener has run.
        cast("_TakesMiddleware", app).use(self._dispatch)
        return app

    async def _dispatch(self, context: Any) -> BoltResponse:
        inbound = cast("Inbound", context[_INBOUND])
        try:
            outcome = await self._handle(inbound)
        except (AdmissionUnavailable, Closed):
            return BoltResponse(status=503)
        except Exception:
            log.exception("slack.handler_failed", kind=type(inbound).__name__)
            return BoltResponse(status=500)
        # The body goes to the log, not to Slack.
        return BoltResponse(status=200, body=outcome if isinstance(outcome, str) else "handled")


async def _read_body(request: Request) -> bytes | None:
    """The body, None when it is larger than Slack's ever are; no more than that is read."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > BODY_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def _read_delivery(body: bytes, content_type: str, sent_at: float) -> _Delivery | None:
    """The body's content; None for Slack's check of the certificate."""
    if content_type == _JSON:
        return _Delivery("event", _json_object(body), sent_at)
    try:
        form = dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True, errors="strict"))
    except ValueError as error:
        raise MalformedPayload("the body is no form") from error
    if form.get("ssl_check") == "1":
        return None
    if "payload" in form:
        return _Delivery("interaction", _json_object(form["payload"]), sent_at)
    if "command" in form:
        return _Delivery("command", form, sent_at)
    raise MalformedPayload("the form has neither 'payload' nor 'command'")


def _json_object(text: bytes | str) -> Mapping[str, object]:
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise MalformedPayload("the body is no JSON") from error
    if not isinstance(value, dict):
        raise MalformedPayload("the body is no JSON object")
    return cast("Mapping[str, object]", value)


def _parse(delivery: _Delivery, identity: Identity) -> Inbound | None:
    match delivery.kind:
        case "interaction":
            return parse_interaction(delivery.payload, identity)
        case "command":
            form = cast("Mapping[str, str]", delivery.payload)
            return parse_command(form, identity, sent_at=delivery.sent_at)
        case _:
            return parse_event(delivery.payload, identity)


def _challenge(payload: Mapping[str, object]) -> Response:
    challenge = payload.get("challenge")
    if not isinstance(challenge, str):
        return Response(status_code=400)
    return JSONResponse({"challenge": challenge})


def _log_outcome(delivery: _Delivery, kind: str, outcome: str, started: float) -> None:
    # Most events are chatter between people, or our own edits coming back.
    write = log.debug if outcome in ("ignored", "duplicate") else log.info
    write(
        "slack.received",
        id=delivery.id,
        kind=kind or delivery.kind,
        outcome=outcome,
        ms=round((time.monotonic() - started) * 1000, 1),
    )
