"""HTTP in front of the Web API: who calls, how often, what is broken on purpose, and a record of every call."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from bots.playground.chat_server import JsonObject
from bots.playground.clock import Clock
from bots.playground.faults import Fault, FaultQueue
from bots.playground.serving import ResetResponse
from bots.playground.slack import arguments
from bots.playground.slack.arguments import ApiError, Arguments
from bots.playground.slack.rates import RateLimiter
from bots.playground.slack.response_urls import ResponseUrls
from bots.playground.slack.violations import Violations
from bots.playground.slack.web_api import WebApi


@dataclass(frozen=True, slots=True)
class Call:
    """One Web API call as it was answered."""

    method: str
    args: JsonObject
    at: float
    status: int
    error: str | None


class HttpEdge:
    """`/api/<method>` and the response_url addresses, as an ASGI app.

    A call passes, in this order: readable, authorised, known method, rate limit, fault on order, the method itself.
    """

    def __init__(
        self,
        web_api: WebApi,
        response_urls: ResponseUrls,
        *,
        token: str,
        clock: Clock,
        rates: RateLimiter,
        violations: Violations,
    ) -> None:
        self.calls: list[Call] = []
        self.rate_limited = 0
        self.faults = FaultQueue()
        self._web_api = web_api
        self._response_urls = response_urls
        self._token = token
        self._clock = clock
        self._rates = rates
        self._violations = violations
        self.app = Starlette(
            routes=[
                Route("/api/{method}", self._call, methods=["GET", "POST"]),
                Route("/actions/{team}/{number}/{key}", self._response_url, methods=["POST"]),
            ]
        )

    async def _call(self, request: Request) -> Response:
        method: str = request.path_params["method"]
        body = await request.body()
        content_type = request.headers.get("content-type", "")
        args = Arguments({})
        try:
            args = arguments.read(method, query=request.url.query, content_type=content_type, body=body)
            self._authorize(request, args)
            self._check_method(method)
        except ApiError as error:
            return self._refuse(method, args, error)
        refused = self._limit(method, args)
        if refused is not None:
            return refused
        fault = self.faults.take(method)
        broken = await self._break(method, args, fault) if fault else None
        if broken is not None:
            return broken
        try:
            result = self._web_api.call(method, args)
        except ApiError as error:
            return self._refuse(method, args, error)
        self._record(method, args, 200, None)
        return ResetResponse() if fault and fault.reset else JSONResponse({"ok": True, **result})

    def _authorize(self, request: Request, args: Arguments) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        # Slack takes the token as an argument, too; it is not part of the call.
        argument = str(args.values.pop("token", ""))
        given = token if scheme.lower() == "bearer" else argument
        if not given:
            raise ApiError("not_authed")
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            raise ApiError("invalid_auth")

    def _check_method(self, method: str) -> None:
        if method not in self._web_api.methods:
            raise ApiError("unknown_method", mistake=f"there is no method {method!r} here")

    def _limit(self, method: str, args: Arguments) -> Response | None:
        refusal = self._rates.admit(method, args.text("channel"))
        if refusal is None:
            return None
        if refusal.ignored:
            self._violations.add("retry_after_ignored", method, "called again before Retry-After had passed")
        elif not refusal.injected:
            self._violations.add("rate_limit", method, f"over the tier, Retry-After {refusal.retry_after_s}")
        return self._too_many(method, args, refusal.retry_after_s)

    async def _break(self, method: str, args: Arguments, fault: Fault) -> Response | None:
        """What a fault answers in place of the method; None when the method still runs."""
        if fault.latency_ms:
            await self._clock.sleep(fault.latency_ms / 1_000)
        if fault.status == 429:
            self._rates.block(method, args.text("channel"), fault.retry_after_s)
            return self._too_many(method, args, fault.retry_after_s)
        if fault.status is not None:
            self._record(method, args, fault.status, "fault")
            # Slack's 5xx come from in front of the API and are plain text.
            return PlainTextResponse("Server Error", status_code=fault.status)
        return self._refuse(method, args, ApiError(fault.error)) if fault.error else None

    def _too_many(self, method: str, args: Arguments, retry_after_s: int) -> Response:
        self.rate_limited += 1
        self._record(method, args, 429, "ratelimited")
        headers = {"Retry-After": str(retry_after_s)}
        return JSONResponse({"ok": False, "error": "ratelimited"}, status_code=429, headers=headers)

    def _refuse(self, method: str, args: Arguments, error: ApiError) -> Response:
        if error.mistake:
            self._violations.add(error.code, method, error.mistake)
        self._record(method, args, 200, error.code)
        answer: JsonObject = {"ok": False, "error": error.code}
        if error.code == "unknown_method":
            answer["req_method"] = method
        if error.details:
            answer["errors"] = error.details
            answer["response_metadata"] = {"messages": [f"[ERROR] {detail}" for detail in error.details]}
        return JSONResponse(answer)

    def _record(self, method: str, args: Arguments, status: int, error: str | None) -> None:
        self.calls.append(Call(method, args.values, time.time(), status, error))

    async def _response_url(self, request: Request) -> Response:
        self._record("response_url", Arguments({}), 200, None)
        try:
            self._response_urls.use(request.url.path, await request.body())
        except ApiError as error:
            if error.mistake:
                self._violations.add(error.code, "response_url", error.mistake)
            status = 404 if error.code in {"used_url", "expired_url"} else 400
            return JSONResponse({"ok": False, "error": error.code}, status_code=status)
        return PlainTextResponse("ok")
