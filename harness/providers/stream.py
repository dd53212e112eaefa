"""Where the bytes of one response become items: the reader of events and the assembler of chunks, put together.

Every wire protocol is read here; what differs between them is the assembler.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol, Self

import aiohttp
import httpx2
import orjson

from harness.errors import ProviderError
from harness.messages import AssistantMessage, JsonObject
from harness.providers.base import Completed, StreamItem
from harness.providers.sse import SseReader
from harness.providers.wire import as_object

TRANSPORT_ERRORS: Final = (httpx2.HTTPError, httpx2.StreamError, aiohttp.ClientError, OSError, TimeoutError)
"""What reading a response raises when the connection breaks."""
_DRAIN_S: Final = 0.1


class Assembler(Protocol):
    """Folds the chunks of one response into items and one final message. Pure, one per wire protocol.

    Feed it each parsed chunk, show what `feed` returns, and stop when `error` is set or `is_over`; at the end of the
    stream call `flush` once, then `finish`.
    """

    error: ProviderError | None
    """The failure that a chunk reported."""

    @property
    def is_over(self) -> bool:
        """The chunk that ends the response has come."""
        ...

    def feed(self, chunk: JsonObject) -> list[StreamItem]:
        """What this chunk adds for the reader."""
        ...

    def expect_surrogates(self) -> None:
        """From here on strings may hold halves of surrogate pairs."""
        ...

    def flush(self) -> list[StreamItem]:
        """What was held back because it might have been the beginning of a tag."""
        ...

    def finish(self, *, done: bool) -> AssistantMessage:
        """The message. `done`: the end mark of event streams was seen, or the body was whole. Raises ProviderError."""
        ...


class ResponseStream:
    """The items of one response, `Completed` last; raises `ProviderError` after the items that came before it.

    `read` gives the next bytes of the body as they arrive, b"" at its end; `broken` makes an error of what it raises.
    `url_setting` is named when a web page comes instead of an answer.

    One object with a buffer, where generators within generators would say the same: those would be entered and left
    again one by one for each piece of text.
    """

    __slots__ = ("_assembler", "_broken", "_error", "_items", "_over", "_read", "_reader", "_url_setting")

    def __init__(
        self,
        read: Callable[[], Awaitable[bytes]],
        assembler: Assembler,
        broken: Callable[[BaseException], ProviderError],
        *,
        url_setting: str,
    ) -> None:
        self._read = read
        self._assembler = assembler
        self._broken = broken
        self._url_setting = url_setting
        self._reader = SseReader()
        self._items: deque[StreamItem] = deque()
        self._error: ProviderError | None = None
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamItem:
        items = self._items
        while not items:
            if self._over:
                await self._end()
            try:
                chunk = await self._read()
            except TRANSPORT_ERRORS as error:
                self._over = True
                raise self._broken(error) from error
            self._take(chunk)
        return items.popleft()

    def _take(self, chunk: bytes) -> None:
        """Read one chunk of the body. A failure waits until the items before it are taken."""
        reader, assembler = self._reader, self._assembler
        try:
            for payload in reader.feed(chunk):
                self._items.extend(assembler.feed(parse_chunk(payload, assembler)))
                if assembler.error is not None:
                    raise assembler.error
            ended = reader.done or assembler.is_over
            if ended or not chunk:
                self._over = True
                # What follows an end mark, perhaps in pieces, is of no interest.
                last = assembler.flush() if ended else close_stream(reader, assembler, url_setting=self._url_setting)
                self._items.extend(last)
                self._items.append(Completed(assembler.finish(done=reader.done or reader.body is not None)))
        except ProviderError as error:
            self._over = True
            self._error = error

    async def _end(self) -> None:
        """Everything is taken: raise what comes after the last item."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._reader.done or self._assembler.is_over:
            # Read past the end mark to the end of the response, so that the connection can be used again.
            with suppress(TimeoutError, *TRANSPORT_ERRORS):
                async with asyncio.timeout(_DRAIN_S):
                    while await self._read():
                        pass
        raise StopAsyncIteration


def parse_chunk(payload: bytes | bytearray, assembler: Assembler) -> JsonObject:
    """One payload as a chunk. Raises `ProviderError` (protocol) for what is no JSON object."""
    try:
        value: object = orjson.loads(payload)
    except ValueError:
        try:
            # Slower and laxer: it lets half a surrogate pair pass, which some servers cut in two.
            value = json.loads(payload)
        except (ValueError, RecursionError):
            raise ProviderError("protocol", "The model server sent an event that is not valid JSON.") from None
        assembler.expect_surrogates()
    chunk = as_object(value)
    if chunk is None:
        raise ProviderError("protocol", "The model server sent an event that is not a JSON object.")
    return chunk


def close_stream(reader: SseReader, assembler: Assembler, *, url_setting: str) -> list[StreamItem]:
    """What the end of the stream sets free: a last event, a whole JSON body, text that was held back."""
    payloads: list[bytes | bytearray] = list(reader.close())
    if reader.body is not None:
        if reader.body.lstrip().startswith(b"<"):
            raise ProviderError("empty", f"The model server answered with a web page. Check {url_setting}.")
        payloads = [reader.body]
    items: list[StreamItem] = []
    for payload in payloads:
        items.extend(assembler.feed(parse_chunk(payload, assembler)))
    return items + assembler.flush()
