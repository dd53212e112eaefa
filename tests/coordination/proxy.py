"""A proxy between a client and a unix socket that loses exactly what a test says."""

import asyncio
import contextlib
from pathlib import Path
from typing import Literal, Self

# unsent: the request is lost with its connection. cut: done, but the connection breaks instead of the reply.
# swallowed: done, but the reply never comes. late: the reply comes after `delay` seconds.
Fault = Literal["unsent", "cut", "swallowed", "late"]


class FaultyProxy:
    """Forwards bytes; `fail` makes the next request that contains a marker go wrong. Nothing is pipelined here."""

    def __init__(self, target: Path, listen: Path, *, delay: float = 0.1) -> None:
        self._target, self._listen, self._delay = target, listen, delay
        self._armed: tuple[bytes, Fault] | None = None
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.StreamWriter] = set()
        self.hits = 0
        self.url = f"unix://{listen}"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self._listen)

    async def close(self) -> None:
        """Refuse new connections and cut the old ones."""
        if self._server:
            self._server.close()
        self._listen.unlink(missing_ok=True)
        for link in self._links:
            link.close()
        await asyncio.sleep(0.01)

    def fail(self, marker: str, fault: Fault) -> None:
        self._armed = (marker.encode(), fault)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._links.add(writer)
        with contextlib.suppress(OSError):
            to_reader, to_writer = await asyncio.open_unix_connection(self._target)
            self._links.add(to_writer)
            while request := await reader.read(1 << 20):
                fault: Fault | None = None
                if self._armed and self._armed[0] in request:
                    (_, fault), self._armed = self._armed, None
                    self.hits += 1
                if fault == "unsent":
                    break
                to_writer.write(request)
                reply = await to_reader.read(1 << 20)
                if fault == "cut" or not reply:
                    break
                if fault == "swallowed":
                    await reader.read()
                if fault == "late":
                    await asyncio.sleep(self._delay)
                writer.write(reply)
            to_writer.close()
        writer.close()
