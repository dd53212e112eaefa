"""Any OpenAI-compatible server, over chat completions.

The SDK builds and sends the request and gives typed errors; the response body is read here, byte by byte, because
the SDK's typed chunks cost several times as much and cannot tell a finished stream from one that broke off.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final, cast

import aiohttp
import httpx2
import openai
import orjson

from harness.errors import ProviderError
from harness.messages import AssistantMessage
from harness.providers.assembler import ChatAssembler
from harness.providers.base import Completed, ModelRequest, StreamItem
from harness.providers.chat_messages import chat_messages, chat_tools
from harness.providers.chat_stream import close_stream, parse_chunk
from harness.providers.failures import clean, from_status
from harness.providers.profiles import ProviderProfile, profile_for
from harness.providers.sse import SseReader
from harness.providers.wire import new_call_id

DEFAULT_BASE_URL: Final = "https://api.openai.com/v1"
_CONNECT_TIMEOUT_S: Final = 10.0
_DRAIN_S: Final = 0.1
_CHARS_PER_TOKEN: Final = 4
_TRANSPORT_ERRORS: Final = (httpx2.HTTPError, httpx2.StreamError, aiohttp.ClientError, OSError, TimeoutError)
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
            http_client=openai.DefaultAioHttpClient(timeout=timeout),
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
            items = self._items(request, response)
            try:
                yield items
            finally:
                await items.aclose()

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
            except (openai.APIConnectionError, *_TRANSPORT_ERRORS) as error:
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

    async def _items(self, request: ModelRequest, response: httpx2.Response) -> AsyncGenerator[StreamItem]:
        reader = SseReader()
        assembler = ChatAssembler(self._profile, self._new_id, input_estimate=_estimate(request))
        body = _body(response)
        try:
            async for chunk in body:
                for payload in reader.feed(chunk):
                    for item in assembler.feed(parse_chunk(payload, assembler)):
                        yield item
                    if assembler.error is not None:
                        raise assembler.error
                if reader.done:
                    break
        except _TRANSPORT_ERRORS as error:
            raise self._transport_error(error) from error
        for item in close_stream(reader, assembler):
            yield item
        message = assembler.finish(done=reader.done or reader.body is not None)
        yield Completed(message)
        if reader.done:
            await _drain(body)

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


def _body(response: httpx2.Response) -> AsyncIterator[bytes]:
    # The stream itself is the cheapest reading: no layer that decodes, counts and re-cuts each chunk.
    if response.headers.get("content-encoding", "identity") == "identity":
        return aiter(cast("httpx2.AsyncByteStream", response.stream))
    return response.aiter_bytes()


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read past the end mark to the end of the response, so that the connection can be used again."""
    with suppress(TimeoutError, *_TRANSPORT_ERRORS):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in body:
                pass


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
