"""A local server that answers with given bytes: for tests at the level of the wire."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

import orjson
from aiohttp import web

from harness.messages import JsonObject
from harness.providers.wire import as_object
from harness.testing.listener import MAX_BODY, SSE_HEADERS, Listener, reset

Chunking = Literal["whole", "lines", "bytes"]


@dataclass(frozen=True, slots=True)
class RawReply:
    """One HTTP response given byte by byte. `reset`: tear the connection after the body instead of ending it."""

    body: bytes
    chunking: Chunking = "whole"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: SSE_HEADERS)
    reset: bool = False


class RawModelServer:
    """Serves `reply` to every POST: for tests at the level of bytes. `bodies` keeps what was sent, oldest first.

    `replies` go first, one request each, before `reply` takes over.
    """

    def __init__(self, reply: RawReply | None = None) -> None:
        self.reply = reply if reply is not None else RawReply(b"")
        self.replies: list[RawReply] = []
        self.bodies: list[JsonObject] = []
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post("/{path:.*}", self._answer)
        self._listener = Listener(app, "127.0.0.1", 0)

    async def __aenter__(self) -> Self:
        await self._listener.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._listener.__aexit__()

    @property
    def base_url(self) -> str:
        """What the client is pointed at."""
        return f"{self._listener.origin}/v1"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(as_object(orjson.loads(await request.read())) or {})
        reply = self.replies.pop(0) if self.replies else self.reply
        response = web.StreamResponse(status=reply.status, headers=reply.headers)
        await response.prepare(request)
        for piece in _cut(reply.body, reply.chunking):
            await response.write(piece)
            # One HTTP chunk per piece, and a turn of the loop between two, so that they are read one by one.
            await asyncio.sleep(0)
        return reset(request) if reply.reset else response


def _cut(body: bytes, chunking: Chunking) -> Sequence[bytes]:
    match chunking:
        case "whole":
            return [body] if body else []
        case "lines":
            return body.splitlines(keepends=True)
        case "bytes":
            return [body[i : i + 1] for i in range(len(body))]
