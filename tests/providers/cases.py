"""Responses as real servers send them, and what each must come to. The ids are rows of the wire specification."""

from typing import Any

import orjson

from tests.providers.wire import DONE, Bad, Good, call, calls, delta, say, sse, usage

HI = Good("Hi")
F = ("f", {"a": 1})
G = ("g", {"b": 2})
ARGS = '{"a": 1}'
STOP = delta("stop")
IN_CODE = "Use `<tool_call>` so:\n```\n<tool_call>\n```"
DETAILS = [{"type": "reasoning.text", "text": "hm", "index": 0}]


def whole(message: dict[str, Any], reason: str = "stop") -> bytes:
    return orjson.dumps(
        {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": reason}]}
    )


FRAMING = {
    "W1-comments": (sse(": PROCESSING\n\n" * 5, say("Hi"), ": still\n\n", STOP, DONE), HI),
    "W2-events-without-data": (
        sse("event: ping\n\nretry: 10\n\ndata: \n\nid: 1\n\n\n\n", say("Hi"), "id: 2\n\n\n", STOP, DONE),
        HI,
    ),
    "W3-cut-json": (sse(say("Hi"), 'data: {"id": \n\n', DONE), Bad("protocol", "Hi")),
    "W4-eof-after-stop": (sse(say("Hi"), STOP), HI),
    "W5-eof-no-reason": (sse(say("Hi")), Bad("truncated", "Hi")),
    "W5-calls-of-a-cut-stream": (sse(calls(call(0, "x", "f", ARGS))), Bad("truncated")),
    "W6-done-without-reason": (sse(say("Hi"), DONE), HI),
    "W6-done-with-calls": (sse(calls(call(0, "x", "f", ARGS)), DONE), Good(calls=[F])),
    "W7-html": (b"<!doctype html><html><body>Sign in</body></html>", Bad("empty")),
    "W7-nothing": (b"", Bad("empty")),
    "W7-bom": (sse("\ufeff", say("H"), say("i"), STOP, DONE), HI),
    "crlf": (sse(say("H"), say("i"), STOP, DONE, end="\r\n"), HI),
    "cr": (sse(say("H"), say("i"), STOP, DONE, end="\r"), HI),
    "no-space": (sse(say("H"), say("i"), STOP, DONE, space=""), HI),
    "last-event-without-blank-line": (sse(say("Hi"), "data: " + orjson.dumps(STOP).decode()), HI),
    "data-on-two-lines": (sse('data: {"choices": [{"index": 0, "delta":\ndata: {"content": "Hi"}}]}\n\n', STOP), HI),
    "unicode": (sse(say("你好 "), say("🚀\u2028é"), STOP, DONE), Good("你好 🚀\u2028é")),
    "surrogates-in-two-chunks": (
        sse(
            'data: {"choices": [{"index": 0, "delta": {"content": "a\\ud83d"}}]}\n\n',
            'data: {"choices": [{"index": 0, "delta": {"content": "\\ude80b\\ud83d"}}]}\n\n',
            STOP,
            DONE,
        ),
        Good("a🚀b\ufffd"),
    ),
    "whole-json": (whole({"role": "assistant", "content": "Hi"}), HI),
    "whole-json-with-calls": (
        whole({"content": None, "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": ARGS}}]}),
        Good(calls=[F]),
    ),
    "whole-json-error": (b'{"error": {"message": "slow down", "code": "rate_limit_exceeded"}}', Bad("rate_limit")),
    "broken-json-body": (b'{"choices": [', Bad("protocol")),
    "not-an-object": (sse(say("Hi"), "data: [1]\n\n", DONE), Bad("protocol", "Hi")),
}

ERRORS = {
    "W8-error-object": (
        sse(say("Hi"), {"error": {"message": "The engine is overloaded", "code": "overloaded"}}),
        Bad("overloaded", "Hi"),
    ),
    "W8-error-string": (sse({"error": "context length exceeded"}), Bad("context_length")),
    "W8-error-status": (sse({"error": {"message": "no", "code": 401}}), Bad("auth")),
    "W9-vllm": (sse({"object": "error", "message": "bad things", "code": 400}), Bad("bad_request")),
    "W10-error-field": (sse(say("Hi"), 'error: {"message": "slot unavailable"}\n\n'), Bad("overloaded", "Hi")),
    "W10-error-event": (sse(say("Hi"), "event: error\ndata: rate limit reached\n\n"), Bad("rate_limit", "Hi")),
    "W11-openrouter": (
        sse(say("Hi"), {"error": {"code": "server_error", "message": "gone"}, **say(" there", "error")}),
        Bad("overloaded", "Hi there"),
    ),
    "W11-reason-alone": (sse(say("Hi", "error"), DONE), Bad("overloaded", "Hi")),
    "W12-minimax": (
        sse({"choices": None, "base_resp": {"status_code": 1004, "status_msg": "login fail"}}),
        Bad("auth"),
    ),
    "W24-content-filter": (sse(say("Hi"), delta("content_filter"), DONE), Bad("content_filter", "Hi")),
    "W24-glm-sensitive": (sse(say("Hi"), delta("sensitive"), DONE), Bad("content_filter", "Hi")),
    "W26-deepseek": (sse(say("Hi"), delta("insufficient_system_resource"), DONE), Bad("overloaded", "Hi")),
    "W22-no-calls-no-text": (sse(delta("tool_calls"), DONE), Bad("empty")),
    "empty-answer": (sse(delta(role="assistant", content=""), STOP, DONE), Bad("empty")),
    "thinking-only": (sse(delta(reasoning_content="hm"), delta("length"), DONE), Bad("empty")),
    "call-without-name": (sse(calls(call(0, "x", None, ARGS)), DONE), Bad("protocol")),
}

CHUNKS = {
    "W14-azure-prompt-filter": (
        sse({"id": "", "object": "", "choices": [], "prompt_filter_results": []}, say("Hi"), STOP, DONE),
        HI,
    ),
    "W15-null-choices": (sse({"id": "c", "choices": None}, say("Hi"), STOP, DONE), HI),
    "W16-null-delta": (
        sse(say("Hi"), {"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]}),
        HI,
    ),
    "W16-no-delta": (sse(say("Hi"), {"choices": [{"content_filter_offsets": {}, "finish_reason": "stop"}]}), HI),
    "W17-null-content": (sse(delta(role="assistant", content=None), say("Hi"), STOP, DONE), HI),
    "W19-empty-reason": (sse(say("H", ""), say("i", ""), STOP), HI),
    "W20-reason-with-content": (sse(say("Hi", "stop"), DONE), HI),
    "W20-reason-with-calls": (sse(calls(call(0, "x", "f", ARGS), reason="tool_calls")), Good(calls=[F])),
    "W21-calls-with-stop": (sse(calls(call(0, "x", "f", ARGS)), STOP, DONE), Good(calls=[F])),
    "W22-text-with-tool-calls-reason": (sse(say("Hi"), delta("tool_calls"), DONE), HI),
    "W25-refusal": (sse(delta(refusal="No."), STOP, DONE), Good(refusal="No.")),
    "W26-unknown-reason": (sse(say("Hi"), delta("eos"), DONE), HI),
    "W27-after-the-end": (sse(say("H", "stop"), say("i"), usage(3, 2), DONE), HI),
    "W28-other-choices": (
        sse(say("Hi"), {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}, STOP, DONE),
        HI,
    ),
    "content-parts": (
        sse(
            delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]),
            delta(content=[{"type": "text", "text": "Hi"}]),
            STOP,
        ),
        Good("Hi", "hm"),
    ),
    "W47-reasoning": (sse(delta(reasoning_content="hm"), say("Hi"), STOP, DONE), Good("Hi", "hm")),
    "W47-two-fields": (sse(delta(reasoning="hm", reasoning_content="hm"), say("Hi"), STOP), Good("Hi", "hm")),
    "W47-null-fields": (sse(delta(content="Hi", reasoning_content=None), STOP), HI),
    "W48-details": (sse(delta(reasoning_details=DETAILS), say("Hi"), STOP), Good("Hi", "hm")),
    "W50-think": (sse(say("<think>\nhm</think>\n\nHi"), STOP), Good("Hi", "hm")),
    "W50-think-split": (
        sse(*[say(char) for char in " <think>h</thin>m</think>\n\nHi <think> you"], STOP),
        Good("Hi <think> you", "h</thin>m"),
    ),
    "W50-think-unclosed": (sse(say("<think>hm"), STOP), Bad("empty")),
    "W50-almost-a-tag": (sse(say("<th"), STOP), Good("<th")),
    "W45-tool-call": (sse(say("Look: <tool"), say('_call>{"name": "f"}'), STOP), Bad("tool_markup", "Look: ")),
    "W45-dsml": (sse(say("<｜DS"), say("ML｜invoke>"), STOP), Bad("tool_markup")),
    "W45-in-code": (sse(say(IN_CODE), STOP), Good(IN_CODE)),
    "W45-almost": (sse(say("a < b, [TOOL"), say("S], <tool"), STOP), Good("a < b, [TOOLS], <tool")),
}

TOOLS = {
    "standard": (
        sse(
            calls(call(0, "x", "f", "")),
            calls(call(0, None, None, '{"a"')),
            calls(call(0, None, None, ": 1}")),
            delta("tool_calls"),
            DONE,
        ),
        Good(calls=[F], ids=["x"]),
    ),
    "W29-no-index": (sse(calls(call(None, "x", "f", ARGS)), STOP), Good(calls=[F], ids=["x"])),
    "W29-no-index-two": (
        sse(calls(call(None, "x", "f", ARGS)), calls(call(None, "y", "g", '{"b"')), calls(call(args=": 2}")), STOP),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "W30-id-repeated": (
        sse(calls(call(0, "x", "f", '{"a"')), calls(call(0, "x", None, ": 1}")), STOP),
        Good(calls=[F], ids=["x"]),
    ),
    "W31-id-and-name-repeated": (
        sse(*[calls(call(0, "x", "f", piece)) for piece in ("", '{"a"', ": 1", "}")], STOP),
        Good(calls=[F], ids=["x"]),
    ),
    "W32-empty-names": (
        sse(
            calls(call(0, "x", "f", '{"a"')),
            calls(call(0, "", "", ": 1}")),
            calls({"index": 0, "id": None, "function": None}),
            STOP,
        ),
        Good(calls=[F], ids=["x"]),
    ),
    "W33-id-first-only": (
        sse(calls(call(0, "x", "f", '{"a"')), calls(call(0, "", None, ": 1}")), STOP),
        Good(calls=[F], ids=["x"]),
    ),
    "W35-interleaved": (
        sse(
            calls(call(0, "x", "f", ""), call(1, "y", "g", "")),
            calls(call(1, None, None, '{"b"'), call(0, None, None, '{"a"')),
            calls(call(0, None, None, ": 1}"), call(1, None, None, ": 2}")),
            STOP,
        ),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "W36-holes": (
        sse(calls(call(1, "x", "f", ARGS)), calls(call(4, "y", "g", '{"b": 2}')), STOP),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "W37-whole-arguments": (sse(calls(call(0, "x", "f", ARGS)), STOP), Good(calls=[F])),
    "W38-no-arguments": (
        sse(calls(*[call(i, str(i), f"f{i}", args) for i, args in enumerate(["", None, "null", " \n"])]), STOP),
        Good(calls=[("f0", {}), ("f1", {}), ("f2", {}), ("f3", {})]),
    ),
    "W39-object-arguments": (sse(calls(call(0, "x", "f", {"a": 1})), STOP), Good(calls=[F])),
    "W40-no-id": (sse(calls(call(0, None, "f", ARGS)), STOP), Good(calls=[F], ids=[""])),
    "W41-same-id-twice": (
        sse(calls(call(0, "x", "f", ARGS), call(1, "x", "g", '{"b": 2}')), STOP),
        Good(calls=[F, G], ids=["x", "x"]),
    ),
    "W42-id-kept": (sse(calls(call(0, "functions.f:0", "f", ARGS)), STOP), Good(calls=[F], ids=["functions.f:0"])),
    "W44-function-call": (
        sse(delta(function_call={"name": "f", "arguments": '{"a"'}), delta(function_call={"arguments": ": 1}"}), STOP),
        Good(calls=[F]),
    ),
    "same-index-for-all": (
        sse(calls(call(0, "x", "f", ARGS)), calls(call(0, "y", "g", '{"b": 2}')), STOP),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "sent-twice": (
        sse(calls(call(0, "x", "f", ARGS)), calls(call(0, "x", "f", ARGS)), STOP),
        Good(calls=[F], ids=["x"]),
    ),
    "braces-first": (
        sse(calls(call(0, "x", "f", "{}")), calls(call(0, None, None, ARGS)), STOP),
        Good(calls=[F], ids=["x"]),
    ),
    "new-id-in-every-chunk": (
        sse(calls(call(0, "x", "f", '{"a"')), calls(call(0, "y", "f", ": 1}")), STOP),
        Good(calls=[F], ids=["x"]),
    ),
    "W23-length": (sse(calls(call(0, "x", "f", '{"path": "a')), delta("length")), Good(calls=[("f", None)])),
    "malformed-array": (sse(calls(call(0, "x", "f", "[1]")), STOP), Good(calls=[("f", None)])),
}

ALL = FRAMING | ERRORS | CHUNKS | TOOLS
