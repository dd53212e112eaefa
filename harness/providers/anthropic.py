"""Anthropic, and any server that speaks its Messages API."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import anthropic
import httpx2

from harness.messages import AssistantMessage
from harness.providers.anthropic_assembler import AnthropicAssembler
from harness.providers.anthropic_messages import anthropic_body
from harness.providers.base import Completed, ModelRequest, StreamItem
from harness.providers.exchange import RAW_BODY, TIMEOUT, Exchange, RawResponse, SdkErrors
from harness.providers.failures import ANTHROPIC_SETTINGS
from harness.providers.profiles import ProviderProfile, profile_for
from harness.providers.transport import ModelHttpClient
from harness.providers.wire import new_call_id

DEFAULT_BASE_URL: Final = "https://api.anthropic.com"
_MAX_TOKENS: Final = 8192
"""The limit on an answer, which this API wants in every request, where the profile has none."""


class AnthropicProvider:
    """A model behind the Messages API. Implements `ModelProvider` and `StreamingProvider`.

    `base_url` is the part before /v1/messages. `profile`: how this server departs from the common wire; by the host
    when not given. `new_id` makes our own tool call ids. There is no read timeout: the engine watches for silence.

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
        self._client = _Client(api_key, base_url)
        errors = SdkErrors(anthropic.AnthropicError, anthropic.APIConnectionError, _response_of)
        self._exchange = Exchange(
            errors, host=self._client.base_url.host, model=model, secret=api_key, settings=ANTHROPIC_SETTINGS
        )

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
        body = {"model": self._model, **anthropic_body(request, self._profile)}
        max_tokens = self._profile.max_tokens or _MAX_TOKENS

        def send(optional: dict[str, object]) -> AbstractAsyncContextManager[RawResponse]:
            # As extra body the messages go out as they are; as the argument, the SDK would look through each of them.
            # And about the model it would warn in the process of whoever uses us, for some with an exception.
            return self._client.messages.with_streaming_response.create(
                model="", max_tokens=max_tokens, messages=[], stream=stream, extra_body=body | optional
            )

        return self._exchange.open(send, self._optional(request))

    def _optional(self, request: ModelRequest) -> dict[str, object]:
        """All of the body that a server may refuse and still answer: as little as possible."""
        profile = self._profile
        optional: dict[str, object] = dict(profile.extra_body)
        if request.tools and profile.parallel_tool_calls is not None:
            one_at_a_time = not profile.parallel_tool_calls
            optional["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": one_at_a_time}
        return optional

    def _items(self, request: ModelRequest, response: httpx2.Response) -> AsyncIterator[StreamItem]:
        assembler = AnthropicAssembler(
            self._profile, self._new_id, input_estimate=request.estimated_tokens, tools=request.tools
        )
        return self._exchange.items(response, assembler)


class _Client(anthropic.AsyncAnthropic):
    """The SDK's client with what it is given and nothing else.

    By itself it would add headers, a key among them, and the contents of traces, as ANTHROPIC_* variables tell it.
    """

    def __init__(self, api_key: str, base_url: str) -> None:
        super().__init__(
            api_key=api_key,  # given, even empty, so that no other credentials are looked for
            base_url=base_url,
            max_retries=0,  # the engine retries, visibly
            timeout=TIMEOUT,  # no default, so that the SDK does not refuse long answers without streaming
            http_client=ModelHttpClient(TIMEOUT),
            open_telemetry=False,
        )
        self._custom_headers = RAW_BODY


def _response_of(error: Exception) -> httpx2.Response | None:
    return error.response if isinstance(error, anthropic.APIStatusError) else None
