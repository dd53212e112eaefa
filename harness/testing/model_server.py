"""A local model server that plays the script, over every wire protocol that the providers speak.

It is an HTTP server in this event loop, so the real client, its transport and its cancellation are exercised.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self

import orjson
from aiohttp import web

from harness.messages import JsonObject
from harness.providers.script import Call, Cut, Fail, Hang, Say, Script, Think, decide
from harness.providers.scripted import paced, silence
from harness.providers.wire import as_text
from harness.testing.anthropic_wire import AnthropicWire
from harness.testing.chat_wire import ChatWire
from harness.testing.listener import MAX_BODY, SSE_HEADERS, Listener, reset
from harness.testing.responses_wire import ResponsesWire
from harness.testing.wire import BadRequest, Wire, WireAnswer, WireRequest

WIRES: Final[tuple[Wire, ...]] = (ChatWire(), AnthropicWire(), ResponsesWire())
"""The protocols that the server speaks, each under its own path."""


@dataclass(slots=True)
class RequestRecord:
    """One request for an answer as the server saw it.

    `prompt`: the last user message, "" when there is none. Times are monotonic seconds. `closed_by_client`: the client
    closed the exchange before the answer was whole. `peer` is the client's end of the connection: equal peers are one
    connection. `done` is set when the exchange is over, for whatever reason.
    """

    messages: Sequence[JsonObject]
    prompt: str
    body: bytes
    headers: Mapping[str, str]
    peer: object = None
    started_at: float = field(default_factory=time.monotonic)
    finished_at: float | None = None
    closed_by_client: bool = False
    chunks_sent: int = 0
    text_sent: str = ""
    done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Fault:
    """What goes wrong with the next requests: see `ScriptedModelServer.set_fault`."""

    status: int | None = None
    error: str = "Injected fault."
    latency_ms: float = 0.0
    reset: bool = False
    cut_after: int | None = None
    times: int = 1


class ScriptedModelServer:
    """A model server that plays the script of `harness.providers.script`.

    An async context manager. `port=0` takes a free port; `base_url` ends in /v1. Any bearer token is accepted, none
    is refused. `speed` multiplies the pace and may be changed while answers are running. `requests` records every
    chat request, oldest first. `answer` replaces the script: what it returns is played.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        speed: float = 1.0,
        *,
        answer: Callable[[WireRequest], Script] | None = None,
    ) -> None:
        self.speed = speed
        self.requests: list[RequestRecord] = []
        self.open_streams = 0
        self._answer = answer if answer is not None else _scripted
        self._faults: list[Fault] = []
        self._stopping = False
        app = web.Application(client_max_size=MAX_BODY, middlewares=[_errors_as_json])
        for wire in WIRES:
            app.router.add_post(wire.path, partial(self._answered, wire))
        app.router.add_get("/v1/models", self._models)
        self._listener = Listener(app, host, port)

    async def __aenter__(self) -> Self:
        await self._listener.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._stopping = True
        await self._listener.__aexit__()

    @property
    def base_url(self) -> str:
        """What OPENAI_BASE_URL is set to."""
        return f"{self._listener.origin}/v1"

    def set_fault(self, fault: Mapping[str, object]) -> None:
        """Break the next `times` requests (default 1), after the faults that are already waiting.

        Fields, each optional: `status` (answer with this status and `error` as its message), `latency_ms` (wait
        before anything else), `reset` (reset the connection instead of answering), `cut_after` (stop after so many
        pieces of the answer: a clean end without finish reason, or with `reset` a torn connection). An empty mapping
        clears what is waiting. Raises ValueError for an unknown field.
        """
        if not fault:
            self._faults.clear()
            return
        unknown = set(fault) - set(Fault.__slots__)
        if unknown:
            raise ValueError(f"unknown fault field: {', '.join(sorted(unknown))}")
        self._faults.append(Fault(**fault))  # pyright: ignore[reportArgumentType]  # JSON, checked by name above

    def _take_fault(self) -> Fault | None:
        while self._faults and self._faults[0].times <= 0:
            self._faults.pop(0)
        if not self._faults:
            return None
        self._faults[0].times -= 1
        return self._faults[0]

    async def _models(self, request: web.Request) -> web.Response:
        _check_key(request, WIRES[0])
        model = {"id": "scripted", "object": "model", "created": 0, "owned_by": "harness"}
        return web.json_response({"object": "list", "data": [model]})

    async def _answered(self, wire: Wire, request: web.Request) -> web.StreamResponse:
        _check_key(request, wire)
        body = await request.read()
        try:
            asked = wire.parse(body)
        except BadRequest as error:
            return web.json_response(wire.error(error.message, 400, error.param), status=400)
        prompt = asked.heard.user_texts[-1] if asked.heard.user_texts else ""
        record = RequestRecord(asked.messages, prompt, body, dict(request.headers), _peer(request))
        self.requests.append(record)
        async with self._tracked(record):
            fault = self._take_fault() or Fault()
            await asyncio.sleep(fault.latency_ms / 1000)
            if fault.reset and fault.cut_after is None:
                return reset(request)
            if fault.status is not None:
                return _error_response(wire, Fail(status=fault.status, message=fault.error))
            script = self._answer(asked)
            if script and isinstance(script[0], Fail):
                await asyncio.sleep(script[0].delay_s / self.speed)
                return _error_response(wire, script[0])
            answer = wire.answer(len(self.requests), asked)
            if not asked.stream:
                return await self._whole(request, wire, script, answer, record)
            return await self._streamed(request, script, answer, record, fault)

    @asynccontextmanager
    async def _tracked(self, record: RequestRecord) -> AsyncGenerator[None]:
        self.open_streams += 1
        try:
            yield
        except (asyncio.CancelledError, ConnectionError):
            record.closed_by_client = not self._stopping
            raise
        finally:
            self.open_streams -= 1
            record.finished_at = time.monotonic()
            record.done.set()

    async def _whole(
        self, request: web.Request, wire: Wire, script: Script, answer: WireAnswer, record: RequestRecord
    ) -> web.StreamResponse:
        async with aclosing(paced(script, lambda: self.speed)) as steps:
            async for step in steps:
                match step:
                    case Hang():
                        await silence()
                    case Cut():
                        return reset(request)
                    case Fail():
                        return _error_response(wire, step)
                    case Say() | Think() | Call():
                        pass
        record.chunks_sent = 1
        record.text_sent = "".join(step.text for step in script if isinstance(step, Say))
        return web.Response(body=answer.whole(script), content_type="application/json")

    async def _streamed(
        self, request: web.Request, script: Script, answer: WireAnswer, record: RequestRecord, fault: Fault
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=SSE_HEADERS)
        await response.prepare(request)
        await self._send(response, record, answer.head())
        left = fault.cut_after
        async with aclosing(paced(script, lambda: self.speed)) as steps:
            async for step in steps:
                if left == 0:
                    return reset(request) if fault.reset else response
                left = None if left is None else left - 1
                match step:
                    case Hang():
                        await silence()
                    case Cut():
                        return response
                    case Fail():
                        await self._send(response, record, answer.failure(step.message, step.status))
                        return response
                    case Say() | Think() | Call():
                        await self._send(response, record, answer.step(step))
                        if isinstance(step, Say):
                            record.text_sent += step.text
        await self._send(response, record, answer.tail())
        return response

    async def _send(self, response: web.StreamResponse, record: RequestRecord, chunks: Iterable[bytes]) -> None:
        for chunk in chunks:
            await response.write(chunk)
            record.chunks_sent += 1


def _peer(request: web.Request) -> object:
    return request.transport.get_extra_info("peername") if request.transport is not None else None


def _scripted(request: WireRequest) -> Script:
    return decide(request.heard)


def _check_key(request: web.Request, wire: Wire) -> None:
    if not wire.is_authorized({name.lower(): value for name, value in request.headers.items()}):
        body = wire.error("You didn't provide an API key.", 401)
        raise web.HTTPUnauthorized(text=orjson.dumps(body).decode(), content_type="application/json")


def _error_response(wire: Wire, failure: Fail) -> web.Response:
    headers = {} if failure.retry_after is None else {"Retry-After": f"{failure.retry_after:g}"}
    return web.json_response(wire.error(failure.message, failure.status), status=failure.status, headers=headers)


@web.middleware
async def _errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.content_type == "application/json":
            raise
        body = WIRES[0].error(as_text(error.reason), error.status)
        return web.json_response(body, status=error.status)
