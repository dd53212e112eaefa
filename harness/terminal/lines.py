"""Lines from a pipe or a file, one at a time and only when asked for, without blocking the event loop."""

import asyncio
import os
from typing import Final

_CHUNK: Final = 65_536


class LineReader:
    """Reads a file descriptor line by line. Bytes that are no text become replacement characters."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""
        self._ended = False
        self._waiting: asyncio.Future[None] | None = None

    async def read(self) -> str | None:
        """The next line without its end; None at the end of the input. Raises KeyboardInterrupt after `interrupt`."""
        while b"\n" not in self._buffer and not self._ended:
            await self._readable()
            data = os.read(self._fd, _CHUNK)
            self._buffer += data
            self._ended = not data
        if not self._buffer:
            return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace").removesuffix("\r")

    def interrupt(self) -> None:
        """End the waiting of `read`."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(KeyboardInterrupt())

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        try:
            loop.add_reader(self._fd, _wake, self._waiting)
        except PermissionError:
            return  # a plain file: it cannot be waited for, and never makes anybody wait
        try:
            await self._waiting
        finally:
            loop.remove_reader(self._fd)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
