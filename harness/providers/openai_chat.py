"""Any OpenAI-compatible server, over chat completions."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import httpx2
import openai

from harness.messages import AssistantMessage
from harness.providers.base import Completed, ModelRequest, StreamItem
from harness.providers.chat_assembler import ChatAssembler
from harness.providers.chat_messages import chat_messages, chat_tools
from harness.providers.exchange import RAW_BODY, TIMEOUT, Exchange, RawResponse, SdkErrors
from harness.providers.failures import OPENAI_SETTINGS
from harness.providers.profiles import ProviderProfile, profile_for
from harness.providers.transport import ModelHttpClient
from harness.providers.wire import new_call_id

DEFAULT_BASE_URL: Final = "https://api.openai.com/v1"


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
        self._profile = profile if profile is not None else profile_for(base_url)
        self._new_id = new_id
        self._client = openai_client(api_key, base_url)
        self._exchange = openai_exchange(self._client, model)

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model

    async def generate(self, request: ModelRequest) -> AssistantMessage:
        """The whole answer at once, asked for without streaming."""
        async with self._opened(request, stream=False) as response:
            async for item in self._items(request, response):
                if isinstance(item, Completed):
                    return item.message
        raise AssertionError("a response ends with a message or with an error")

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[StreamItem]]:
        """Entering sends the request and waits for the response's headers; leaving closes the exchange."""
        async with self._opened(request, stream=True) as response:
            yield self._items(request, response)

    async def aclose(self) -> None:
        """Release the connections. May be called twice."""
        await self._client.close()

    def _opened(self, request: ModelRequest, *, stream: bool) -> AbstractAsyncContextManager[httpx2.Response]:
        body: dict[str, object] = {"messages": chat_messages(request, self._profile)}
        if request.tools:
            body["tools"] = chat_tools(request.tools)

        def send(optional: dict[str, object]) -> AbstractAsyncContextManager[RawResponse]:
            # As extra body the messages go out as they are. As the argument, the SDK would walk through each of them
            # first: 0.12 ms of the event loop per message of the history, on every turn.
            return self._client.chat.completions.with_streaming_response.create(
                model=self._model, messages=[], stream=stream, extra_body=body | optional
            )

        return self._exchange.open(send, self._optional(request, stream=stream))

    def _optional(self, request: ModelRequest, *, stream: bool) -> dict[str, object]:
        """All of the body that a server may refuse and still answer: as little as possible."""
        profile = self._profile
        optional: dict[str, object] = dict(profile.extra_body)
        if stream and profile.include_usage:
            optional["stream_options"] = {"include_usage": True}
        if profile.max_tokens is not None:
            optional[profile.max_tokens_field] = profile.max_tokens
        if request.tools and profile.parallel_tool_calls is not None:
            optional["parallel_tool_calls"] = profile.parallel_tool_calls
        return optional

    def _items(self, request: ModelRequest, response: httpx2.Response) -> AsyncIterator[StreamItem]:
        assembler = ChatAssembler(
            self._profile, self._new_id, input_estimate=request.estimated_tokens, tools=request.tools
        )
        return self._exchange.items(response, assembler)


def openai_client(api_key: str, base_url: str) -> openai.AsyncOpenAI:
    """The SDK's client as all protocols of this vendor use it."""
    return openai.AsyncOpenAI(
        api_key=api_key,
        base_url=base_url,
        max_retries=0,  # the engine retries, visibly
        timeout=TIMEOUT,
        http_client=ModelHttpClient(TIMEOUT),
        default_headers=RAW_BODY,
    )


def openai_exchange(client: openai.AsyncOpenAI, model: str) -> Exchange:
    """What sends its requests."""
    errors = SdkErrors(openai.OpenAIError, openai.APIConnectionError, _response_of)
    return Exchange(errors, host=client.base_url.host, model=model, secret=client.api_key, settings=OPENAI_SETTINGS)


def _response_of(error: Exception) -> httpx2.Response | None:
    return error.response if isinstance(error, openai.APIStatusError) else None
