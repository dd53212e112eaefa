"""The control API and the page: JSON in and out, on the playground's port. Used by the page and by tests."""

from __future__ import annotations

import inspect
import json
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from bots.playground.chat_server import ChatServer, ControlError, JsonObject, UnknownNameError
from bots.playground.faults import Fault

_PAGE = Path(__file__).parent / "page"
# Platforms of the plan that have no stand-in yet.
_LATER = frozenset({"feishu"})

T = TypeVar("T")


class ModelFaults(Protocol):
    """The model server, as far as breaking it goes."""

    def __call__(self, fault: JsonObject, /) -> Awaitable[None] | None:
        """Take an order, at once or awaited; ValueError for one that it does not understand."""
        ...


class PageFacts(Protocol):
    """What the page's first lines say about this playground."""

    def __call__(self) -> JsonObject:
        """`{"model": ...}` and whatever else the page should show."""
        ...


def control_app(
    servers: list[ChatServer], *, model_faults: ModelFaults | None = None, facts: PageFacts | None = None
) -> Starlette:
    """The playground's ASGI app over these platforms. Without a model server, model faults are refused in words."""
    return _Control(servers, model_faults, facts).app


class _Control:
    def __init__(self, servers: list[ChatServer], model_faults: ModelFaults | None, facts: PageFacts | None) -> None:
        self._servers = {server.platform: server for server in servers}
        self._model_faults = model_faults
        self._facts = facts
        self.app = Starlette(
            routes=[
                Route("/", self._page),
                Mount("/static", StaticFiles(directory=_PAGE)),
                Route("/api/say", _answering(self._say), methods=["POST"]),
                Route("/api/recall", _answering(self._recall), methods=["POST"]),
                Route("/api/click", _answering(self._click), methods=["POST"]),
                Route("/api/messages", _answering(self._messages)),
                Route("/api/faults", _answering(self._faults), methods=["POST"]),
                Route("/api/stats", _answering(self._stats)),
                # For the page only: who and what there is, and what one person sees of one chat.
                Route("/api/world", _answering(self._world)),
                Route("/api/view", self._view),
            ]
        )

    async def _page(self, request: Request) -> Response:
        del request
        return FileResponse(_PAGE / "index.html", headers=_no_store())

    async def _say(self, request: Request) -> JsonObject:
        body = await _body(request)
        text, mention = _field(body, "text", str, ""), _field(body, "mention", bool, default=False)
        thread = _field(body, "thread", str, "") or None
        server = self._server(body)
        message = server.say(_name(body, "chat"), _name(body, "user"), text, thread=thread, mention=mention)
        return {"message": message}

    async def _recall(self, request: Request) -> JsonObject:
        body = await _body(request)
        user = _field(body, "user", str, "") or None
        self._server(body).recall(_name(body, "chat"), _name(body, "message"), user=user)
        return {"ok": True}

    async def _click(self, request: Request) -> JsonObject:
        body = await _body(request)
        names = (_name(body, key) for key in ("chat", "message", "action", "user"))
        await self._server(body).click(*names)
        return {"ok": True}

    async def _messages(self, request: Request) -> list[JsonObject]:
        query = dict(request.query_params)
        return self._server(query).messages(_name(query, "chat"))

    async def _faults(self, request: Request) -> JsonObject:
        body = await _body(request)
        if "model" in body:
            await self._model_fault(body["model"])
            return {"ok": True}
        server = self._server(body)
        status = body.get("status")
        fault = Fault(
            method=_name(body, "method"),
            times=_field(body, "times", int, 1),
            status=None if status is None else _field(body, "status", int, 500),
            error=_field(body, "error", str, "") or None,
            latency_ms=_field(body, "latency_ms", int, 0),
            reset=_field(body, "reset", bool, default=False),
            retry_after_s=_field(body, "retry_after_s", int, 1),
        )
        if fault.status is None and not (fault.error or fault.latency_ms or fault.reset):
            msg = "Say what to break: one of `status`, `error`, `latency_ms`, `reset`."
            raise ControlError(msg)
        if fault.times < 1 or fault.latency_ms < 0 or not 400 <= (fault.status or 500) <= 599:
            msg = "`times` is at least 1, `latency_ms` at least 0, `status` between 400 and 599."
            raise ControlError(msg)
        server.add_fault(fault)
        return {"ok": True}

    async def _model_fault(self, fault: Any) -> None:
        if self._model_faults is None:
            msg = "Faults of the model need the scripted model; a real one is in use here."
            raise ControlError(msg)
        if not isinstance(fault, dict):
            msg = "`model` takes an object."
            raise ControlError(msg)
        try:
            done = self._model_faults(cast("JsonObject", fault))
            if inspect.isawaitable(done):
                await done
        except ValueError as error:
            raise ControlError(str(error)) from error

    async def _stats(self, request: Request) -> JsonObject:
        wanted = request.query_params.get("platform")
        if wanted:
            return self._server({"platform": wanted}).stats()
        if len(self._servers) == 1:
            return next(iter(self._servers.values())).stats()
        return {name: server.stats() for name, server in self._servers.items()}

    async def _world(self, request: Request) -> JsonObject:
        del request
        return {
            "platforms": [
                {
                    "name": server.platform,
                    "users": [{"name": u.name, "title": u.title} for u in server.users()],
                    "chats": [
                        {"name": c.name, "title": c.title, "kind": c.kind, "members": list(c.members)}
                        for c in server.chats()
                    ],
                }
                for server in self._servers.values()
            ],
        }

    async def _view(self, request: Request) -> Response:
        """One chat as one person sees it; 204 when nothing has changed since `version`."""
        query = dict(request.query_params)
        try:
            server = self._server(query)
            facts = self._facts() if self._facts else {}
            version = f"{server.version}-{zlib.crc32(json.dumps(facts).encode()):x}"
            if query.get("version") == version:
                return Response(status_code=204)
            messages = server.view(_name(query, "chat"), _name(query, "viewer"))
        except ControlError as error:
            return _refusal(error)
        body = {"version": version, "messages": messages, "stats": server.stats(), "facts": facts}
        return JSONResponse(body, headers=_no_store())

    def _server(self, body: JsonObject) -> ChatServer:
        name = _name(body, "platform")
        server = self._servers.get(name)
        if server is not None:
            return server
        known = ", ".join(sorted(self._servers))
        if name in _LATER:
            msg = f"The playground has no {name} server yet: it comes later. Here now: {known}."
            raise ControlError(msg)
        msg = f"Unknown platform {name!r}; known: {known}."
        raise UnknownNameError(msg)


def _answering(serve: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
    """JSON out; a ControlError becomes `{"error": ...}` with its status."""

    async def endpoint(request: Request) -> Response:
        try:
            return JSONResponse(await serve(request))
        except ControlError as error:
            return _refusal(error)

    return endpoint


def _refusal(error: ControlError) -> Response:
    return JSONResponse({"error": str(error)}, status_code=error.status)


def _no_store() -> dict[str, str]:
    return {"Cache-Control": "no-store"}


async def _body(request: Request) -> JsonObject:
    try:
        body = json.loads(await request.body())
    except ValueError:
        body = None
    if not isinstance(body, dict):
        msg = "Send a JSON object."
        raise ControlError(msg)
    return cast("JsonObject", body)


def _name(body: JsonObject, key: str) -> str:
    """A required name."""
    value = body.get(key)
    if not isinstance(value, str) or not value:
        msg = f"`{key}` is required and must be a string."
        raise ControlError(msg)
    return value


def _field(body: JsonObject, key: str, kind: type[T], default: T) -> T:
    """An optional value of the given type."""
    value = body.get(key)
    if value is None:
        return default
    # bool is an int in Python, but `times: true` is a mistake.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        msg = f"`{key}` must be of type {kind.__name__}."
        raise ControlError(msg)
    return value
