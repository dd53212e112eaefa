"""The OpenAI Responses wire as the scripted server speaks it: request checks and response bodies. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from harness.messages import JsonObject
from harness.providers.script import Call, Heard, Say, Step, Think
from harness.providers.wire import as_list, as_object, as_text
from harness.testing.wire import BadRequest, WireRequest, data_event, has_bearer, json_body

# What a request may hold beside the conversation, and what each is in JSON.
_PARAMETERS: Final[Mapping[type, str]] = {
    bool: "background parallel_tool_calls store stream",
    int: "max_output_tokens max_tool_calls top_logprobs",
    dict: "metadata prompt reasoning stream_options text",
    str: "instructions model previous_response_id prompt_cache_key safety_identifier service_tier truncation user",
    list: "include tools",
    object: "conversation input temperature tool_choice top_p",
}
_TYPES: Final = {name: kind for kind, names in _PARAMETERS.items() for name in names.split()}
_INCLUDABLE: Final = ("reasoning.encrypted_content", "message.output_text.logprobs")
_ROLES: Final = ("assistant", "system", "developer", "user")
# The fields of each input item: (required, optional).
_ITEM_FIELDS: Final[Mapping[str, tuple[tuple[str, ...], frozenset[str]]]] = {
    "message": (("role", "content"), frozenset({"type", "id", "status", "phase"})),
    "function_call": (("call_id", "name", "arguments"), frozenset({"type", "id", "status"})),
    "function_call_output": (("call_id", "output"), frozenset({"type", "id", "status"})),
    "reasoning": (("id", "summary"), frozenset({"type", "encrypted_content", "content"})),
}
_ID_PREFIXES: Final = {"message": "msg", "function_call": "fc", "function_call_output": "fc", "reasoning": "rs"}
_MAX_CALL_ID_CHARS: Final = 64
_MIN_OUTPUT_TOKENS: Final = 16
_ARGUMENT_FRAGMENT_CHARS: Final = 8
_CREATED: Final = 1_700_000_000  # fixed: equal requests get equal answers
_CODES: Final = {401: "invalid_api_key", 429: "rate_limit_exceeded"}


class ResponsesWire:
    """The protocol; a `Wire`. It keeps no responses: what a request refers to must be in its input."""

    path = "/v1/responses"

    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        """See `Wire`."""
        return has_bearer(headers)

    def parse(self, body: bytes) -> WireRequest:
        """See `Wire`."""
        return _parse(json_body(body))

    def answer(self, number: int, request: WireRequest) -> "ResponsesAnswer":
        """See `Wire`."""
        return ResponsesAnswer(number, request)

    def error(self, message: str, status: int, param: str | None = None) -> JsonObject:
        """See `Wire`."""
        kind = "invalid_request_error" if status < 500 else "server_error"
        return {"error": {"message": message, "type": kind, "param": param, "code": _CODES.get(status)}}


def _parse(data: JsonObject) -> WireRequest:
    _check_parameters(data)
    given = data.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else as_list(given)
    if not items:
        raise BadRequest("Missing required parameter: 'input'.", "input")
    checked = [_checked(value, f"input[{number}]") for number, value in enumerate(items)]
    _check_order(checked)
    tools = [_tool_name(value, f"tools[{number}]") for number, value in enumerate(as_list(data.get("tools")))]
    words = sum(len(_item_text(item).split()) for item in checked)
    return WireRequest(
        model=as_text(data.get("model")),
        messages=checked,
        stream=data.get("stream") is True,
        heard=_heard(checked, tools),
        prompt_tokens=words + len(as_text(data.get("instructions")).split()),
    )


def _check_parameters(data: JsonObject) -> None:
    for name, value in data.items():
        if name not in _TYPES:
            raise BadRequest(f"Unknown parameter: '{name}'.", name)
        if value is not None and not isinstance(value, _TYPES[name]):
            raise BadRequest(f"Invalid type for '{name}'.", name)
    if not data.get("model"):
        raise BadRequest("Missing required parameter: 'model'.", "model")
    for value in as_list(data.get("include")):
        if value not in _INCLUDABLE:
            raise BadRequest(f"Invalid value: {value!r}. Supported values are: {', '.join(_INCLUDABLE)}.", "include")
    limit = data.get("max_output_tokens")
    if limit is not None and limit < _MIN_OUTPUT_TOKENS:
        raise BadRequest(
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16.", "max_output_tokens"
        )
    if data.get("previous_response_id") or data.get("conversation"):
        raise BadRequest("Previous response not found.", "previous_response_id")


def _tool_name(value: object, where: str) -> str:
    tool = as_object(value) or {}
    if tool.get("type") != "function":
        raise BadRequest(f"Invalid value for '{where}.type': only 'function' is supported here.", where)
    for name, expected in (("name", str), ("parameters", dict), ("strict", bool)):
        if name not in tool:
            raise BadRequest(f"Missing required parameter: '{where}.{name}'.", f"{where}.{name}")
        if not isinstance(tool[name], expected):
            raise BadRequest(f"Invalid type for '{where}.{name}'.", f"{where}.{name}")
    for name in tool:
        if name not in {"type", "name", "description", "parameters", "strict"}:
            raise BadRequest(f"Unknown parameter: '{where}.{name}'.", f"{where}.{name}")
    return as_text(tool["name"])


def _checked(value: object, where: str) -> JsonObject:
    item = as_object(value)
    if item is None:
        raise BadRequest(f"Invalid type for '{where}': expected an object.", where)
    kind = as_text(item.get("type", "message"))
    if kind not in _ITEM_FIELDS:
        raise BadRequest(f"Invalid value: {kind!r}. Supported values are: {', '.join(_ITEM_FIELDS)}.", f"{where}.type")
    required, optional = _ITEM_FIELDS[kind]
    for name in required:
        if item.get(name) is None:
            raise BadRequest(f"Missing required parameter: '{where}.{name}'.", f"{where}.{name}")
    for name in item:
        if name not in required and name not in optional:
            raise BadRequest(f"Unknown parameter: '{where}.{name}'.", f"{where}.{name}")
    prefix = _ID_PREFIXES[kind]
    if "id" in item and not as_text(item["id"]).startswith(prefix):
        raise BadRequest(f"Invalid '{where}.id': expected an ID that begins with '{prefix}'.", f"{where}.id")
    match kind:
        case "message":
            _check_message(item, where)
        case "reasoning":
            _check_reasoning(item, where)
        case _:
            _check_call(item, where)
    return item


def _check_message(item: JsonObject, where: str) -> None:
    if item["role"] not in _ROLES:
        raise BadRequest(
            f"Invalid value: {item['role']!r}. Supported values are: {', '.join(_ROLES)}.", f"{where}.role"
        )
    parts = as_list(item["content"])
    if not parts and not isinstance(item["content"], str):
        raise BadRequest(f"Invalid type for '{where}.content'.", f"{where}.content")
    wanted = {"output_text", "refusal"} if item["role"] == "assistant" else {"input_text", "input_image", "input_file"}
    for part in parts:
        if (as_object(part) or {}).get("type") not in wanted:
            raise BadRequest(f"Invalid value for the type of a part: expected {sorted(wanted)}.", f"{where}.content")


def _check_call(item: JsonObject, where: str) -> None:
    call_id = as_text(item["call_id"])
    if not 0 < len(call_id) <= _MAX_CALL_ID_CHARS:
        raise BadRequest(f"Invalid '{where}.call_id': expected 1 to {_MAX_CALL_ID_CHARS} characters.", where)
    if item.get("type") == "function_call_output":
        if not isinstance(item["output"], str | list):
            raise BadRequest(f"Invalid type for '{where}.output'.", f"{where}.output")
        return
    try:
        arguments = as_object(orjson.loads(as_text(item["arguments"])))
    except ValueError:
        arguments = None
    if arguments is None or not as_text(item["name"]):
        raise BadRequest(f"{where}: a function call needs a name and a JSON object as arguments.", where)


def _check_reasoning(item: JsonObject, where: str) -> None:
    if not isinstance(item["summary"], list):
        raise BadRequest(f"Invalid type for '{where}.summary': expected an array.", f"{where}.summary")
    if item.get("content"):
        raise BadRequest(f"Invalid '{where}.content': array too long. Expected maximum length 0.", f"{where}.content")
    if not as_text(item.get("encrypted_content")):
        raise BadRequest(f"Item with id '{item['id']}' not found. Items are not persisted.", "input")


def _check_order(items: Sequence[JsonObject]) -> None:
    waiting: list[str] = []
    ids: set[str] = set()
    thinking = ""
    for item in items:
        kind = as_text(item.get("type", "message"))
        if "id" in item:
            if item["id"] in ids:
                raise BadRequest(f"Duplicate item found with id {item['id']}.", "input")
            ids.add(as_text(item["id"]))
        if thinking and (kind == "function_call_output" or item.get("role", "assistant") != "assistant"):
            break
        thinking = as_text(item["id"]) if kind == "reasoning" else ""
        if kind == "function_call_output":
            if item["call_id"] not in waiting:
                raise BadRequest(
                    f"No tool call found for function call output with call_id {item['call_id']}.", "input"
                )
            waiting.remove(as_text(item["call_id"]))
        elif kind == "function_call":
            waiting.append(as_text(item["call_id"]))
        elif waiting and kind != "reasoning":
            break
    if thinking:
        raise BadRequest(
            f"Item '{thinking}' of type 'reasoning' was provided without its required following item.", "input"
        )
    if waiting:
        raise BadRequest(f"No tool output found for function call {waiting[0]}.", "input")


def _item_text(item: JsonObject) -> str:
    content = item.get("content") or item.get("output")
    if isinstance(content, str):
        return content
    return "".join(as_text((as_object(part) or {}).get("text")) for part in as_list(content))


def _heard(items: Sequence[JsonObject], tools: Sequence[str]) -> Heard:
    users: list[str] = []
    results: list[tuple[str, str]] = []
    names: dict[object, str] = {}
    for item in items:
        if item.get("role") == "user":
            users.append(_item_text(item))
            results.clear()
        elif item.get("type") == "function_call":
            names[item["call_id"]] = as_text(item["name"])
        elif item.get("type") == "function_call_output":
            results.append((names[item["call_id"]], _item_text(item)))
    return Heard(users, results, frozenset(tools))


@dataclass(slots=True)
class ResponsesAnswer:
    """One response being written: items one after another, each opened, filled and closed by events of its own."""

    number: int
    request: WireRequest
    output: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    is_open: bool = False
    tokens: int = 0
    thoughts: int = 0
    events: int = 0

    def head(self) -> Iterator[bytes]:
        """What a stream begins with: the response, still empty."""
        yield self._event("response.created", {"response": self._response("in_progress")})
        yield self._event("response.in_progress", {"response": self._response("in_progress")})

    def step(self, step: Say | Think | Call) -> Iterator[bytes]:
        """The events of one step; pieces of one sort go into one item, and each call is an item of its own."""
        self.tokens += 1
        match step:
            case Say(text=text):
                yield from self._continued("message")
                part = self.output[-1]["content"][0]
                part["text"] += text
                yield self._event("response.output_text.delta", self._place(content_index=0, delta=text, logprobs=[]))
            case Think(text=text):
                self.thoughts += 1
                yield from self._continued("reasoning")
                self.output[-1]["summary"][0]["text"] += text
                yield self._event("response.reasoning_summary_text.delta", self._place(summary_index=0, delta=text))
            case Call(name=name, arguments=arguments):
                yield from self._closed()
                yield from self._opened(
                    {"type": "function_call", "call_id": self._id("call"), "name": name, "arguments": ""}
                )
                self.output[-1]["arguments"] = arguments
                for start in range(0, len(arguments), _ARGUMENT_FRAGMENT_CHARS):
                    fragment = arguments[start : start + _ARGUMENT_FRAGMENT_CHARS]
                    yield self._event("response.function_call_arguments.delta", self._place(delta=fragment))
                done = self._place(arguments=arguments, name=name)
                yield self._event("response.function_call_arguments.done", done)
                yield from self._closed()

    def failure(self, message: str, status: int) -> Iterator[bytes]:
        """An error in the middle of a stream that began with 200."""
        code = _CODES.get(status, "server_error")
        yield self._event("error", {"code": code, "message": message, "param": None})

    def tail(self) -> Iterator[bytes]:
        """The end of a good answer: the whole response once more, with its usage."""
        yield from self._closed()
        yield self._event("response.completed", {"response": self._response("completed")})

    def whole(self, steps: Sequence[Step]) -> bytes:
        """The same answer without streaming."""
        for step in steps:
            if isinstance(step, Say | Think | Call):
                for _ in self.step(step):
                    pass
        for _ in self._closed():
            pass
        return orjson.dumps(self._response("completed"))

    def _continued(self, kind: str) -> Iterator[bytes]:
        """Go on with the open item when it is of this kind, else open one."""
        if self.is_open and self.output[-1]["type"] == kind:
            return
        yield from self._closed()
        if kind == "message":
            part: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            yield from self._opened({"type": "message", "role": "assistant", "content": []})
            yield self._event("response.content_part.added", self._place(content_index=0, part=part))
            self.output[-1]["content"] = [part]
        else:
            part = {"type": "summary_text", "text": ""}
            yield from self._opened({"type": "reasoning", "summary": [], "encrypted_content": ""})
            yield self._event("response.reasoning_summary_part.added", self._place(summary_index=0, part=part))
            self.output[-1]["summary"] = [part]

    def _opened(self, item: dict[str, Any]) -> Iterator[bytes]:
        prefix = _ID_PREFIXES[item["type"]]
        self.output.append({"id": self._id(prefix), **item, "status": "in_progress"})
        self.is_open = True
        yield self._event("response.output_item.added", {"output_index": len(self.output) - 1, "item": self.output[-1]})

    def _closed(self) -> Iterator[bytes]:
        """The end of the open item, if one is open: its text once more, then the whole item."""
        if not self.is_open:
            return
        item = self.output[-1]
        self.is_open = False
        item["status"] = "completed"
        if item["type"] == "message":
            (part,) = item["content"]
            text = self._place(content_index=0, text=part["text"], logprobs=[])
            yield self._event("response.output_text.done", text)
            yield self._event("response.content_part.done", self._place(content_index=0, part=part))
        elif item["type"] == "reasoning":
            (part,) = item["summary"]
            item["encrypted_content"] = f"sealed-{item['id']}"
            text = self._place(summary_index=0, text=part["text"])
            yield self._event("response.reasoning_summary_text.done", text)
            yield self._event("response.reasoning_summary_part.done", self._place(summary_index=0, part=part))
        yield self._event("response.output_item.done", {"output_index": len(self.output) - 1, "item": item})

    def _place(self, **fields: object) -> dict[str, object]:
        return {"item_id": self.output[-1]["id"], "output_index": len(self.output) - 1, **fields}

    def _id(self, prefix: str) -> str:
        # The number of the response makes ids differ from turn to turn, as real ids do.
        return f"{prefix}_{self.number}_{len(self.output)}"

    def _event(self, kind: str, fields: Mapping[str, object]) -> bytes:
        event = {"type": kind, "sequence_number": self.events, **fields}
        self.events += 1
        return data_event(event, kind)

    def _response(self, status: str) -> dict[str, object]:
        is_over = status == "completed"
        prompt = self.request.prompt_tokens
        usage = {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": self.tokens,
            "output_tokens_details": {"reasoning_tokens": self.thoughts},
            "total_tokens": prompt + self.tokens,
        }
        return {
            "id": f"resp_{self.number}",
            "object": "response",
            "created_at": _CREATED,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": self.request.model,
            "output": self.output if is_over else [],
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": usage if is_over else None,
        }
