"""The way to a model server: aiohttp behind the client that the SDK sends its requests with.

The SDK has such a transport as well, but hands out a streamed body through several generators. This one passes
aiohttp's response along, to be read where it arrives.
"""

from collections.abc import AsyncIterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import aiohttp
import httpx2

RESPONSE: Final = "harness.aiohttp_response"
"""The key in `Response.extensions` under which aiohttp's response is found; its content is as it was sent."""
_KEEP_ALIVE_S: Final = 15.0


class ModelHttpClient(httpx2.AsyncClient):
    """httpx2's client, with its rules for proxies (those of the environment, less NO_PROXY) and certificates.

    Redirects are followed, as the SDK's own client does; cookies are not kept.
    """

    def __init__(self, timeout: httpx2.Timeout) -> None:
        nowhere = DefaultCookiePolicy(allowed_domains=[])
        super().__init__(timeout=timeout, follow_redirects=True, cookies=CookieJar(nowhere))

    # A transport given as an argument would switch the proxies of the environment off, so it comes in as the SDK's own
    # aiohttp client brings in its one. Were these two gone, all would work as before, but more slowly.

    def _init_transport(self, **_options: Any) -> httpx2.AsyncBaseTransport:  # type: ignore[override]
        return AiohttpTransport()

    def _init_proxy_transport(self, proxy: httpx2.Proxy, **_options: Any) -> httpx2.AsyncBaseTransport:  # type: ignore[override]
        return AiohttpTransport(proxy)


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Sends requests with aiohttp, all through `proxy` if there is one.

    Redirects, cookies and compression are left to the client. Of its timeouts `connect`, `read` and `pool` count. What
    goes wrong is raised as aiohttp's own errors, which name the cause better than a translation would.
    """

    def __init__(self, proxy: httpx2.Proxy | None = None) -> None:
        self._ssl = httpx2.create_ssl_context()
        self._session: aiohttp.ClientSession | None = None
        self._proxy = str(_with_credentials(proxy)) if proxy is not None else None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request and wait for the headers; when that is canceled the connection is closed."""
        timeout = request.extensions.get("timeout", {})
        response = await self._opened().request(
            request.method,
            str(request.url),
            headers=request.headers,
            data=await request.aread() or None,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(
                connect=timeout.get("pool"), sock_connect=timeout.get("connect"), sock_read=timeout.get("read")
            ),
            proxy=self._proxy,
        )
        reason = (response.reason or "").encode("ascii", "ignore")
        return httpx2.Response(
            response.status,
            headers=list(response.raw_headers),
            stream=_Body(response),
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": reason, RESPONSE: response},
        )

    async def aclose(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    def _opened(self) -> aiohttp.ClientSession:
        # Not in __init__: a session belongs to a running loop.
        if self._session is None:
            # No limit of connections: how many requests run at once is decided where they are made.
            connector = aiohttp.TCPConnector(ssl=self._ssl, limit=0, keepalive_timeout=_KEEP_ALIVE_S)
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        return self._session


class _Body(httpx2.AsyncByteStream):
    """The body for whoever reads it through httpx2: an error to be shown, or a body that came compressed."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.content.iter_any():
            yield chunk

    async def aclose(self) -> None:
        # A body that was read to its end leaves the connection for the next request; any other one closes it.
        self._response.release()
        await self._response.wait_for_close()


def _with_credentials(proxy: httpx2.Proxy) -> httpx2.URL:
    # In the address aiohttp takes them for both kinds of request, those that go through a tunnel and plain ones.
    if proxy.auth is None:
        return proxy.url
    username, password = proxy.auth
    return proxy.url.copy_with(username=username, password=password)
