"""Serve an ASGI app on loopback from inside the running event loop, and own the tasks that go with it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Self, cast

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_RESET_EXTENSION = "playground.reset"


class PortTakenError(RuntimeError):
    """The port that was asked for belongs to somebody else."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"Port {port} on {host} is already in use.")
        self.port = port


class TaskScope:
    """Tasks that live as long as the `async with` block; what still runs at its end is cancelled.

    Contract: a task must handle its own errors; one that raises anyway ends the whole scope, loudly.
    """

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await self._group.__aexit__(None, None, None)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` until it ends or the scope does."""
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def running(self) -> tuple[asyncio.Task[None], ...]:
        """The tasks that have not ended yet."""
        return tuple(self._tasks)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Bound here, not by uvicorn, so that a taken port is our error and never its `sys.exit`.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        raise PortTakenError(host, port) from error
    listener.setblocking(False)  # noqa: FBT003 - the socket module's own signature
    return listener


def free_port(host: str = "127.0.0.1") -> int:
    """A port that was free a moment ago, for a process that has to be told one before it starts."""
    with contextlib.closing(bind(host, 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.asynccontextmanager
async def serve_asgi(
    app: ASGIApp, *, host: str = "127.0.0.1", port: int = 0, listener: socket.socket | None = None
) -> AsyncGenerator[str]:
    """Serve `app` until the block ends; yields its base address without a slash at the end.

    Raises PortTakenError. Installs no signal handlers: signals belong to whoever runs the loop.
    """
    listener = listener or bind(host, port)
    config = uvicorn.Config(
        app,
        http=_ResettableHttp,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
    )
    server = _Server(config)
    async with TaskScope() as scope:
        serving = scope.start(server.serve(sockets=[listener]))
        await server.ready.wait()
        bound = listener.getsockname()
        try:
            yield f"http://{bound[0]}:{bound[1]}"
        finally:
            server.stop()
            await serving


class ResetResponse(Response):
    """Answers nothing: the connection is reset (RST). For a call that was processed but whose answer got lost."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - nothing is sent
        """Reset, then wait until the server has noticed, so that it sends no 500 of its own."""
        reset = cast("Callable[[], None]", scope["extensions"][_RESET_EXTENSION])
        reset()
        while (await receive())["type"] != "http.disconnect":
            pass


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers and its tenths of a second of polling: starts and stops at once."""

    _GRACE_S = 1.0

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for closing in (*self.servers, *(sockets or ())):
            closing.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._GRACE_S):
                while self.server_state.connections or self.server_state.tasks:
                    await asyncio.sleep(0.002)
        for task in self.server_state.tasks:
            task.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class _ResettableHttp(HttpToolsProtocol):
    """uvicorn's HTTP protocol; lets a response reset its connection, which ASGI has no words for."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope = cast("dict[str, Any]", self.scope)
        scope["extensions"] = {_RESET_EXTENSION: self._reset}

    def _reset(self) -> None:
        descriptor = self.transport.get_extra_info("socket").fileno()
        # A copy of the descriptor: uvloop's socket objects set no options.
        with contextlib.closing(socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)) as connection:
            # Linger 0: close() sends RST instead of FIN, which is what a client calls "connection reset by peer".
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()
