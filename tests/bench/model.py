"""A model server that writes deltas one by one at an even pace, and nothing before it is told to.

It is as thin as it can be, so that on a machine with few cores it takes little from the process that is measured.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any, Self

from tests.bench.answers import answer_pieces, asked_for
from tests.bench.wires import WIRES, BenchWire

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class _Stream:
    number: int
    wire: BenchWire
    body: dict[str, Any]
    writer: asyncio.StreamWriter
    pieces: list[str]
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    bytes_sent: int = 0
    deltas_sent: int = 0

    def send(self, data: bytes) -> None:
        """One write, which is one segment on the wire: the transport writes at once and Nagle's delay is off."""
        self.bytes_sent += len(data)
        self.writer.write(data)

    def begin(self) -> None:
        """Headers, and the events before the first delta."""
        self.send(_HEAD)
        self.send(b"".join(map(_http_chunk, self.wire.head(self.number, self.body))))

    def delta(self, piece: str) -> None:
        """One event with one delta."""
        self.send(_http_chunk(self.wire.delta(self.number, piece, self.deltas_sent, self.body)))
        self.deltas_sent += 1

    def end(self) -> None:
        """The events behind the last delta."""
        for event in self.wire.tail(self.number, self.pieces, self.body):
            self.send(_http_chunk(event))
        self.send(b"0\r\n\r\n")


class PacedModelServer:
    """Answers the questions of `tests.bench.answers`, each stream on a connection of its own.

    `wait_open` returns when so many answers have begun; `play` writes their deltas, in turn over all streams, one every
    `spacing` seconds; `finish` ends the answers.
    """

    def __init__(self) -> None:
        self.port = 0
        self._streams: list[_Stream] = []
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self.finish()
        self._server.close()
        await self._server.wait_closed()

    @property
    def base_url(self) -> str:
        """Where it is; the clients of OpenAI's protocols add /v1."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def bytes_sent(self) -> int:
        """Everything that was written, headers included."""
        return sum(stream.bytes_sent for stream in self._streams)

    async def wait_open(self, streams: int) -> None:
        """Return when so many streams are open."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._streams) >= streams)

    async def play(self, spacing: float) -> float:
        """Write all deltas; the seconds it took. A late write makes all later ones later: nothing is caught up."""
        started = time.monotonic()
        for pieces in zip(*(stream.pieces for stream in self._streams), strict=True):
            for stream, piece in zip(self._streams, pieces, strict=True):
                due = time.monotonic() + spacing
                stream.delta(piece)
                await asyncio.sleep(due - time.monotonic())
        return time.monotonic() - started

    def finish(self) -> None:
        """End every answer."""
        for stream in self._streams:
            if not stream.finished.is_set():
                stream.end()
                stream.finished.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            body = json.loads(await reader.readexactly(length))
            path = head.split(b" ", 2)[1].decode().partition("?")[0]
            wire = next(wire for wire in WIRES.values() if wire.path == path)
            number, deltas = asked_for(wire.question(body))
            stream = _Stream(number, wire, body, writer, answer_pieces(number, deltas))
            stream.begin()
            async with self._changed:
                self._streams.append(stream)
                self._changed.notify_all()
            await stream.finished.wait()
            await reader.read()  # until the client hangs up
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is gone: what it has seen is checked by the one who started it
        finally:
            writer.close()


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
