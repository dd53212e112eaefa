"""The transport against local servers: connections, proxies, redirects, cookies, compression, and real closing."""

import asyncio
import gzip
import ssl
import zlib
from base64 import b64encode
from collections.abc import AsyncIterator

import aiohttp
import httpx2
import pytest
from aiohttp import web

from harness.errors import ProviderError
from harness.messages import UserMessage
from harness.providers.base import Completed, ModelRequest, TextDelta
from harness.providers.openai_chat import OpenAIChatProvider
from harness.providers.transport import RESPONSE, AiohttpTransport, ModelHttpClient
from harness.testing.listener import SSE_HEADERS, Listener
from tests.providers.wire import DONE, delta, say, sse

ASK = ModelRequest("", [UserMessage("hello")])
BODY = sse(say("你好"), say(", there"), delta("stop"), DONE)
FOREVER = httpx2.Timeout(None)


class Server:
    """Answers as it is told and keeps what it was asked: `answer` makes the response to a path."""

    def __init__(self) -> None:
        self.requests: list[web.Request] = []
        self.peers: list[object] = []
        self.bodies: list[bytes] = []
        self.asked = asyncio.Event()
        self.gone = asyncio.Event()
        self.headers: dict[str, str] = {}
        self.body = BODY
        self.hang: str = ""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self.listener = Listener(app, "127.0.0.1", 0)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.peers.append(request.transport.get_extra_info("peername") if request.transport else None)
        self.bodies.append(await request.read())
        if request.path.startswith("/moved"):
            where = request.query.get("to") or f"{self.listener.origin}/v1/chat/completions"
            return web.Response(status=307, headers={"Location": where})
        try:
            if self.hang == "before headers":
                await self._forever()
            response = web.StreamResponse(headers={**SSE_HEADERS, **self.headers})
            await response.prepare(request)
            await response.write(self.body)
            if self.hang == "in the body":
                await self._forever()
            return response
        except asyncio.CancelledError:
            self.gone.set()
            raise

    async def _forever(self) -> None:
        self.asked.set()
        await asyncio.Event().wait()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    async with server.listener:
        yield server


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def answer(base_url: str) -> str:
    """What a provider at this address streams."""
    provider = OpenAIChatProvider(api_key="sk-key", base_url=base_url, model="m")
    try:
        async with provider.stream(ASK) as stream:
            items = [item async for item in stream]
    finally:
        await provider.aclose()
    assert isinstance(items[-1], Completed)
    return "".join(item.text for item in items if isinstance(item, TextDelta))


async def test_the_arrived_response_is_passed_along(server: Server) -> None:
    """The pin: were the hooks of the client gone, nothing else would fail, but reading would cost more."""
    async with ModelHttpClient(FOREVER) as client, client.stream("POST", server.listener.origin, content=b"x") as got:
        arrived = got.extensions[RESPONSE]
        assert isinstance(arrived, aiohttp.ClientResponse)
        assert await arrived.content.readany() == BODY
    assert server.bodies == [b"x"]
    assert (got.status_code, got.reason_phrase, got.http_version) == (200, "OK", "HTTP/1.1")


async def test_a_connection_is_used_again_after_a_whole_read_only(server: Server) -> None:
    async with ModelHttpClient(FOREVER) as client:
        for _ in range(3):
            async with client.stream("POST", server.listener.origin) as response:
                assert await response.aread() == BODY
        assert len(set(server.peers)) == 1
        server.hang = "in the body"
        async with client.stream("POST", server.listener.origin):
            pass
        server.hang = ""
        await client.post(server.listener.origin)
    assert len(set(server.peers)) == 2


@pytest.mark.parametrize("where", ["before headers", "in the body"])
async def test_cancel_closes_the_connection(server: Server, where: str) -> None:
    server.hang = where
    async with ModelHttpClient(FOREVER) as client:

        async def read() -> None:
            async with client.stream("POST", server.listener.origin) as response:
                async for _ in response.aiter_raw():
                    pass

        task = asyncio.create_task(read())
        await server.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(1):
            await server.gone.wait()


@pytest.mark.parametrize("encoding", ["identity", "gzip", "deflate"])
async def test_a_body_that_comes_compressed_though_nobody_asked_is_read(server: Server, encoding: str) -> None:
    server.headers = {"Content-Encoding": encoding}
    server.body = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress}[encoding](BODY)
    assert await answer(f"{server.listener.origin}/v1") == "你好, there"
    assert server.requests[0].headers.getall("Accept-Encoding") == ["identity"]


async def test_a_redirect_is_followed_with_the_body_and_the_key(server: Server) -> None:
    assert await answer(f"{server.listener.origin}/moved") == "你好, there"
    first, second = server.requests
    assert (first.path, second.path) == ("/moved/chat/completions", "/v1/chat/completions")
    assert server.bodies[0] == server.bodies[1] != b""
    assert second.headers["Authorization"] == "Bearer sk-key"


async def test_a_redirect_to_another_server_does_not_take_the_key_along(server: Server) -> None:
    other = Server()
    async with other.listener, ModelHttpClient(FOREVER) as client:
        url = f"{server.listener.origin}/moved?to={other.listener.origin}/elsewhere"
        await client.post(url, headers={"Authorization": "Bearer sk-key"}, content=b"x")
    assert server.requests[0].headers["Authorization"] == "Bearer sk-key"
    assert "Authorization" not in other.requests[0].headers
    assert other.bodies == [b"x"]


async def test_no_cookies_are_kept(server: Server) -> None:
    server.headers = {"Set-Cookie": "a=b; Path=/"}
    async with ModelHttpClient(FOREVER) as client:
        for _ in range(2):
            assert (await client.post(server.listener.origin)).headers["set-cookie"].startswith("a=b")
        assert not client.cookies
    assert all("Cookie" not in request.headers for request in server.requests)


@pytest.mark.parametrize("name", ["HTTP_PROXY", "ALL_PROXY", "http_proxy"])
async def test_the_proxy_of_the_environment_is_used(server: Server, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, server.listener.origin.replace("http://", "http://user:p%40ss@"))
    assert await answer("http://model.invalid/v1") == "你好, there"
    asked = server.requests[0].headers
    assert asked["Host"] == "model.invalid"
    assert asked["Proxy-Authorization"] == "Basic " + b64encode(b"user:p@ss").decode()
    assert asked["Authorization"] == "Bearer sk-key"


@pytest.mark.parametrize("names", ["127.0.0.1", "other.example, 127.0.0.1", "*"])
async def test_no_proxy_names_what_is_reached_directly(
    server: Server, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with pytest.raises(ProviderError):
        await answer(f"{server.listener.origin}/v1")
    monkeypatch.setenv("NO_PROXY", names)
    assert await answer(f"{server.listener.origin}/v1") == "你好, there"


async def test_https_goes_through_the_proxy_as_a_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with listener:
        monkeypatch.setenv("HTTPS_PROXY", f"http://user:secret@127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        with pytest.raises(ProviderError) as caught:
            await answer("https://model.invalid/v1")
    assert caught.value.kind == "connection"
    assert heads[0].startswith(b"CONNECT model.invalid:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic" in heads[0]
    assert b"sk-key" not in heads[0]


async def test_the_time_to_connect_is_limited(server: Server) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client hangs up
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with listener, ModelHttpClient(httpx2.Timeout(None, connect=0.05)) as client:
        with pytest.raises(TimeoutError):
            await client.post(f"https://127.0.0.1:{port}")  # the TLS handshake is part of connecting
        server.hang = "before headers"
        waiting = asyncio.create_task(client.post(server.listener.origin))
        await server.asked.wait()
        await asyncio.sleep(0.1)
        assert not waiting.done(), "only connecting is limited, not the wait for an answer"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_certificates_are_verified() -> None:
    context = AiohttpTransport()._ssl
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


async def test_closing_twice_and_unused_is_fine() -> None:
    client = ModelHttpClient(FOREVER)
    await client.aclose()
    await client.aclose()
    assert client.is_closed
