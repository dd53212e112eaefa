"""What the Messages API takes and what it refuses, with its own words for that. Pure."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final

from harness.messages import JsonObject
from harness.providers.script import Heard
from harness.providers.wire import as_list, as_object, as_text
from harness.testing.wire import BadRequest, WireRequest, json_body

_BODY_FIELDS: Final = frozenset(
    {
        *("model", "max_tokens", "messages", "system", "stream", "tools", "tool_choice", "thinking", "output_config"),
        *("stop_sequences", "metadata", "service_tier", "cache_control", "container", "inference_geo", "speed"),
        "diagnostics",
    }
)
_BLOCK_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"text", "citations"}),
    "image": frozenset({"source"}),
    "thinking": frozenset({"thinking", "signature"}),
    "redacted_thinking": frozenset({"data"}),
    "tool_use": frozenset({"id", "name", "input", "caller"}),
    "tool_result": frozenset({"tool_use_id", "content", "is_error"}),
}
"""The fields of each type of block, beside `type` and `cache_control`."""
_BLOCKS: Final[Mapping[str, frozenset[str]]] = {
    "user": frozenset({"text", "image", "tool_result"}),
    "assistant": frozenset({"text", "thinking", "redacted_thinking", "tool_use"}),
}
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_MISSING: Final = "`tool_use` ids were found without `tool_result` blocks immediately after"
_TOOL_CHOICES: Final = frozenset({"auto", "any", "tool", "none"})


def signature_of(thinking: str) -> str:
    """The mark by which the server knows a thought as its own."""
    return base64.b64encode(hashlib.sha256(thinking.encode()).digest()).decode()


def parse_request(body: bytes) -> WireRequest:
    """Check as strictly as the strictest servers of this API do. Raises `BadRequest`."""
    data = json_body(body)
    _check_fields(data, _BODY_FIELDS)
    max_tokens = data.get("max_tokens")
    _require(as_text(data.get("model")), "model: Field required")
    _require(isinstance(max_tokens, int) and max_tokens > 0, "max_tokens: Field required")
    _require(isinstance(data.get("stream", False), bool), "stream: Input should be a valid boolean")
    system = _blocks(data.get("system", []), "system")
    tools = _tools(data)
    messages = [as_object(message) or {} for message in as_list(data.get("messages"))]
    _require(messages, "messages: at least one message is required")
    contents = [_content(message, number) for number, message in enumerate(messages)]
    _check_order(messages, contents)
    _check_calls(contents)
    has_calls = any(block["type"] in {"tool_use", "tool_result"} for content in contents for block in content)
    needed = "Requests which include `tool_use` or `tool_result` blocks must define tools."
    _require(tools or not has_calls, needed, "tools")
    texts = [as_text(block.get("text")) for content in (system, *contents) for block in content]
    return WireRequest(
        model=as_text(data.get("model")),
        messages=messages,
        stream=data.get("stream") is True,
        heard=_heard(messages, contents, [] if data.get("tool_choice") == {"type": "none"} else tools),
        prompt_tokens=sum(len(text.split()) for text in texts),
    )


def _require(condition: object, message: str, param: str | None = None) -> None:
    if not condition:
        raise BadRequest(message, param)


def _check_fields(value: JsonObject, known: frozenset[str], where: str = "") -> None:
    for name in value:
        _require(name in known, f"{where}{name}: Extra inputs are not permitted", name)


def _tools(data: JsonObject) -> list[str]:
    names: list[str] = []
    for number, value in enumerate(as_list(data.get("tools"))):
        tool = as_object(value) or {}
        where = f"tools.{number}"
        _check_fields(tool, frozenset({"name", "description", "input_schema", "cache_control", "type"}), f"{where}.")
        name, schema = as_text(tool.get("name")), as_object(tool.get("input_schema")) or {}
        _require(_TOOL_NAME.fullmatch(name), f"{where}.name: String should match pattern")
        _require(schema.get("type") == "object", f"{where}.input_schema.type: Field required")
        _require(name not in names, "tools: Tool names must be unique.")
        names.append(name)
    choice = as_object(data.get("tool_choice"))
    if choice is not None:
        _require(names, "tool_choice: may only be specified while providing tools", "tool_choice")
        _require(choice.get("type") in _TOOL_CHOICES, "tool_choice: Input tag is unknown", "tool_choice")
    return names


def _content(message: JsonObject, number: int) -> list[JsonObject]:
    where = f"messages.{number}"
    _check_fields(message, frozenset({"role", "content"}), f"{where}.")
    role = as_text(message.get("role"))
    _require(role in _BLOCKS, f"{where}.role: Input should be 'user' or 'assistant'")
    content = _blocks(message.get("content"), f"{where}.content")
    _require(content, f"{where}: all messages must have non-empty content")
    for block in content:
        _require(block["type"] in _BLOCKS[role], f"{where}: {block['type']} blocks are not for the role {role!r}")
    return content


def _blocks(value: object, where: str) -> list[JsonObject]:
    """The blocks of a content, where a string is one of text."""
    if isinstance(value, str):
        value = [{"type": "text", "text": value}]
    _require(isinstance(value, list), f"{where}: Input should be a valid list")
    blocks: list[JsonObject] = []
    for number, item in enumerate(as_list(value)):
        block = as_object(item) or {}
        _check_block(block, f"{where}.{number}")
        blocks.append(block)
    return blocks


def _check_block(block: JsonObject, where: str) -> None:
    kind = as_text(block.get("type"))
    _require(kind in _BLOCK_FIELDS, f"{where}: Input tag {kind!r} found using 'type' does not match any of the tags")
    _check_fields(block, _BLOCK_FIELDS[kind] | {"type", "cache_control"}, f"{where}.{kind}.")
    match kind:
        case "text":
            text = as_text(block.get("text"))
            _require(text, f"{where}: text content blocks must be non-empty")
            _require(text.strip(), f"{where}: text content blocks must contain non-whitespace text")
        case "thinking":
            thinking = block.get("thinking")
            _require(isinstance(thinking, str), f"{where}.thinking.thinking: Field required")
            valid = block.get("signature") == signature_of(as_text(thinking))
            _require(valid, f"{where}: Invalid `signature` in `thinking` block")
        case "redacted_thinking":
            _require(as_text(block.get("data")), f"{where}.redacted_thinking.data: Field required")
        case "tool_use":
            pattern = "String should match pattern"
            _require(_CALL_ID.fullmatch(as_text(block.get("id"))), f"{where}.tool_use.id: {pattern}")
            _require(_TOOL_NAME.fullmatch(as_text(block.get("name"))), f"{where}.tool_use.name: {pattern}")
            _require(isinstance(block.get("input"), dict), f"{where}.tool_use.input: Input should be an object")
        case "tool_result":
            _require(as_text(block.get("tool_use_id")), f"{where}.tool_result.tool_use_id: Field required")
            _require(isinstance(block.get("is_error", False), bool), f"{where}.tool_result.is_error: not a boolean")
            content = block.get("content", [])
            if content != "":
                _blocks(content, f"{where}.tool_result.content")
        case _:
            pass


def _check_order(messages: Sequence[JsonObject], contents: Sequence[Sequence[JsonObject]]) -> None:
    _require(messages[0]["role"] == "user", 'messages: first message must use the "user" role')
    for number, (message, content) in enumerate(zip(messages, contents, strict=True)):
        same = number > 0 and messages[number - 1]["role"] == message["role"]
        _require(not same, 'messages: roles must alternate between "user" and "assistant"')
        kinds = [as_text(block["type"]) for block in content]
        first = {"thinking", "redacted_thinking"} if message["role"] == "assistant" else {"tool_result"}
        led = [kind in first for kind in kinds]
        _require(led == sorted(led, reverse=True), f"messages.{number}: {' and '.join(sorted(first))} must come first")
        if message["role"] == "assistant":
            _require(not all(led), f"messages.{number}: The final block in an assistant message cannot be `thinking`.")


def _check_calls(contents: Sequence[Sequence[JsonObject]]) -> None:
    """Each call has its one result in the very next message, and each result its call in the one before."""
    seen: set[str] = set()
    waiting: list[str] = []
    for number, content in enumerate(contents):
        results = [as_text(block.get("tool_use_id")) for block in content if block["type"] == "tool_result"]
        for result in results:
            where = f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks: {result}"
            _require(result in waiting, where)
            waiting.remove(result)
        _require(not waiting, f"messages.{number - 1}: {_MISSING}: {', '.join(waiting)}")
        waiting = [as_text(block.get("id")) for block in content if block["type"] == "tool_use"]
        unique = seen.isdisjoint(waiting) and len(set(waiting)) == len(waiting)
        _require(unique, f"messages.{number}: `tool_use` ids must be unique")
        seen.update(waiting)
    _require(not waiting, f"messages.{len(contents) - 1}: {_MISSING}: {', '.join(waiting)}")


def _heard(messages: Sequence[JsonObject], contents: Sequence[Sequence[JsonObject]], tools: Sequence[str]) -> Heard:
    users: list[str] = []
    results: list[tuple[str, str]] = []
    names: dict[str, str] = {}
    for message, content in zip(messages, contents, strict=True):
        for block in content:
            match block["type"]:
                case "text" if message["role"] == "user":
                    users.append(as_text(block.get("text")))
                    results.clear()
                case "tool_use":
                    names[as_text(block.get("id"))] = as_text(block.get("name"))
                case "tool_result":
                    results.append((names[as_text(block.get("tool_use_id"))], _result_text(block.get("content"))))
                case _:
                    pass
    return Heard(users, results, frozenset(tools))


def _result_text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(as_text((as_object(block) or {}).get("text")) for block in as_list(content))
