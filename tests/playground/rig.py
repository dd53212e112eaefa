"""What the playground's tests share: a Slack server in this process, real clients, and waiting without sleeping."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bots.playground.serving import serve_asgi
from bots.playground.slack.server import SlackServer


async def until(condition: Callable[[], Any], *, within_s: float = 5.0) -> Any:
    """The first true value of `condition`; fails when it does not come in time."""
    async with asyncio.timeout(within_s):
        while not (value := condition()):
            await asyncio.sleep(0.005)
    return value


@contextlib.asynccontextmanager
async def slack(**options: Any) -> AsyncGenerator[SlackServer]:
    async with SlackServer(**options).serving() as server:
        yield server


def client(server: SlackServer, *, token: str | None = None) -> AsyncWebClient:
    """The real client, its retries off: each call is one request."""
    return AsyncWebClient(token=token or server.token, base_url=server.api_url, retry_handlers=[])


@dataclass
class Receiver:
    """An app's web server without an app: keeps what arrives and answers what the test wants."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: asyncio.Event | None = None
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)

    async def serve(self, request: Request) -> Response:
        self.received.append((dict(request.headers), await request.body()))
        if self.delay is not None:
            await self.delay.wait()
        status = self.statuses.pop(0) if self.statuses else self.status
        return Response(status_code=status, headers=self.headers)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(body)["event"] for _, body in self.received if body.startswith(b"{")]


@contextlib.asynccontextmanager
async def receiving(server: SlackServer, receiver: Receiver) -> AsyncGenerator[str]:
    app = Starlette(routes=[Route("/slack/events", receiver.serve, methods=["POST"])])
    async with serve_asgi(app) as base_url:
        server.event_urls.append(f"{base_url}/slack/events")
        yield base_url


@contextlib.asynccontextmanager
async def bolt_app(server: SlackServer) -> AsyncGenerator[tuple[AsyncApp, list[dict[str, Any]]]]:
    """A real slack_bolt app behind real HTTP; every verified body lands in the list before any listener runs."""

    async def authorize(**_: Any) -> AuthorizeResult:
        return AuthorizeResult(
            enterprise_id=None,
            team_id=server.space.team.id,
            bot_token=server.token,
            bot_id=server.space.bot.bot_id,
            bot_user_id=server.space.bot.user_id,
        )

    app = AsyncApp(
        client=client(server),
        signing_secret=server.signing_secret,
        authorize=authorize,
        ignoring_self_events_enabled=False,
    )
    bodies: list[dict[str, Any]] = []

    @app.middleware
    async def keep(body: dict[str, Any], next: Callable[[], Any]) -> None:
        bodies.append(body)
        await next()

    async def endpoint(request: Request) -> Response:
        bolt_request = AsyncBoltRequest(body=(await request.body()).decode(), headers=dict(request.headers))
        answer = await app.async_dispatch(bolt_request)
        headers = {name: values[0] for name, values in answer.headers.items()}
        return Response(answer.body, status_code=answer.status, headers=headers)

    starlette = Starlette(routes=[Route("/slack/events", endpoint, methods=["POST"])])
    async with serve_asgi(starlette) as base_url:
        server.event_urls.append(f"{base_url}/slack/events")
        yield app, bodies
