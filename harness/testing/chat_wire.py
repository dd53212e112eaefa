"""The OpenAI chat-completions wire as the scripted server speaks it: request checks and response bodies. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from harness.messages import JsonObject
from harness.providers.script import Call, Heard, Say, Step, Think
from harness.providers.wire import as_list, as_object, as_text
from harness.testing.wire import BadRequest, WireRequest, data_event, has_bearer, json_body

_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})
_ARGUMENT_FRAGMENT_CHARS: Final = 8
_CREATED: Final = 1_700_000_000  # fixed: equal requests get equal answers

STOP: Final = "stop"
TOOL_CALLS: Final = "tool_calls"


class ChatWire:
    """The protocol; a `Wire`."""

    path = "/v1/chat/completions"

    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        """See `Wire`."""
        return has_bearer(headers)

    def parse(self, body: bytes) -> WireRequest:
        """See `Wire`."""
        return parse_request(body)

    def answer(self, number: int, request: WireRequest) -> "Answer":
        """See `Wire`."""
        return Answer(number, request)

    def error(self, message: str, status: int, param: str | None = None) -> JsonObject:
        """See `Wire`."""
        codes = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
        kind = "invalid_request_error" if status < 500 else "server_error"
        return error_body(message, kind, codes.get(status), param)


def parse_request(body: bytes) -> WireRequest:
    """Check as strictly as the strict servers do. Raises `BadRequest`."""
    data = json_body(body)
    if not as_text(data.get("model")):
        raise BadRequest("you must provide a model parameter", "model")
    messages = [_checked(message, number) for number, message in enumerate(as_list(data.get("messages")))]
    if not messages:
        raise BadRequest("'messages' must be a non-empty array.", "messages")
    _check_calls_have_results(messages)
    options = as_object(data.get("stream_options"))
    if options is not None and not data.get("stream"):
        raise BadRequest("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    return WireRequest(
        model=as_text(data.get("model")),
        messages=messages,
        stream=data.get("stream") is True,
        include_usage=options is not None and options.get("include_usage") is True,
        heard=_heard(messages, as_list(data.get("tools"))),
        prompt_tokens=sum(len(content_text(message).split()) for message in messages),
    )


def _checked(value: object, number: int) -> JsonObject:
    message = as_object(value)
    where = f"messages[{number}]"
    if message is None or message.get("role") not in _ROLES:
        raise BadRequest(f"{where} must be an object with a known role.", where)
    if message["role"] == "tool" and not as_text(message.get("tool_call_id")):
        raise BadRequest(f"{where}: a tool message needs a tool_call_id.", where)
    for call in as_list(message.get("tool_calls")):
        function = as_object((as_object(call) or {}).get("function")) or {}
        try:
            arguments = as_object(orjson.loads(as_text(function.get("arguments"))))
        except ValueError:
            arguments = None
        if arguments is None or not as_text(function.get("name")):
            raise BadRequest(f"{where}: a tool call needs a name and a JSON object as arguments.", where)
    if message["role"] != "assistant" and not isinstance(message.get("content"), str | list):
        raise BadRequest(f"{where}: content must be a string or an array.", where)
    return message


def _check_calls_have_results(messages: Sequence[JsonObject]) -> None:
    waiting: set[str] = set()
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                raise BadRequest(f"{where}: a tool message must follow a call with the same id.", where)
            waiting.discard(as_text(message["tool_call_id"]))
            continue
        if waiting:
            raise BadRequest("An assistant message with 'tool_calls' must be followed by a result of each.", where)
        waiting = {as_text((as_object(call) or {}).get("id")) for call in as_list(message.get("tool_calls"))}
    if waiting:
        raise BadRequest("An assistant message with 'tool_calls' must be followed by a result of each.", "messages")


def content_text(message: JsonObject) -> str:
    """The text of a message whose content is a string, an array of parts, or null."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(as_text((as_object(part) or {}).get("text")) for part in as_list(content))


def _heard(messages: Sequence[JsonObject], tools: Sequence[object]) -> Heard:
    users: list[str] = []
    results: list[tuple[str, str]] = []
    names: dict[str, str] = {}
    for message in messages:
        if message["role"] == "user":
            users.append(content_text(message))
            results.clear()
        for call in as_list(message.get("tool_calls")):
            names[as_text((as_object(call) or {}).get("id"))] = _function_name(call)
        if message["role"] == "tool":
            results.append((names.get(as_text(message["tool_call_id"]), ""), content_text(message)))
    return Heard(users, results, frozenset(_function_name(tool) for tool in tools))


def _function_name(value: object) -> str:
    return as_text((as_object((as_object(value) or {}).get("function")) or {}).get("name"))


@dataclass(slots=True)
class Answer:
    """One response being written; knows what was said, so that it can close with reason and usage."""

    number: int
    request: WireRequest
    calls: int = 0
    tokens: int = 0

    def head(self) -> Iterator[bytes]:
        """The first chunk: the role."""
        yield self._chunk({"role": "assistant", "content": ""})

    def step(self, step: Say | Think | Call) -> Iterator[bytes]:
        """The chunks of one step; a call is written in several fragments, as the real server does."""
        self.tokens += 1
        match step:
            case Say(text=text):
                yield self._chunk({"content": text})
            case Think(text=text):
                yield self._chunk({"reasoning_content": text})
            case Call():
                index = self.calls
                self.calls += 1
                yield self._call_chunk(index, self._call(index, step.name, ""))
                for start in range(0, len(step.arguments), _ARGUMENT_FRAGMENT_CHARS):
                    fragment = step.arguments[start : start + _ARGUMENT_FRAGMENT_CHARS]
                    yield self._call_chunk(index, {"function": {"arguments": fragment}})

    def failure(self, message: str, status: int) -> Iterator[bytes]:
        """An error in the middle of a stream that began with 200."""
        yield data_event(error_body(message, "server_error", str(status)))

    def tail(self) -> Iterator[bytes]:
        """The end of a good answer: finish reason, usage if asked for, and the end mark."""
        yield self._chunk({}, TOOL_CALLS if self.calls else STOP)
        if self.request.include_usage:
            yield data_event(self._envelope("chat.completion.chunk", []) | {"usage": self._usage()})
        yield b"data: [DONE]\n\n"

    def whole(self, steps: Sequence[Step]) -> bytes:
        """The same answer without streaming."""
        message: dict[str, object] = {"role": "assistant", "content": None}
        said = [step.text for step in steps if isinstance(step, Say)]
        thought = [step.text for step in steps if isinstance(step, Think)]
        made = [step for step in steps if isinstance(step, Call)]
        self.calls, self.tokens = len(made), len(said) + len(thought) + len(made)
        if said:
            message["content"] = "".join(said)
        if thought:
            message["reasoning_content"] = "".join(thought)
        if made:
            message["tool_calls"] = [self._call(i, step.name, step.arguments) for i, step in enumerate(made)]
        choice: dict[str, object] = {"index": 0, "message": message, "finish_reason": TOOL_CALLS if made else STOP}
        return orjson.dumps(self._envelope("chat.completion", [choice]) | {"usage": self._usage()})

    def _call(self, index: int, name: str, arguments: str) -> dict[str, object]:
        # The number of the response makes the id differ from turn to turn, as real ids do.
        function = {"name": name, "arguments": arguments}
        return {"id": f"call_{self.number}_{index}", "type": "function", "function": function}

    def _call_chunk(self, index: int, call: Mapping[str, object]) -> bytes:
        return self._chunk({"tool_calls": [{"index": index, **call}]})

    def _chunk(self, delta: Mapping[str, object], finish_reason: str | None = None) -> bytes:
        choice: dict[str, object] = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return data_event(self._envelope("chat.completion.chunk", [choice]))

    def _envelope(self, kind: str, choices: list[dict[str, object]]) -> dict[str, object]:
        return {
            "id": f"chatcmpl-{self.number}",
            "object": kind,
            "created": _CREATED,
            "model": self.request.model,
            "choices": choices,
        }

    def _usage(self) -> dict[str, int]:
        prompt = self.request.prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": self.tokens, "total_tokens": prompt + self.tokens}


def error_body(message: str, kind: str, code: str | None = None, param: str | None = None) -> dict[str, object]:
    """An error in the API's shape."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
