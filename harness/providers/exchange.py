"""One request to a model server and its response, whichever SDK sends it.

The SDK builds and sends the request and gives typed errors; the response body is read here, byte by byte, because the
SDKs' typed chunks cost several times as much and cannot tell a finished stream from one that broke off.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import aiohttp
import httpx2
import orjson

from harness.errors import ProviderError
from harness.providers.failures import SettingNames, clean, from_status
from harness.providers.stream import TRANSPORT_ERRORS, Assembler, ResponseStream
from harness.providers.transport import RESPONSE
from harness.providers.wire import as_object, as_text

TIMEOUT: Final = httpx2.Timeout(None, connect=10.0)
"""No read timeout: it would count SSE comments as progress. The engine watches for silence."""
RAW_BODY: Final = {"Accept-Encoding": "identity"}
"""The headers of every request: the body is read raw, and a stream gains nothing from compression."""
_PARAMETER_STATUSES: Final = frozenset({400, 422})


class RawResponse(Protocol):
    """A response of either SDK before anything of its body is read."""

    @property
    def http_response(self) -> httpx2.Response:
        """The response itself."""
        ...


@dataclass(frozen=True, slots=True)
class SdkErrors:
    """The errors of one SDK: the root, the one for a connection that failed, and the response of a bad status."""

    root: type[Exception]
    connection: type[Exception]
    response_of: Callable[[Exception], httpx2.Response | None]


class Exchange:
    """Sends requests to one server.

    `secret` is cut out of every error message. Optional parameters that the server refuses by name are left out from
    then on, for the life of this object.
    """

    def __init__(self, errors: SdkErrors, *, host: str, model: str, secret: str, settings: SettingNames) -> None:
        self._errors = errors
        self._host = host
        self._model = model
        self._secret = secret
        self._settings = settings
        self._refused: set[str] = set()

    @asynccontextmanager
    async def open(
        self, send: Callable[[dict[str, object]], AbstractAsyncContextManager[RawResponse]], optional: dict[str, object]
    ) -> AsyncGenerator[httpx2.Response]:
        """The response, once its headers are there; leaving closes the exchange.

        `send` makes the request with the given optional parameters of the body.
        """
        async with AsyncExitStack() as stack:
            yield await self._opened(stack, send, optional)

    def items(self, response: httpx2.Response, assembler: Assembler) -> ResponseStream:
        """What the response says, read as it arrives."""
        return ResponseStream(_reading(response), assembler, self._broken, url_setting=self._settings.url)

    async def _opened(
        self,
        stack: AsyncExitStack,
        send: Callable[[dict[str, object]], AbstractAsyncContextManager[RawResponse]],
        optional: dict[str, object],
    ) -> httpx2.Response:
        while True:
            accepted = {name: value for name, value in optional.items() if name not in self._refused}
            try:
                return (await stack.enter_async_context(send(accepted))).http_response
            except (self._errors.connection, *TRANSPORT_ERRORS) as error:
                raise self._broken(error) from error
            except (self._errors.root, ValueError, TypeError) as error:
                response = self._errors.response_of(error)
                if response is None:
                    # Nothing was sent: a key that is no header value, a tool schema that is no JSON.
                    message = clean(f"The model request could not be made: {error}", self._secret)
                    raise ProviderError("bad_request", message) from None
                refused = _refused_parameter(response, accepted)
                if refused is None:
                    raise self._status_error(response) from None
                self._refused.add(refused)

    def _status_error(self, response: httpx2.Response) -> ProviderError:
        text = response.text
        try:
            body: object = orjson.loads(text)
        except ValueError:
            body = text
        return from_status(
            response.status_code,
            body,
            response.headers,
            model=self._model,
            secret=self._secret,
            settings=self._settings,
        )

    def _broken(self, error: BaseException) -> ProviderError:
        """A connection that could not be made or broke. The transport's own wording, its class names are off."""
        chain = _causes(error)
        root = next((link for link in chain if isinstance(link, aiohttp.ClientError | OSError)), chain[-1])
        timed_out = isinstance(root, TimeoutError | httpx2.TimeoutException)
        # A body that ends too early is told by aiohttp in the terms of its own parser.
        cut = isinstance(root, aiohttp.ClientPayloadError)
        what = "it broke off in the middle of the answer" if cut else str(root) or type(root).__name__
        message = clean(f"The connection to the model server {self._host} failed: {what}", self._secret)
        return ProviderError("timeout" if timed_out else "connection", message)


def _reading(response: httpx2.Response) -> Callable[[], Awaitable[bytes]]:
    """How the next bytes of the body are got; b"" at its end."""
    arrived: aiohttp.ClientResponse | None = response.extensions.get(RESPONSE)
    if arrived is not None and response.headers.get("content-encoding", "identity") == "identity":
        return arrived.content.readany
    body = response.aiter_bytes()
    return lambda: anext(body, b"")


def _refused_parameter(response: httpx2.Response, optional: Mapping[str, object]) -> str | None:
    """The optional parameter of this request that the server's 400 names, if it names one."""
    if response.status_code not in _PARAMETER_STATUSES:
        return None
    text = response.text
    named = _param(text)
    if named:
        return named if named in optional else None
    return next((name for name in optional if re.search(rf"\b{re.escape(name)}\b", text)), None)


def _param(body: str) -> str:
    """The parameter that an error names in the field for it, without what is inside of the parameter; "" if none."""
    try:
        error = as_object(orjson.loads(body)) or {}
    except ValueError:
        return ""
    named = as_text((as_object(error.get("error")) or error).get("param"))
    return re.split(r"[.\[]", named, maxsplit=1)[0]


def _causes(error: BaseException) -> list[BaseException]:
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)
    return chain
