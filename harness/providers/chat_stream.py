"""Where the reader of bytes and the assembler of chunks meet. Pure."""

import json

import orjson

from harness.errors import ProviderError
from harness.messages import JsonObject
from harness.providers.assembler import ChatAssembler
from harness.providers.base import StreamItem
from harness.providers.sse import SseReader
from harness.providers.wire import as_object


def parse_chunk(payload: bytes | bytearray, assembler: ChatAssembler) -> JsonObject:
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


def close_stream(reader: SseReader, assembler: ChatAssembler) -> list[StreamItem]:
    """What the end of the stream sets free: a last event, a whole JSON body, text that was held back."""
    payloads: list[bytes | bytearray] = list(reader.close())
    if reader.body is not None:
        if reader.body.lstrip().startswith(b"<"):
            raise ProviderError("empty", "The model server answered with a web page. Check OPENAI_BASE_URL.")
        payloads = [reader.body]
    items: list[StreamItem] = []
    for payload in payloads:
        items.extend(assembler.feed(parse_chunk(payload, assembler)))
    return items + assembler.flush()
