"""A local OpenAI-compatible model server that plays the script.

It is an HTTP server in this event loop, so the real client, its transport and its cancellation are exercised.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

import orjson
from aiohttp import web

from harness.messages import JsonObject
from harness.providers.script import Call, Cut, Fail, Hang, Say, Script, Think, decide
from harness.providers.scripted import paced, silence
from harness.providers.wire import as_text
from harness.testing.chat_wire import (
    Answer,
    BadRequest,
    ChatRequest,
    content_text,
    error_body,
    error_event,
    parse_request,
)
from harness.testing.listener import MAX_BODY, SSE_HEADERS, Listener, reset


@dataclass(slots=True)
class RequestRecord:
    """One request to /v1/chat/completions as the server saw it.

    Times are monotonic seconds. `closed_by_client`: the client closed the exchange before the answer was whole.
    `peer` is the client's end of the connection: equal peers are one connection. `done` is set when the exchange is
    over, for whatever reason.
    """

    messages: Sequence[JsonObject]
    body: bytes
    headers: Mapping[str, str]
    peer: object = None
    started_at: float = field(default_factory=time.monotonic)
    finished_at: float | None = None
    closed_by_client: bool = False
    chunks_sent: int = 0
    text_sent: str = ""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def prompt(self) -> str:
        """The last user message, "" when there is none."""
        texts = [content_text(message) for message in self.messages if message.get("role") == "user"]
        return texts[-1] if texts else ""


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
    """An OpenAI-compatible model server that plays the script of `harness.providers.script`.

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
        answer: Callable[[ChatRequest], Script] | None = None,
    ) -> None:
        self.speed = speed
        self.requests: list[RequestRecord] = []
        self.open_streams = 0
        self._answer = answer if answer is not None else _scripted
        self._faults: list[Fault] = []
        self._stopping = False
        app = web.Application(client_max_size=MAX_BODY, middlewares=[_errors_as_json])
        app.router.add_post("/v1/chat/completions", self._chat)
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
        _check_token(request)
        model = {"id": "scripted", "object": "model", "created": 0, "owned_by": "harness"}
        return web.json_response({"object": "list", "data": [model]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        _check_token(request)
        body = await request.read()
        chat = parse_request(body)
        record = RequestRecord(chat.messages, body, dict(request.headers), _peer(request))
        self.requests.append(record)
        async with self._tracked(record):
            fault = self._take_fault() or Fault()
            await asyncio.sleep(fault.latency_ms / 1000)
            if fault.reset and fault.cut_after is None:
                return reset(request)
            if fault.status is not None:
                return _error_response(fault.status, fault.error)
            script = self._answer(chat)
            if script and isinstance(script[0], Fail):
                await asyncio.sleep(script[0].delay_s / self.speed)
                return _error_response(script[0].status, script[0].message, script[0].retry_after)
            answer = Answer(len(self.requests), chat)
            if not chat.stream:
                return await self._whole(request, script, answer, record)
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
        self, request: web.Request, script: Script, answer: Answer, record: RequestRecord
    ) -> web.StreamResponse:
        async with aclosing(paced(script, lambda: self.speed)) as steps:
            async for step in steps:
                match step:
                    case Hang():
                        await silence()
                    case Cut():
                        return reset(request)
                    case Fail():
                        return _error_response(step.status, step.message, step.retry_after)
                    case Say() | Think() | Call():
                        pass
        record.chunks_sent = 1
        record.text_sent = "".join(step.text for step in script if isinstance(step, Say))
        return web.Response(body=answer.whole(script), content_type="application/json")

    async def _streamed(
        self, request: web.Request, script: Script, answer: Answer, record: RequestRecord, fault: Fault
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
                        await self._send(response, record, error_event(step.message, str(step.status)))
                        return response
                    case Say() | Think() | Call():
                        for chunk in answer.step(step):
                            await self._send(response, record, chunk)
                        if isinstance(step, Say):
                            record.text_sent += step.text
        for chunk in answer.tail():
            await self._send(response, record, chunk)
        return response

    async def _send(self, response: web.StreamResponse, record: RequestRecord, chunk: bytes) -> None:
        await response.write(chunk)
        record.chunks_sent += 1


def _peer(request: web.Request) -> object:
    return request.transport.get_extra_info("peername") if request.transport is not None else None


def _scripted(request: ChatRequest) -> Script:
    return decide(request.heard)


def _check_token(request: web.Request) -> None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        body = error_body("You didn't provide an API key.", "invalid_request_error", "invalid_api_key")
        raise web.HTTPUnauthorized(text=orjson.dumps(body).decode(), content_type="application/json")


def _error_response(status: int, message: str, retry_after: float | None = None) -> web.Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    code = "rate_limit_exceeded" if status == 429 else None
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    return web.json_response(error_body(message, kind, code), status=status, headers=headers)


@web.middleware
async def _errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except BadRequest as error:
        body = error_body(error.message, "invalid_request_error", param=error.param)
        return web.json_response(body, status=400)
    except web.HTTPException as error:
        if error.content_type == "application/json":
            raise
        body = error_body(as_text(error.reason), "invalid_request_error")
        return web.json_response(body, status=error.status)
