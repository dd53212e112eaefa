"""Anthropic's Messages API as the scripted server speaks it: request checks and response bodies. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from harness.messages import JsonObject
from harness.providers.script import Call, Say, Step, Think
from harness.providers.wire import parse_arguments
from harness.testing.anthropic_requests import parse_request, signature_of
from harness.testing.wire import WireRequest, data_event, has_bearer

_ARGUMENT_FRAGMENT_CHARS: Final = 8
_ERROR_TYPES: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicWire:
    """The protocol; a `Wire`."""

    path = "/v1/messages"

    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        """See `Wire`."""
        return bool(headers.get("x-api-key", "").strip()) or has_bearer(headers)

    def parse(self, body: bytes) -> WireRequest:
        """See `Wire`."""
        return parse_request(body)

    def answer(self, number: int, request: WireRequest) -> "AnthropicAnswer":
        """See `Wire`."""
        return AnthropicAnswer(number, request)

    def error(self, message: str, status: int, param: str | None = None) -> JsonObject:
        """See `Wire`. The API names a field at the beginning of the message, if it names one."""
        del param
        fallback = "api_error" if status >= 500 else "invalid_request_error"
        error = {"type": _ERROR_TYPES.get(status, fallback), "message": message}
        return {"type": "error", "error": error, "request_id": f"req_{status}"}


@dataclass(slots=True)
class AnthropicAnswer:
    """One response being written, block by block; knows which block is open. A `WireAnswer`."""

    number: int
    request: WireRequest
    blocks: int = 0
    calls: int = 0
    tokens: int = 0
    kind: str = ""
    """The type of the open block, "" when none is."""
    thought: str = ""

    def head(self) -> Iterator[bytes]:
        """The message without its content."""
        usage = {**self._usage(), "output_tokens": 1}
        message = {**self._message([]), "stop_reason": None, "usage": usage}
        yield _event("message_start", message=message)
        yield _event("ping")

    def step(self, step: Say | Think | Call) -> Iterator[bytes]:
        """The events of one step; text goes on in its block, each call is a block of its own, written in fragments."""
        self.tokens += 1
        match step:
            case Say(text=text):
                yield from self._opened("text", {"type": "text", "text": ""})
                yield self._delta({"type": "text_delta", "text": text})
            case Think(text=text):
                yield from self._opened("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                self.thought += text
                yield self._delta({"type": "thinking_delta", "thinking": text})
            case Call():
                yield from self._closed()
                yield from self._opened("tool_use", self._call(step.name, {}))
                yield self._delta({"type": "input_json_delta", "partial_json": ""})
                for start in range(0, len(step.arguments), _ARGUMENT_FRAGMENT_CHARS):
                    fragment = step.arguments[start : start + _ARGUMENT_FRAGMENT_CHARS]
                    yield self._delta({"type": "input_json_delta", "partial_json": fragment})

    def failure(self, message: str, status: int) -> Iterator[bytes]:
        """An error in the middle of a stream that began with 200."""
        yield data_event(AnthropicWire().error(message, status), "error")

    def tail(self) -> Iterator[bytes]:
        """The end of a good answer: the last block's, the reason with the figures, and the end mark."""
        yield from self._closed()
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage={"output_tokens": self.tokens})
        yield _event("message_stop")

    def whole(self, steps: Sequence[Step]) -> bytes:
        """The same answer without streaming."""
        content: list[dict[str, object]] = []
        said = "".join(step.text for step in steps if isinstance(step, Say))
        thought = "".join(step.text for step in steps if isinstance(step, Think))
        if thought:
            content.append({"type": "thinking", "thinking": thought, "signature": signature_of(thought)})
        if said:
            content.append({"type": "text", "text": said})
        # Broken arguments cannot come this way: the input is an object here.
        made = [step for step in steps if isinstance(step, Call)]
        content += [self._call(step.name, parse_arguments(step.arguments) or {}) for step in made]
        self.tokens = sum(isinstance(step, Say | Think | Call) for step in steps)
        message = {**self._message(content), "stop_reason": self._stop_reason(), "usage": self._usage()}
        return orjson.dumps(message)

    def _opened(self, kind: str, block: dict[str, object]) -> Iterator[bytes]:
        if self.kind == kind:
            return
        yield from self._closed()
        self.kind = kind
        yield _event("content_block_start", index=self.blocks, content_block=block)

    def _closed(self) -> Iterator[bytes]:
        if not self.kind:
            return
        if self.kind == "thinking":
            yield self._delta({"type": "signature_delta", "signature": signature_of(self.thought)})
            self.thought = ""
        yield _event("content_block_stop", index=self.blocks)
        self.kind = ""
        self.blocks += 1

    def _delta(self, delta: dict[str, object]) -> bytes:
        return _event("content_block_delta", index=self.blocks, delta=delta)

    def _call(self, name: str, arguments: JsonObject) -> dict[str, object]:
        # The number of the response makes the id differ from turn to turn, as real ids do.
        call_id = f"toolu_{self.number}_{self.calls}"
        self.calls += 1
        return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}

    def _message(self, content: list[dict[str, object]]) -> dict[str, object]:
        return {
            "id": f"msg_{self.number}",
            "type": "message",
            "role": "assistant",
            "model": self.request.model,
            "content": content,
            "stop_sequence": None,
        }

    def _stop_reason(self) -> str:
        return "tool_use" if self.calls else "end_turn"

    def _usage(self) -> dict[str, int]:
        return {
            "input_tokens": self.request.prompt_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": self.tokens,
        }


def _event(kind: str, **fields: object) -> bytes:
    return data_event({"type": kind, **fields}, kind)
