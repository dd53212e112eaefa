"""Any OpenAI-compatible server, over chat completions.

The SDK builds and sends the request and gives typed errors; the response body is read here, byte by byte, because
the SDK's typed chunks cost several times as much and cannot tell a finished stream from one that broke off.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import aiohttp
import httpx2
import openai
import orjson

from harness.errors import ProviderError
from harness.messages import AssistantMessage
from harness.providers.assembler import ChatAssembler
from harness.providers.base import Completed, ModelRequest, StreamItem
from harness.providers.chat_messages import chat_messages, chat_tools
from harness.providers.chat_stream import TRANSPORT_ERRORS, ChatStream
from harness.providers.failures import clean, from_status
from harness.providers.profiles import ProviderProfile, profile_for
from harness.providers.transport import RESPONSE, ModelHttpClient
from harness.providers.wire import new_call_id

DEFAULT_BASE_URL: Final = "https://api.openai.com/v1"
_CONNECT_TIMEOUT_S: Final = 10.0
_CHARS_PER_TOKEN: Final = 4
_PARAMETER_STATUSES: Final = frozenset({400, 422})


class OpenAIChatProvider:
    """A model behind an OpenAI-compatible endpoint. Implements `ModelProvider` and `StreamingProvider`.

    `base_url` usually ends in /v1. `profile`: how this server departs from the common wire; by the host when not
    given. `new_id` makes our own tool call ids. There is no read timeout: the engine watches for silence.

    Optional parameters that this server refuses by name are left out from then on, for the life of this object.
    """

    def __init__(
        self,
        *,
        api_key: str,
        base_url: str = DEFAULT_BASE_URL,
        model: str,
        profile: ProviderProfile | None = None,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self._model = model
        self._api_key = api_key
        self._profile = profile if profile is not None else profile_for(base_url)
        self._new_id = new_id
        self._refused: set[str] = set()
        # The read timeout would count SSE comments as progress, so it is of no use here.
        timeout = httpx2.Timeout(None, connect=_CONNECT_TIMEOUT_S)
        self._client = openai.AsyncOpenAI(
            api_key=api_key,
            base_url=base_url,
            max_retries=0,  # the engine retries, visibly
            timeout=timeout,
            http_client=ModelHttpClient(timeout),
            # The body is read raw, so it must not come compressed; a stream gains nothing from it anyway.
            default_headers={"Accept-Encoding": "identity"},
        )

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model

    async def generate(self, request: ModelRequest) -> AssistantMessage:
        """The whole answer at once, asked for without streaming."""
        async with self._exchange(request, stream=False) as response:
            async for item in self._items(request, response):
                if isinstance(item, Completed):
                    return item.message
        raise AssertionError("a response ends with a message or with an error")

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[StreamItem]]:
        """Entering sends the request and waits for the response's headers; leaving closes the exchange."""
        async with self._exchange(request, stream=True) as response:
            yield self._items(request, response)

    async def aclose(self) -> None:
        """Release the connections. May be called twice."""
        await self._client.close()

    @asynccontextmanager
    async def _exchange(self, request: ModelRequest, *, stream: bool) -> AsyncGenerator[httpx2.Response]:
        async with AsyncExitStack() as stack:
            response = await self._open(stack, request, stream=stream)
            yield response

    async def _open(self, stack: AsyncExitStack, request: ModelRequest, *, stream: bool) -> httpx2.Response:
        messages = chat_messages(request, self._profile)
        while True:
            extra = self._extra(request, stream=stream)
            # As extra body the messages go out as they are. As the argument, the SDK would walk through each of them
            # first: 0.12 ms of the event loop per message of the history, on every turn.
            opening = self._client.chat.completions.with_streaming_response.create(
                model=self._model, messages=[], stream=stream, extra_body={"messages": messages, **extra}
            )
            try:
                return (await stack.enter_async_context(opening)).http_response
            except openai.APIStatusError as error:
                refused = _refused_parameter(error, extra)
                if refused is None:
                    raise self._status_error(error) from None
                self._refused.add(refused)
            except (openai.APIConnectionError, *TRANSPORT_ERRORS) as error:
                raise self._transport_error(error) from error
            except (openai.OpenAIError, ValueError, TypeError) as error:
                # Nothing was sent: a key that is no header value, a tool schema that is no JSON.
                message = clean(f"The model request could not be made: {error}", self._api_key)
                raise ProviderError("bad_request", message) from None

    def _extra(self, request: ModelRequest, *, stream: bool) -> dict[str, object]:
        """All of the body but model, messages and stream: as little as possible, less what this server refused."""
        profile = self._profile
        extra: dict[str, object] = dict(profile.extra_body)
        if stream and profile.include_usage:
            extra["stream_options"] = {"include_usage": True}
        if profile.max_tokens is not None:
            extra[profile.max_tokens_field] = profile.max_tokens
        if request.tools:
            extra["tools"] = chat_tools(request.tools)
            if profile.parallel_tool_calls is not None:
                extra["parallel_tool_calls"] = profile.parallel_tool_calls
        return {name: value for name, value in extra.items() if name not in self._refused}

    def _items(self, request: ModelRequest, response: httpx2.Response) -> ChatStream:
        assembler = ChatAssembler(self._profile, self._new_id, input_estimate=_estimate(request))
        return ChatStream(_reading(response), assembler, self._transport_error)

    def _status_error(self, error: openai.APIStatusError) -> ProviderError:
        text = error.response.text
        try:
            body: object = orjson.loads(text)
        except ValueError:
            body = text
        headers = error.response.headers
        return from_status(error.status_code, body, headers, model=self._model, secret=self._api_key)

    def _transport_error(self, error: BaseException) -> ProviderError:
        """A connection that could not be made or broke. The transport's own wording, its class names are off."""
        chain = _causes(error)
        root = next((link for link in chain if isinstance(link, aiohttp.ClientError | OSError)), chain[-1])
        timed_out = isinstance(root, TimeoutError | httpx2.TimeoutException)
        what = str(root) or type(root).__name__
        host = self._client.base_url.host
        message = clean(f"The connection to the model server {host} failed: {what}", self._api_key)
        return ProviderError("timeout" if timed_out else "connection", message)


def _reading(response: httpx2.Response) -> Callable[[], Awaitable[bytes]]:
    """How the next bytes of the body are got; b"" at its end."""
    arrived: aiohttp.ClientResponse | None = response.extensions.get(RESPONSE)
    if arrived is not None and response.headers.get("content-encoding", "identity") == "identity":
        return arrived.content.readany
    body = response.aiter_bytes()
    return lambda: anext(body, b"")


def _refused_parameter(error: openai.APIStatusError, extra: dict[str, object]) -> str | None:
    """The optional parameter of this request that the server's 400 names, if it names one."""
    if error.status_code not in _PARAMETER_STATUSES:
        return None
    text = error.response.text
    return next((name for name in extra if name != "tools" and re.search(rf"\b{re.escape(name)}\b", text)), None)


def _estimate(request: ModelRequest) -> int:
    """Tokens of the request, roughly; shown only when the server names no figures."""
    texts = [request.system, *(getattr(message, "text", "") or "" for message in request.messages)]
    return sum(map(len, texts)) // _CHARS_PER_TOKEN


def _causes(error: BaseException) -> list[BaseException]:
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)
    return chain
