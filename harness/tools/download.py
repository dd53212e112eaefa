"""One GET from the public internet, so guarded that it cannot be turned against the network it is made from.

Contract: a host is resolved once, every address it has is judged, and the connection goes to those very addresses while
Host header, SNI and certificate check keep the name. A name that resolves differently a moment later changes nothing.
Each redirect starts over. Nothing is kept or taken from the environment: no cookies, credentials, proxies.
"""

import asyncio
import re
import socket
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from ssl import SSLContext
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from harness.errors import ToolError
from harness.tools.addresses import literal, refusal
from harness.tools.untrusted import printable

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From host and port to addresses. Raises OSError when there are none."""

MAX_BODY_BYTES: Final = 2 * 2**20
MAX_REDIRECTS: Final = 3
_MAX_URL_CHARS: Final = 2_048
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+")
_PORTS: Final = {"http": 80, "https": 443}
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_CONNECT_S: Final = 10.0
_CHUNK: Final = 2**16
_HEADERS: Final = {
    "User-Agent": "harness-bots-fetch",
    "Accept": "text/html, text/plain, application/json;q=0.9, text/*;q=0.8",
    "Accept-Encoding": "gzip",
}


@dataclass(frozen=True, slots=True)
class Page:
    """What was downloaded. `url`: where it was found in the end. `body`: decoded from gzip, at most the limit."""

    url: URL
    content_type: str
    charset: str | None
    body: bytes


class Downloader:
    """`get` for public addresses.

    `also_allowed`: pairs of address and port that are allowed besides, for tests and for services that the operator
    means to expose. `timeout_s`: for everything together, redirects and body included.
    """

    def __init__(
        self,
        *,
        also_allowed: frozenset[tuple[str, int]] = frozenset(),
        resolve: Resolve | None = None,
        ssl: SSLContext | None = None,
        timeout_s: float = 20.0,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._also_allowed = also_allowed
        self._resolve = resolve or _system_resolve
        self._ssl = ssl
        self.timeout_s = timeout_s
        self._max_body_bytes = max_body_bytes

    async def get(self, address: str, accepts: Callable[[str], bool]) -> Page:
        """The page at `address`, if `accepts` says yes to its content type; else, and on every failure, ToolError."""
        url = parsed(address)
        try:
            async with asyncio.timeout(self.timeout_s):
                for _ in range(MAX_REDIRECTS + 1):
                    found = await self._one(url, accepts)
                    if isinstance(found, Page):
                        return found
                    url = found
        except TimeoutError as error:
            raise ToolError(f"The page did not arrive within {self.timeout_s:g} s.") from error
        except aiohttp.ClientError as error:
            raise ToolError(f"{url.host} could not be fetched: {_reason(error)}.") from error
        raise ToolError(f"There were more than {MAX_REDIRECTS} redirects.")

    async def _one(self, url: URL, accepts: Callable[[str], bool]) -> Page | URL:
        """One request: the page, or where it redirects to."""
        pinned = await self._checked(url)
        connector = aiohttp.TCPConnector(
            resolver=_Pinned(pinned), use_dns_cache=False, force_close=True, ssl=self._ssl or True
        )
        async with (
            aiohttp.ClientSession(
                connector=connector,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                # Its own decompression has no limit on what comes out.
                auto_decompress=False,
                headers=_HEADERS,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                max_line_size=8_190,
                max_field_size=8_190,
            ) as session,
            session.get(url, allow_redirects=False) as response,
        ):
            if response.status in _REDIRECTS:
                return _target(url, response.headers.get("Location", ""))
            if response.status != HTTPStatus.OK:
                raise ToolError(f"{url.host} answered {_status(response.status)}.")
            if not accepts(response.content_type) or "Content-Type" not in response.headers:
                kind = printable(response.headers.get("Content-Type", "no content type"))[:100]
                raise ToolError(f"Only HTML, JSON and plain text can be fetched; this is {kind}.")
            return Page(url, response.content_type, response.charset, await self._body(response))

    async def _checked(self, url: URL) -> Sequence[str]:
        """The addresses to connect to. ToolError unless each of them may be."""
        host, port = url.raw_host or "", url.port or 0
        fixed = literal(host)
        if fixed is not None:
            addresses: Sequence[str] = [str(fixed)]
        else:
            try:
                addresses = await self._resolve(host, port)
            except (OSError, UnicodeError) as error:
                raise ToolError(f"The name {host[:100]!r} could not be resolved.") from error
        for address in addresses:
            if (address, port) in self._also_allowed:
                continue
            # One bad address among good ones is refused as well: which of them is used is not ours to choose.
            if reason := refusal(ip_address(address)):
                raise ToolError(f"{host[:100]} is not on the public internet: its address is {reason}.")
            if port not in _PORTS.values():
                raise ToolError(f"Port {port} is not allowed; only 80 and 443 are.")
        if not addresses:
            raise ToolError(f"The name {host[:100]!r} has no address.")
        return addresses

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        too_large = ToolError(f"The page is larger than {self._max_body_bytes:,} bytes.")
        if (response.content_length or 0) > self._max_body_bytes:
            raise too_large
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in {"identity", "gzip", ""} or len(response.headers.getall("Content-Encoding", [])) > 1:
            raise ToolError("The page is compressed in a way that was not asked for.")
        body = bytearray()
        async for piece in _decoded(response.content, self._max_body_bytes + 1, gzip=encoding == "gzip"):
            body += piece
            if len(body) > self._max_body_bytes:
                raise too_large
        return bytes(body)


def parsed(address: str) -> URL:
    """The URL, if its form is one that may be fetched; ToolError says what is wrong with it. Judges no address."""
    if len(address) > _MAX_URL_CHARS:
        raise ToolError(f"The URL is longer than {_MAX_URL_CHARS:,} characters.")
    if not address.isprintable() or any(char in address for char in ' \\"<>'):
        raise ToolError("The URL contains spaces, control characters or characters that must be escaped.")
    try:
        url = URL(address)
        port = url.explicit_port
        host = url.raw_host
    except ValueError as error:
        raise ToolError("This is not a URL.") from error
    if url.scheme not in _PORTS:
        raise ToolError("Only http and https URLs can be fetched.")
    if not host:
        raise ToolError("The URL has no host.")
    if url.raw_user is not None or url.raw_password is not None or "@" in url.raw_authority:
        raise ToolError("The URL must not contain a user name or password.")
    if port is not None and not 0 < port < 2**16:
        raise ToolError("The URL has no valid port.")
    if ":" not in host and not _HOST.fullmatch(host):
        raise ToolError("The host of the URL is not a valid name.")
    literal(host)
    return url.with_fragment(None)


class _Pinned(AbstractResolver):
    """Answers with the addresses that were judged, whatever is asked."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002 - part of aiohttp's interface
    ) -> list[ResolveResult]:
        """The pinned addresses, in the form that aiohttp wants."""
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing to close."""


async def _system_resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _target(url: URL, location: str) -> URL:
    if not location:
        raise ToolError(f"{url.host} redirects to nowhere.")
    try:
        target = str(url.join(URL(location)))
    except ValueError as error:
        raise ToolError(f"{url.host} redirects to something that is not a URL.") from error
    try:
        return parsed(target)
    except ToolError as error:
        raise ToolError(f"{url.host} redirects to where it must not: {error}") from error


async def _decoded(content: aiohttp.StreamReader, limit: int, *, gzip: bool) -> AsyncIterator[bytes]:
    """The body in pieces; never more than about `limit` bytes come out of one piece, however small it came in."""
    inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
    async for piece in content.iter_chunked(_CHUNK):
        if not gzip:
            yield piece
            continue
        try:
            yield inflate.decompress(piece, limit)
        except zlib.error as error:
            raise ToolError("The page's compression is broken.") from error
        if inflate.eof:
            return
    if gzip and not inflate.eof:
        raise ToolError("The page's compression is broken.")


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _reason(error: aiohttp.ClientError) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return "its certificate is not valid"
        case aiohttp.ClientSSLError():
            return "no secure connection could be made"
        case aiohttp.ClientConnectorError():
            return "no connection could be made"
        case aiohttp.ClientPayloadError() | aiohttp.ServerDisconnectedError():
            return "the connection broke"
        case aiohttp.ClientResponseError():
            return "its answer is not valid HTTP"
        case _:
            return "the request failed"
