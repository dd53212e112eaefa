"""What the model server of the bench writes for each wire protocol: events as the vendors' servers write them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BenchWire:
    """One protocol. `path`: where requests go. The functions give events: the beginning, one delta, the end."""

    path: str
    question: Callable[[Mapping[str, Any]], str]
    head: Callable[[int, Mapping[str, Any]], Iterator[bytes]]
    delta: Callable[[int, str, int, Mapping[str, Any]], bytes]
    tail: Callable[[int, Sequence[str], Mapping[str, Any]], Iterator[bytes]]


def _data(data: object, name: str = "") -> bytes:
    return (
        (f"event: {name}\n".encode() if name else b"")
        + b"data: "
        + json.dumps(data, ensure_ascii=False).encode()
        + b"\n\n"
    )


def _chat_chunk(number: int, body: Mapping[str, Any], choices: list[Any], usage: object = None) -> bytes:
    data = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "bench",
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
        "choices": choices,
    }
    return _data(data | {"usage": usage} if body.get("stream_options") else data)


def _choice(delta: dict[str, object], finish_reason: str | None = None) -> list[Any]:
    return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]


def _chat_head(number: int, body: Mapping[str, Any]) -> Iterator[bytes]:
    yield _chat_chunk(number, body, _choice({"role": "assistant", "content": "", "refusal": None}))


def _chat_delta(number: int, piece: str, _sequence: int, body: Mapping[str, Any]) -> bytes:
    return _chat_chunk(number, body, _choice({"content": piece}))


def _chat_tail(number: int, pieces: Sequence[str], body: Mapping[str, Any]) -> Iterator[bytes]:
    yield _chat_chunk(number, body, _choice({}, "stop"))
    if body.get("stream_options"):
        tokens = len(pieces)
        usage = {"prompt_tokens": 8, "completion_tokens": tokens, "total_tokens": 8 + tokens}
        yield _chat_chunk(number, body, [], usage)
    yield b"data: [DONE]\n\n"


def _response(number: int, status: str, output: list[Any], usage: object) -> dict[str, Any]:
    return {
        "id": f"resp_{number}", "object": "response", "created_at": 1_700_000_000, "status": status, "error": None,
        "incomplete_details": None, "instructions": None, "model": "bench", "output": output, "tool_choice": "auto",
        "parallel_tool_calls": True, "tools": [], "temperature": 1.0, "top_p": 1.0, "metadata": {}, "usage": usage,
    }  # fmt: skip


def _item(number: int, status: str, text: str | None) -> dict[str, Any]:
    content = [] if text is None else [_part(text)]
    return {"id": f"msg_{number}", "type": "message", "status": status, "role": "assistant", "content": content}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _named(kind: str, sequence: int, **fields: object) -> bytes:
    return _data({"type": kind, "sequence_number": sequence, **fields}, kind)


def _responses_head(number: int, _body: Mapping[str, Any]) -> Iterator[bytes]:
    begun = _response(number, "in_progress", [], None)
    yield _named("response.created", 0, response=begun)
    yield _named("response.in_progress", 1, response=begun)
    yield _named("response.output_item.added", 2, output_index=0, item=_item(number, "in_progress", None))
    place = {"item_id": f"msg_{number}", "output_index": 0, "content_index": 0}
    yield _named("response.content_part.added", 3, **place, part=_part(""))


def _responses_delta(number: int, piece: str, sequence: int, _body: Mapping[str, Any]) -> bytes:
    place = {"item_id": f"msg_{number}", "output_index": 0, "content_index": 0}
    return _named("response.output_text.delta", 4 + sequence, **place, delta=piece, logprobs=[], obfuscation="a1B2c3D4")


def _responses_tail(number: int, pieces: Sequence[str], _body: Mapping[str, Any]) -> Iterator[bytes]:
    text, at = "".join(pieces), 4 + len(pieces)
    place = {"item_id": f"msg_{number}", "output_index": 0, "content_index": 0}
    item = _item(number, "completed", text)
    usage = {
        "input_tokens": 8, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": len(pieces),
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 8 + len(pieces),
    }  # fmt: skip
    yield _named("response.output_text.done", at, **place, text=text, logprobs=[])
    yield _named("response.content_part.done", at + 1, **place, part=_part(text))
    yield _named("response.output_item.done", at + 2, output_index=0, item=item)
    yield _named("response.completed", at + 3, response=_response(number, "completed", [item], usage))


def _anthropic(kind: str, **fields: object) -> bytes:
    return _data({"type": kind, **fields}, kind)


def _anthropic_head(number: int, _body: Mapping[str, Any]) -> Iterator[bytes]:
    usage = {"input_tokens": 8, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    message = {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "model": "bench", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    yield _anthropic("message_start", message=message)
    yield _anthropic("content_block_start", index=0, content_block={"type": "text", "text": ""})
    yield _anthropic("ping")


def _anthropic_delta(_number: int, piece: str, _sequence: int, _body: Mapping[str, Any]) -> bytes:
    return _anthropic("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})


def _anthropic_tail(_number: int, pieces: Sequence[str], _body: Mapping[str, Any]) -> Iterator[bytes]:
    yield _anthropic("content_block_stop", index=0)
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    yield _anthropic("message_delta", delta=delta, usage={"output_tokens": len(pieces)})
    yield _anthropic("message_stop")


def _text_of(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


WIRES = {
    "chat": BenchWire(
        "/v1/chat/completions", lambda body: _text_of(body["messages"][-1]), _chat_head, _chat_delta, _chat_tail
    ),
    "responses": BenchWire(
        "/v1/responses", lambda body: _question_of(body["input"]), _responses_head, _responses_delta, _responses_tail
    ),
    "anthropic": BenchWire(
        "/v1/messages", lambda body: _text_of(body["messages"][-1]), _anthropic_head, _anthropic_delta, _anthropic_tail
    ),
}
"""By the name of the protocol."""


def _question_of(items: Any) -> str:
    return items if isinstance(items, str) else _text_of(items[-1])
