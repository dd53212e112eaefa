"""A tiny Web API on the loopback: keeps messages, and fails on request in the ways in which Slack fails."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from bots.cards.throttle import RateBudget
from bots.slack.client import SlackClient, web_client

Json = dict[str, Any]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Call:
    method: str
    body: Json
    headers: dict[str, str]


@dataclass
class FakeApi:
    """`faults[method]` holds answers to give before the real one; a fault is made by the functions below."""

    messages: dict[str, Json] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    faults: dict[str, list["Fault"]] = field(default_factory=dict)
    auth: Json = field(
        default_factory=lambda: {"team_id": "T0HOME", "user_id": "U0BOT", "bot_id": "B0BOT", "team": "Home"}
    )
    users: dict[str, Json] = field(default_factory=dict)
    url: str = ""
    watch: Callable[["FakeApi"], None] | None = None
    """Called after each call that took effect."""

    def methods(self) -> list[str]:
        return [call.method for call in self.calls]

    def called(self, method: str) -> list[Json]:
        return [call.body for call in self.calls if call.method == method]

    def fail(self, method: str, *faults: "Fault") -> None:
        self.faults.setdefault(method, []).extend(faults)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        body = await request.json() if request.content_type == "application/json" else dict(request.query)
        self.calls.append(Call(method, body, dict(request.headers)))
        faults = self.faults.get(method)
        fault = faults.pop(0) if faults else None
        if fault is not None and not fault.after:
            return await fault.answer(request)
        result = self._run(method, body)
        if self.watch is not None:
            self.watch(self)
        if fault is not None:
            return await fault.answer(request)
        return web.json_response(result)

    def _run(self, method: str, body: Json) -> Json:
        match method:
            case "auth.test":
                return {"ok": True, **self.auth}
            case "users.info":
                user = self.users.get(body["user"])
                return {"ok": True, "user": user} if user else {"ok": False, "error": "user_not_found"}
            case "chat.postMessage":
                ts = f"1750000000.{len(self.messages):06d}"
                self.messages[ts] = body | {"ts": ts}
                return {"ok": True, "ts": ts, "channel": body["channel"]}
            case "chat.postEphemeral":
                return {"ok": True, "message_ts": "1.0"}
            case "chat.update":
                if body["ts"] not in self.messages:
                    return {"ok": False, "error": "message_not_found"}
                self.messages[body["ts"]] |= body
                return {"ok": True, "ts": body["ts"]}
            case "chat.delete":
                if self.messages.pop(body["ts"], None) is None:
                    return {"ok": False, "error": "message_not_found"}
                return {"ok": True, "ts": body["ts"]}
            case "conversations.replies" | "conversations.history":
                return {"ok": True, "messages": list(self.messages.values()), "has_more": False}
            case _:
                return {"ok": False, "error": "unknown_method"}


@dataclass(frozen=True)
class Fault:
    """One bad answer. `after`: the call takes effect all the same."""

    answer: Answer
    after: bool = False


def error(code: str, *, status: int = 200, headers: dict[str, str] | None = None, **fields: Any) -> Fault:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"ok": False, "error": code, **fields}, status=status, headers=headers)

    return Fault(answer)


def body(text: str, *, status: int, kind: str = "text/plain", headers: dict[str, str] | None = None) -> Fault:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text, status=status, content_type=kind, headers=headers)

    return Fault(answer)


def reset(*, after: bool) -> Fault:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    return Fault(answer, after)


def hang(*, after: bool) -> Fault:
    async def answer(_: web.Request) -> web.StreamResponse:
        # The server cancels this when the client gives up.
        await asyncio.Event().wait()
        return web.Response()

    return Fault(answer, after)


@asynccontextmanager
async def fake_api() -> AsyncIterator[FakeApi]:
    api = FakeApi()
    app = web.Application()
    app.router.add_post("/api/{method}", api.answer)
    async with TestServer(app) as server:
        api.url = str(server.make_url("/api/"))
        yield api


@dataclass
class Clock:
    """Stands still, or goes on by `step` seconds each time that somebody looks. `naps`: how long somebody slept."""

    now: float = 100.0
    step: float = 0.0
    naps: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@asynccontextmanager
async def client_for(
    api: FakeApi, *, clock: Clock | None = None, rate_budget: float = 1_000.0, timeout_s: float = 5.0
) -> AsyncIterator[SlackClient]:
    clock = clock or Clock(step=1.0)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout_s)) as session:
        web = web_client("xoxb-secret", api.url, session)
        client = SlackClient(web, RateBudget(clock), rate_budget=rate_budget, sleep=clock.sleep)
        client.team_id = "T0HOME"
        yield client


def text_of(message: Json) -> str:
    return "".join(block["text"] for block in message["blocks"] if block["type"] == "markdown")
