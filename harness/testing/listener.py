"""What the local servers share: a port of their own, and ways to be rude on it."""

from collections.abc import Mapping
from typing import Final, Self

from aiohttp import web

MAX_BODY: Final = 16 * 2**20
SSE_HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
}


class Listener:
    """An aiohttp application on a port of its own, stopped without waiting for open streams."""

    def __init__(self, app: web.Application, host: str, port: int) -> None:
        self._host = host
        self._port = port
        # Without handler_cancellation a client that goes away would be noticed only by the next write.
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self._port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._runner.cleanup()

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"http://{self._host}:{self._port}"


def reset(request: web.Request) -> web.Response:
    """Tear the connection; what is returned only satisfies the handler's signature."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
