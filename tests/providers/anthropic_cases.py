"""Responses of the Messages API as servers send them, and what each must come to. W ids: rows of the specification."""

from typing import Any

import orjson

from tests.providers.wire import DONE, Bad, Good, sse

HI = Good("Hi")
F = ("f", {"a": 1})
G = ("g", {"b": 2})
PING = {"type": "ping"}
STOP = {"type": "message_stop"}


def named(*events: object, end: str = "\n", space: str = " ") -> bytes:
    """The events as bytes, each with its name as the API writes them; a str stands as it is."""
    out = b""
    for event in events:
        if isinstance(event, dict):
            out += f"event:{space}{event['type']}{end}".encode()
        out += sse(event, end=end, space=space)
    return out


def start(**usage: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m", "stop_reason": None}
    return {"type": "message_start", "message": message | {"usage": usage or {"input_tokens": 3, "output_tokens": 1}}}


def begin(index: int | None, kind: str | None, **fields: Any) -> dict[str, Any]:
    block = fields if kind is None else {"type": kind, **fields}
    event = {"type": "content_block_start", "content_block": block}
    return event if index is None else event | {"index": index}


def delta(index: int | None, kind: str, **fields: Any) -> dict[str, Any]:
    event = {"type": "content_block_delta", "delta": {"type": kind, **fields}}
    return event if index is None else event | {"index": index}


def text(piece: Any, index: int | None = 0) -> dict[str, Any]:
    return delta(index, "text_delta", text=piece)


def think(piece: Any, index: int | None = 0) -> dict[str, Any]:
    return delta(index, "thinking_delta", thinking=piece)


def sign(signature: Any, index: int | None = 0) -> dict[str, Any]:
    return delta(index, "signature_delta", signature=signature)


def args(piece: Any, index: int | None = 0) -> dict[str, Any]:
    return delta(index, "input_json_delta", partial_json=piece)


def tool(index: int | None, id: Any, name: Any, input: Any = None) -> dict[str, Any]:
    return begin(index, "tool_use", id=id, name=name, input={} if input is None else input)


def done(index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def end(reason: Any = "end_turn", **fields: Any) -> dict[str, Any]:
    usage = fields.pop("usage", {"output_tokens": 2})
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None, **fields}, "usage": usage}


def said(*pieces: str) -> list[dict[str, Any]]:
    """A whole text block."""
    return [begin(0, "text", text=""), *map(text, pieces), done()]


def whole(*content: Any, reason: Any = "end_turn", **fields: Any) -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(content)}
    return orjson.dumps(message | {"stop_reason": reason, "usage": {"input_tokens": 3, "output_tokens": 2}} | fields)


def error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


CALL = [tool(0, "x", "f"), args(""), args('{"a"'), args(": 1}"), done()]

FRAMING = {
    "plain": (named(start(), begin(0, "text", text=""), PING, text("H"), text("i"), done(), end(), STOP), HI),
    "W1-comments-and-pings": (
        named(": waiting\n\n" * 3, PING, start(), PING, *said("Hi"), PING, ": still\n\n", end(), STOP),
        HI,
    ),
    "W2-events-without-data": (
        named("event: ping\n\nretry: 10\n\ndata: \n\nid: 1\n\n\n\n", start(), *said("Hi"), end(), STOP),
        HI,
    ),
    "unnamed-events": (sse(start(), *said("H", "i"), end(), STOP), HI),
    "W3-cut-json": (named(start(), *said("Hi"), 'data: {"type": \n\n', end(), STOP), Bad("protocol", "Hi")),
    "W4-eof-after-the-reason": (named(start(), *said("Hi"), end()), Bad("truncated", "Hi")),
    "W5-eof-in-a-block": (named(start(), begin(0, "text", text=""), text("Hi")), Bad("truncated", "Hi")),
    "W5-eof-after-the-start": (named(start()), Bad("truncated")),
    "W5-calls-of-a-cut-stream": (named(start(), *CALL, end("tool_use")), Bad("truncated")),
    "W6-done-is-no-end-of-this-protocol": (named(start(), *said("Hi"), end(), DONE), Bad("truncated", "Hi")),
    "done-after-the-end": (named(start(), *said("Hi"), end(), STOP, DONE), HI),
    "end-without-reason": (named(start(), *said("Hi"), STOP), HI),
    "W7-html": (b"<!doctype html><html><body>Sign in</body></html>", Bad("empty")),
    "W7-nothing": (b"", Bad("empty")),
    "W7-pings-only": (named(PING, PING), Bad("empty")),
    "W7-done-only": (sse(DONE), Bad("empty")),
    "W7-bom": (named("\ufeff", start(), *said("Hi"), end(), STOP), HI),
    "another-protocol": (sse({"choices": [{"index": 0, "delta": {"content": "Hi"}}]}, DONE), Bad("empty")),
    "crlf": (named(start(), *said("H", "i"), end(), STOP, end="\r\n"), HI),
    "cr": (named(start(), *said("H", "i"), end(), STOP, end="\r"), HI),
    "no-space": (named(start(), *said("H", "i"), end(), STOP, space=""), HI),
    "last-event-without-blank-line": (
        named(start(), *said("Hi"), end(), 'event: message_stop\ndata: {"type": "message_stop"}'),
        HI,
    ),
    "data-on-two-lines": (
        named('event: message_start\ndata: {"type":\ndata: "message_start"}\n\n', *said("Hi"), end(), STOP),
        HI,
    ),
    "unicode": (named(start(), *said("你好 ", "🚀\u2028é"), end(), STOP), Good("你好 🚀\u2028é")),
    "surrogates-in-two-events": (
        named(
            start(),
            'data: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a\\ud83d"}}\n\n',
            'data: {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "\\ude80b"}}\n\n',
            end(),
            STOP,
        ),
        Good("a🚀b"),
    ),
    "after-the-end": (named(start(), *said("Hi"), end(), STOP, *said(" there"), error("api_error", "no")), HI),
    "whole-json": (whole({"type": "text", "text": "Hi"}), HI),
    "whole-json-with-thinking-and-calls": (
        whole(
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "x", "name": "f", "input": {"a": 1}},
            {"type": "tool_use", "id": "y", "name": "h", "input": {}},
            reason="tool_use",
        ),
        Good("Hi", "hm", [F, ("h", {})], ["x", "y"]),
    ),
    "whole-json-as-an-event": (sse(orjson.loads(whole({"type": "text", "text": "Hi"}))), HI),
    "whole-json-error": (orjson.dumps(error("rate_limit_error", "slow down")), Bad("rate_limit")),
    "whole-json-of-no-message": (b'{"ok": true}', Bad("empty")),
    "whole-json-without-content": (whole() + b"\n", Bad("empty")),
    "broken-json-body": (b'{"type": "message", "content": [', Bad("protocol")),
    "not-an-object": (named(start(), *said("Hi"), "data: [1]\n\n", end(), STOP), Bad("protocol", "Hi")),
}

ERRORS = {
    "W8-overloaded": (
        named(start(), *said("Hi"), error("overloaded_error", "Overloaded"), end(), STOP),
        Bad("overloaded", "Hi"),
    ),
    "W8-unnamed": (sse(start(), *said("Hi"), error("overloaded_error", "Overloaded")), Bad("overloaded", "Hi")),
    "W8-before-anything": (named(error("authentication_error", "invalid x-api-key")), Bad("auth")),
    "W8-permission": (named(error("permission_error", "Your key may not use this resource.")), Bad("auth")),
    "W8-too-long": (
        named(error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum")),
        Bad("context_length"),
    ),
    "W8-too-large": (named(error("request_too_large", "Request exceeds the maximum size")), Bad("context_length")),
    "W8-error-string": (named(start(), {"type": "error", "error": "rate limit reached"}), Bad("rate_limit")),
    "W8-error-without-object": (named(start(), {"type": "error", "message": "server is busy"}), Bad("overloaded")),
    "W8-error-without-type": (sse(start(), {"error": {"message": "no", "code": 401}}), Bad("auth")),
    "W8-error-says-nothing": (named(start(), {"type": "error"}), Bad("overloaded")),
    "W9-vllm": (sse({"object": "error", "message": "bad things", "code": 400}), Bad("bad_request")),
    "W10-error-field": (named(start(), *said("Hi"), "error: slot unavailable\n\n"), Bad("overloaded", "Hi")),
    "W12-minimax": (
        whole(base_resp={"status_code": 1004, "status_msg": "login fail"}),
        Bad("auth"),
    ),
    "W12-minimax-good": (whole({"type": "text", "text": "Hi"}, base_resp={"status_code": 0, "status_msg": ""}), HI),
    "W24-refusal": (named(start(), *said("Hi"), end("refusal"), STOP), Bad("content_filter", "Hi")),
    "W24-refusal-without-text": (
        named(start(), end("refusal", stop_details={"type": "refusal", "explanation": "No."}), STOP),
        Bad("content_filter"),
    ),
    "W24-sensitive": (named(start(), *said("Hi"), end("sensitive"), STOP), Bad("content_filter", "Hi")),
    "W26-network-error": (named(start(), *said("Hi"), end("network_error"), STOP), Bad("overloaded", "Hi")),
    "W22-no-calls-no-text": (named(start(), end("tool_use"), STOP), Bad("empty")),
    "empty-answer": (named(start(), *said(""), end(), STOP), Bad("empty")),
    "thinking-only": (
        named(start(), begin(0, "thinking", thinking="", signature=""), think("hm"), done(), end("max_tokens"), STOP),
        Bad("empty"),
    ),
    "call-without-name": (named(start(), tool(0, "x", None), args("{}"), end("tool_use"), STOP), Bad("protocol")),
    "arguments-in-a-text-block": (
        named(start(), *CALL, *said("Hi"), args("x"), end("tool_use"), STOP),
        Bad("protocol", "Hi"),
    ),
    "arguments-of-no-call": (named(start(), *said("Hi"), args('{"a": 1}', 4), end(), STOP), Bad("protocol", "Hi")),
}

BLOCKS = {
    "W17-null-text": (
        named(start(), begin(0, "text", text=None), text(None), text("Hi"), text(""), done(), end(), STOP),
        HI,
    ),
    "text-in-the-start": (named(start(), begin(0, "text", text="H"), text("i"), done(), end(), STOP), HI),
    "two-text-blocks": (
        named(start(), *said("H"), begin(1, "text", text=""), text("i", 1), done(1), end(), STOP),
        HI,
    ),
    "no-start-no-stop": (named(text("H"), text("i"), STOP), HI),
    "no-index": (named(start(), begin(None, "text", text=""), text("Hi", None), end(), STOP), HI),
    "strange-index": (named(start(), begin(None, "text") | {"index": [0]}, text("Hi") | {"index": "0"}, STOP), HI),
    "null-block": (named(start(), {"type": "content_block_start", "index": 0}, text("Hi"), end(), STOP), HI),
    "null-deltas": (
        named(
            start(),
            begin(0, "text", text=""),
            {"type": "content_block_delta", "index": 0, "delta": None},
            text("Hi"),
            {"type": "message_delta", "delta": None, "usage": None},
            STOP,
        ),
        HI,
    ),
    "null-message": (named({"type": "message_start", "message": None}, *said("Hi"), end(None), STOP), HI),
    "unknown-events": (
        named(start(), {"type": "content_block_note", "message": "m", "code": 3}, *said("Hi"), end(), STOP),
        HI,
    ),
    "unknown-deltas": (
        named(start(), begin(0, "text"), delta(0, "citations_delta", citation={"text": "x"}), text("Hi"), end(), STOP),
        HI,
    ),
    "unknown-fields": (
        named(start() | {"x": 1}, begin(0, "text", citations=None), text("Hi") | {"p": "abc"}, end(x=[1]), STOP),
        HI,
    ),
    "server-tools": (
        named(
            start(),
            *said("H"),
            begin(0, "server_tool_use", id="s", name="web_search", input={}),
            args('{"query": "x"}'),
            done(),
            begin(1, "web_search_tool_result", tool_use_id="s", content=[{"type": "web_search_result"}]),
            text("not shown", 1),
            done(1),
            begin(2, "text", text=""),
            text("i", 2),
            end(),
            STOP,
        ),
        HI,
    ),
    "an-index-used-again": (
        named(start(), begin(0, "future"), text("no"), done(), *said("Hi"), end(), STOP),
        HI,
    ),
    "W26-unknown-reason": (named(start(), *said("Hi"), end("eos"), STOP), HI),
    "pause": (named(start(), *said("Hi"), end("pause_turn"), STOP), HI),
    "cut-by-length": (named(start(), *said("Hi"), end("max_tokens"), STOP), HI),
    "W47-thinking": (
        named(
            start(),
            begin(0, "thinking", thinking="", signature=""),
            think("h"),
            think("m"),
            sign("sig"),
            done(),
            begin(1, "text", text=""),
            text("Hi", 1),
            done(1),
            end(),
            STOP,
        ),
        Good("Hi", "hm"),
    ),
    "thinking-in-the-start": (named(start(), begin(0, "thinking", thinking="hm"), *said("Hi"), STOP), Good("Hi", "hm")),
    "thinking-without-a-block": (named(start(), think("hm", 7), text("Hi", 8), end(), STOP), Good("Hi", "hm")),
    "thinking-that-is-hidden": (
        named(start(), begin(0, "redacted_thinking", data="xyz"), done(), *said("Hi"), end(), STOP),
        HI,
    ),
    "W50-think-tags": (named(start(), *said("<thi", "nk>hm</think>", "\n\nHi"), end(), STOP), Good("Hi", "hm")),
    "W45-tool-call": (
        named(start(), *said("Look: <tool", '_call>{"name": "f"}'), end(), STOP),
        Bad("tool_markup", "Look: "),
    ),
}

TOOLS = {
    "standard": (named(start(), *CALL, end("tool_use"), STOP), Good(calls=[F], ids=["x"])),
    "after-text": (
        named(start(), *said("Hi"), tool(1, "x", "f"), args('{"a": 1}', 1), done(1), end("tool_use"), STOP),
        Good("Hi", calls=[F]),
    ),
    "W21-calls-with-end-turn": (named(start(), *CALL, end("end_turn"), STOP), Good(calls=[F])),
    "W21-calls-without-reason": (named(start(), *CALL, STOP), Good(calls=[F])),
    "W22-text-with-tool-use-reason": (named(start(), *said("Hi"), end("tool_use"), STOP), HI),
    "W35-interleaved": (
        named(
            start(),
            tool(0, "x", "f"),
            tool(1, "y", "g"),
            args('{"b"', 1),
            args('{"a"', 0),
            args(": 1}", 0),
            args(": 2}", 1),
            done(1),
            done(0),
            end("tool_use"),
            STOP,
        ),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "W36-holes": (
        named(start(), tool(3, "x", "f"), args('{"a": 1}', 3), tool(9, "y", "g"), args('{"b": 2}', 9), STOP),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "W29-no-index": (
        named(
            start(), tool(None, "x", "f"), args('{"a": 1}', None), tool(None, "y", "g"), args('{"b": 2}', None), STOP
        ),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "W29-one-with-an-index-one-without": (
        named(start(), tool(2, "x", "f"), begin(None, "text", text="Hi"), args('{"a": 1}', 2), end("tool_use"), STOP),
        Good("Hi", calls=[F]),
    ),
    "same-index-for-all": (
        named(start(), tool(0, "x", "f"), args('{"a": 1}'), done(), tool(0, "y", "g"), args('{"b": 2}'), done(), STOP),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "W37-whole-arguments": (named(start(), tool(0, "x", "f"), args('{"a": 1}'), end(), STOP), Good(calls=[F])),
    "W37-input-in-the-start": (named(start(), tool(0, "x", "f", {"a": 1}), done(), STOP), Good(calls=[F])),
    "W37-input-in-the-start-and-after": (
        named(start(), tool(0, "x", "f", {"a": 1}), args('{"a"'), args(": 1}"), done(), STOP),
        Good(calls=[F]),
    ),
    "W38-no-arguments": (
        named(
            start(),
            *[
                event
                for index, (given, piece) in enumerate([({}, ""), (None, None), ("", "null"), ({}, " \n")])
                for event in (
                    begin(index, "tool_use", id=f"i{index}", name=f"f{index}", input=given),
                    args(piece, index),
                )
            ],
            end("tool_use"),
            STOP,
        ),
        Good(calls=[("f0", {}), ("f1", {}), ("f2", {}), ("f3", {})]),
    ),
    "W39-object-arguments": (named(start(), tool(0, "x", "f"), args({"a": 1}), STOP), Good(calls=[F])),
    "W39-text-as-input": (named(start(), tool(0, "x", "f", '{"a": 1}'), STOP), Good(calls=[F])),
    "W40-no-id": (named(start(), tool(0, None, "f"), args('{"a": 1}'), STOP), Good(calls=[F], ids=[""])),
    "W41-same-id-twice": (
        named(start(), tool(0, "x", "f"), args('{"a": 1}'), tool(1, "x", "f"), args('{"a": 1}', 1), STOP),
        Good(calls=[F, F], ids=["x", "x"]),
    ),
    "W23-length": (
        named(start(), tool(0, "x", "f"), args('{"path": "a'), end("max_tokens"), STOP),
        Good(calls=[("f", None)]),
    ),
    "surrogates-in-two-fragments": (
        named(
            start(),
            tool(0, "x", "f"),
            'data: {"type": "content_block_delta", "delta": {"type": "input_json_delta", '
            '"partial_json": "{\\"a\\": \\"\\ud83d"}}\n\n',
            'data: {"type": "content_block_delta", "delta": {"type": "input_json_delta", '
            '"partial_json": "\\ude80\\"}"}}\n\n',
            STOP,
        ),
        Good(calls=[("f", {"a": "🚀"})]),
    ),
    "malformed-array": (named(start(), tool(0, "x", "f"), args("[1]"), STOP), Good(calls=[("f", None)])),
}

ALL = FRAMING | ERRORS | BLOCKS | TOOLS
