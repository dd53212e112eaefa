"""The OpenAI Responses API over HTTP: the provider for `/responses`."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx2

from harness.messages import AssistantMessage
from harness.providers.base import Completed, ModelRequest, StreamItem
from harness.providers.exchange import RawResponse
from harness.providers.openai_chat import DEFAULT_BASE_URL, openai_client, openai_exchange
from harness.providers.profiles import ProviderProfile, profile_for
from harness.providers.request_parts import whole
from harness.providers.responses_assembler import ResponsesAssembler
from harness.providers.responses_input import responses_input, responses_tools
from harness.providers.wire import new_call_id


class OpenAIResponsesProvider:
    """A model behind an endpoint of the Responses API. Implements `ModelProvider` and `StreamingProvider`.

    `base_url` usually ends in /v1. `profile`: how this server departs from the common wire; by the host when not
    given. `new_id` makes our own tool call ids. There is no read timeout: the engine watches for silence.

    The server is asked to keep nothing: each request carries the whole conversation. Optional parameters that this
    server refuses by name are left out from then on, for the life of this object.
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
        body: dict[str, object] = {"input": responses_input(request, self._profile)}
        if request.system:
            body["instructions"] = whole(request.system)
        if request.tools:
            body["tools"] = responses_tools(request.tools)

        def send(optional: dict[str, object]) -> AbstractAsyncContextManager[RawResponse]:
            # As extra body the items go out as they are; as the argument the SDK would walk through each of them.
            return self._client.responses.with_streaming_response.create(
                model=self._model, stream=stream, extra_body=body | optional
            )

        return self._exchange.open(send, self._optional(request))

    def _optional(self, request: ModelRequest) -> dict[str, object]:
        """All of the body that a server may refuse and still answer."""
        profile = self._profile
        optional: dict[str, object] = dict(profile.extra_body)
        # What the server does not keep it hands out sealed, to be sent back within the turn.
        optional |= {"store": False, "include": ["reasoning.encrypted_content"]}
        if profile.max_tokens is not None:
            optional["max_output_tokens"] = profile.max_tokens
        if request.tools and profile.parallel_tool_calls is not None:
            optional["parallel_tool_calls"] = profile.parallel_tool_calls
        return optional

    def _items(self, request: ModelRequest, response: httpx2.Response) -> AsyncIterator[StreamItem]:
        assembler = ResponsesAssembler(
            self._profile, self._new_id, input_estimate=request.estimated_tokens, tools=request.tools
        )
        return self._exchange.items(response, assembler)
