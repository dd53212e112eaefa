"""Responses of the Responses API as servers send them, and what each must come to.

Ids that begin with W are rows of the wire specification, as far as they mean something in this protocol.
"""

from typing import Any

import orjson

from tests.providers.responses_call_cases import TOOLS, F
from tests.providers.responses_wire import (
    CREATED,
    added,
    done,
    end,
    ev,
    failed,
    fcall,
    incomplete,
    message,
    more,
    named,
    say,
    thought,
)
from tests.providers.wire import DONE, Bad, Good, sse

HI = Good("Hi")
END = end(message("Hi"))
IN_CODE = "Use `<tool_call>` so:\n```\n<tool_call>\n```"


def whole(*output: dict[str, Any], status: str | None = "completed", **fields: Any) -> bytes:
    return orjson.dumps({"id": "r", "object": "response", "status": status, "output": output, "error": None, **fields})


def reasons(text: str, kind: str = "reasoning_summary_text") -> dict[str, Any]:
    return ev(f"{kind}.delta", item_id="rs_1", output_index=0, summary_index=0, delta=text)


def error(**fields: Any) -> dict[str, Any]:
    return {"type": "error", "sequence_number": 3, **fields}


FRAMING = {
    "as-the-api-writes-it": (
        named(
            CREATED,
            ev("in_progress", response={"id": "resp_1", "status": "in_progress"}),
            added(message()),
            ev("content_part.added", output_index=0, content_index=0, part={"type": "output_text", "text": ""}),
            say("H", obfuscation="xyz", logprobs=[]),
            say("i", obfuscation="x", logprobs=[]),
            ev("output_text.done", output_index=0, content_index=0, text="Hi"),
            ev("content_part.done", output_index=0, content_index=0, part={"type": "output_text", "text": "Hi"}),
            done(message("Hi")),
            END,
        ),
        HI,
    ),
    "W1-comments": (sse(": PROCESSING\n\n" * 5, CREATED, say("Hi"), ": still\n\n", END), HI),
    "W2-events-without-data": (
        sse("event: ping\n\nretry: 10\n\ndata: \n\nid: 1\n\n\n\n", CREATED, say("Hi"), "id: 2\n\n\n", END),
        HI,
    ),
    "W3-cut-json": (sse(say("Hi"), 'data: {"type": \n\n', END), Bad("protocol", "Hi")),
    "W5-eof-without-the-end": (sse(CREATED, say("Hi"), done(message("Hi"))), Bad("truncated", "Hi")),
    "W5-calls-of-a-cut-stream": (sse(CREATED, added(fcall()), done(fcall())), Bad("truncated")),
    "W5-nothing-but-the-beginning": (sse(CREATED), Bad("truncated")),
    "W6-done-mark-without-the-end": (sse(CREATED, say("Hi"), DONE), Bad("truncated", "Hi")),
    "done-mark-after-the-end": (sse(say("Hi"), END, DONE), HI),
    "W7-html": (b"<!doctype html><html><body>Sign in</body></html>", Bad("empty")),
    "W7-nothing": (b"", Bad("empty")),
    "W7-done-mark-alone": (sse(DONE), Bad("empty")),
    "W7-bom": (sse("\ufeff", CREATED, say("Hi"), END), HI),
    "crlf": (sse(CREATED, say("H"), say("i"), END, end="\r\n"), HI),
    "cr": (sse(CREATED, say("H"), say("i"), END, end="\r"), HI),
    "no-space": (sse(CREATED, say("H"), say("i"), END, space=""), HI),
    "last-event-without-blank-line": (sse(say("Hi"), "data: " + orjson.dumps(END).decode()), HI),
    "unicode": (sse(say("你好 "), say("🚀\u2028é"), end()), Good("你好 🚀\u2028é")),
    "surrogates-in-two-pieces": (
        sse(
            'data: {"type": "response.output_text.delta", "delta": "a\\ud83d"}\n\n',
            'data: {"type": "response.output_text.delta", "delta": "\\ude80b\\ud83d"}\n\n',
            end(message("a🚀b")),
        ),
        Good("a🚀b\ufffd"),
    ),
    "whole-json": (whole(message("Hi")), HI),
    "whole-json-with-calls": (whole(thought("hm"), fcall()), Good(reasoning="hm", calls=[F], ids=["x"])),
    "whole-json-without-status": (whole(message("Hi"), status=None), HI),
    "whole-json-unfinished": (whole(message("Hi"), status="in_progress"), Bad("truncated")),
    "whole-json-failed": (
        whole(status="failed", error={"code": "rate_limit_exceeded", "message": "m"}),
        Bad("rate_limit"),
    ),
    "whole-json-incomplete": (
        whole(message("H"), status="incomplete", incomplete_details={"reason": "content_filter"}),
        Bad("content_filter", "H"),
    ),
    "whole-json-error": (b'{"error": {"message": "slow down", "code": "rate_limit_exceeded"}}', Bad("rate_limit")),
    "whole-json-of-another-api": (b'{"object": "chat.completion", "choices": [{"message": {}}]}', Bad("empty")),
    "broken-json-body": (b'{"output": [', Bad("protocol")),
    "not-an-object": (sse(say("Hi"), "data: [1]\n\n", END), Bad("protocol", "Hi")),
    "after-the-end": (sse(say("Hi"), END, say(" there"), error(message="late")), HI),
    "twice-the-end": (sse(say("Hi"), END, END), HI),
}

ERRORS = {
    "error-event": (
        sse(say("Hi"), error(code="rate_limit_exceeded", message="m", param=None)),
        Bad("rate_limit", "Hi"),
    ),
    "error-event-named": (named(CREATED, error(code="server_error", message="m")), Bad("overloaded")),
    "error-event-nested": (
        sse(CREATED, error(error={"type": "tokens", "code": "context_length_exceeded", "message": "m"})),
        Bad("context_length"),
    ),
    "error-event-nested-and-named": (
        named(CREATED, say("Hi"), error(error={"type": "invalid_request_error", "code": None, "message": "no"})),
        Bad("bad_request", "Hi"),
    ),
    "error-event-null": (sse(error(code=None, message=None)), Bad("overloaded")),
    "error-event-number": (sse(error(code="401", message="no")), Bad("auth")),
    "error-event-of-the-response": (sse(ev("error", error={"message": "overloaded"})), Bad("overloaded")),
    "W8-error-object": (sse(say("Hi"), {"error": {"message": "m", "code": "overloaded"}}), Bad("overloaded", "Hi")),
    "W8-error-object-of-a-gateway": (
        sse(say("Hi"), {"type": "upstream", "error": {"message": "too many requests"}}),
        Bad("rate_limit", "Hi"),
    ),
    "W8-error-string": (sse({"error": "context length exceeded"}), Bad("context_length")),
    "W9-vllm": (sse({"object": "error", "message": "bad things", "code": 400}), Bad("bad_request")),
    "W10-error-field": (sse(say("Hi"), 'error: {"message": "slot unavailable"}\n\n'), Bad("overloaded", "Hi")),
    "W12-minimax": (sse({"base_resp": {"status_code": 1004, "status_msg": "login fail"}}), Bad("auth")),
    "failed": (
        sse(say("Hi"), failed({"code": "rate_limit_exceeded", "message": "m"}, message("Hi"))),
        Bad("rate_limit", "Hi"),
    ),
    "failed-with-unshown-text": (
        sse(CREATED, failed({"code": "server_error"}, message("Hi"))),
        Bad("overloaded", "Hi"),
    ),
    "failed-by-policy": (
        sse(say("Hi"), failed({"code": "bio_policy", "message": "m"})),
        Bad("content_filter", "Hi"),
    ),
    "failed-by-a-flagged-prompt": (
        sse(failed({"code": "invalid_prompt", "message": "Your prompt may violate our usage policy."})),
        Bad("content_filter"),
    ),
    "failed-by-a-code-alone": (sse(failed({"code": "too_many_requests"})), Bad("rate_limit")),
    "failed-silently": (sse(say("Hi"), failed(None)), Bad("overloaded", "Hi")),
    "failed-without-a-response": (sse(ev("failed")), Bad("overloaded")),
    "completed-with-an-error": (
        sse(say("Hi"), end(error={"message": "blocked by content_policy"})),
        Bad("content_filter", "Hi"),
    ),
    "completed-but-failed": (sse(say("Hi"), end(status="failed")), Bad("overloaded", "Hi")),
    "cancelled": (sse(say("Hi"), end(kind="cancelled")), Bad("overloaded", "Hi")),
    "W24-content-filter": (sse(say("Hi"), incomplete("content_filter")), Bad("content_filter", "Hi")),
    "completed-but-incomplete": (
        sse(say("Hi"), end(status="incomplete", incomplete_details={"reason": "content_filter"})),
        Bad("content_filter", "Hi"),
    ),
    "W22-nothing": (sse(CREATED, end()), Bad("empty")),
    "thinking-only": (sse(reasons("hm"), incomplete("max_output_tokens")), Bad("empty")),
    "call-without-name": (sse(done(fcall(name="")), end()), Bad("protocol")),
    "pieces-of-no-call": (sse(more("{}"), end()), Bad("protocol")),
}

TEXT = {
    "end-alone": (sse(END), HI),
    "end-alone-without-a-response-status": (sse(end(message("Hi"), status=None)), HI),
    "end-under-an-older-name": (sse(ev("done", response={"status": "completed", "output": [message("Hi")]})), HI),
    "end-without-a-response": (sse(say("Hi"), ev("completed")), HI),
    "end-without-output": (sse(say("Hi"), end(output=None)), HI),
    "end-with-empty-output": (sse(added(message()), say("Hi"), done(message("Hi")), end()), HI),
    "end-with-an-empty-item": (sse(say("Hi"), done(message()), end(message())), HI),
    "end-with-other-text": (sse(say("Hi "), end(message("Hi"))), Good("Hi ")),
    "item-alone": (sse(done(message("Hi")), end()), HI),
    "item-twice": (sse(done(message("Hi")), done(message("Hi")), end()), HI),
    "text-in-one-piece": (sse(CREATED, ev("output_text.done", text="Hi"), end()), HI),
    "text-in-one-piece-and-again": (
        sse(ev("output_text.done", text="Hi"), ev("output_text.done", text="Hi"), done(message("Hi")), END),
        HI,
    ),
    "lost-pieces": (sse(say("H"), done(message("Hi")), END), HI),
    "lost-pieces-known-at-the-end": (sse(say("H"), END), HI),
    "without-places": (sse(ev("output_text.delta", delta="H"), ev("output_text.delta", delta="i"), END), HI),
    "an-id-of-its-own-in-each-event": (
        sse(
            added(message()),
            say("H") | {"item_id": "a"},
            say("i") | {"item_id": "b"},
            done(message("Hi", id="c")),
            end(message("Hi", id="d")),
        ),
        HI,
    ),
    "places-with-a-gap": (sse(added(message(), 3), say("Hi", 3), done(message("Hi"), 3), END), HI),
    "two-parts": (
        sse(say("H"), say("i") | {"content_index": 1}, done(message("H", "i")), end(message("H", "i"))),
        HI,
    ),
    "two-messages": (
        sse(
            added(message()),
            say("One"),
            done(message("One")),
            added(message(index=1), 1),
            say("Two", 1),
            done(message("Two", index=1), 1),
            end(message("One"), message("Two", index=1)),
        ),
        Good("One\n\nTwo"),
    ),
    "two-messages-the-second-at-the-end": (
        sse(added(message()), say("One"), end(message("One"), message("Two"))),
        Good("One\n\nTwo"),
    ),
    "two-messages-one-of-them-empty": (
        sse(added(message()), say("Hi"), added(message(index=1), 1), end(message("Hi"), message(index=1))),
        HI,
    ),
    "two-messages-interleaved": (
        sse(say("a"), say("x", 1), say("b"), done(message("xy"), 1), end(message("ab"), message("xy"))),
        Good("axb"),
    ),
    "message-announced-twice": (sse(added(message()), say("H"), added(message()), say("i"), END), HI),
    "W17-null-and-empty": (sse(say("") | {"delta": None}, say(""), say("Hi"), END), HI),
    "wrong-types": (
        sse(
            say("") | {"delta": {"text": "no"}}, done({}), ev("output_item.added", item=3), say("Hi"), end(output="no")
        ),
        HI,
    ),
    "content-as-a-string": (sse(end({"type": "message", "content": "Hi"})), HI),
    "unknown-events": (
        sse({"type": "keepalive"}, ev("web_search_call.searching", error="no"), say("Hi"), ev("new"), {"type": 3}, END),
        HI,
    ),
    "unknown-items": (
        sse(added({"type": "web_search_call"}), done({"type": "new"}), say("Hi"), end({"type": "new"})),
        HI,
    ),
    "an-event-without-a-type": (sse({"x": 1}, say("Hi"), END), HI),
    "W25-refusal": (
        sse(ev("refusal.delta", delta="No"), ev("refusal.delta", delta="."), end(message(refusal="No."))),
        Good(refusal="No."),
    ),
    "W25-refusal-in-one-piece": (
        sse(ev("refusal.done", refusal="No."), done(message(refusal="No.")), end(message(refusal="No."))),
        Good(refusal="No."),
    ),
    "W25-refusal-at-the-end": (sse(end(message(refusal="No."))), Good(refusal="No.")),
    "W23-length": (sse(say("Hi"), incomplete("max_output_tokens", message("Hi"))), HI),
    "W26-unknown-reason": (sse(say("Hi"), incomplete("max_messages")), HI),
    "incomplete-without-reason": (sse(say("Hi"), incomplete(None)), HI),
    "W45-tool-call": (sse(say("Look: <tool"), say('_call>{"name": "f"}'), end()), Bad("tool_markup", "Look: ")),
    "W45-in-code": (sse(say(IN_CODE), end(message(IN_CODE))), Good(IN_CODE)),
    "W45-almost": (sse(say("a < b, <too"), say("l"), end(message("a < b, <tool"))), Good("a < b, <tool")),
    "W50-think": (
        sse(say("<think>\nhm</th"), say("ink>\n\nHi"), end(message("<think>\nhm</think>\n\nHi"))),
        Good("Hi", "hm"),
    ),
    "W50-think-at-the-end": (sse(end(message("<think>hm</think>Hi"))), Good("Hi", "hm")),
}

REASONING = {
    "summary": (
        sse(
            added(thought()),
            reasons("h"),
            reasons("m"),
            done(thought("hm")),
            say("Hi", 1),
            end(thought("hm"), message("Hi")),
        ),
        Good("Hi", "hm"),
    ),
    "summary-of-two-parts": (
        sse(
            ev("reasoning_summary_part.added", summary_index=0),
            reasons("one"),
            ev("reasoning_summary_part.added", summary_index=1),
            reasons("two"),
            done(thought("one", "two")),
            say("Hi", 1),
            end(thought("one", "two"), message("Hi")),
        ),
        Good("Hi", "one\n\ntwo"),
    ),
    "summary-of-two-parts-unannounced": (
        sse(reasons("one"), reasons("two"), done(thought("one", "two")), say("Hi", 1), END),
        Good("Hi", "onetwo"),
    ),
    "summary-of-two-items": (
        sse(
            added(thought()),
            reasons("one"),
            done(thought("one")),
            added(thought(id="rs_2"), 1),
            done(thought("two", id="rs_2"), 1),
            say("Hi", 2),
            end(thought("one"), thought("two", id="rs_2"), message("Hi")),
        ),
        Good("Hi", "one\n\ntwo"),
    ),
    "text": (
        sse(
            reasons("hm", "reasoning_text"),
            done(thought(content=[{"type": "reasoning_text", "text": "hm"}])),
            say("Hi", 1),
            end(thought(content=[{"type": "reasoning_text", "text": "hm"}]), message("Hi")),
        ),
        Good("Hi", "hm"),
    ),
    "W47-text-and-summary": (
        sse(
            reasons("hm", "reasoning_text"),
            ev("reasoning_summary_part.added", summary_index=0),
            reasons("short"),
            reasons("!", "reasoning_text"),
            say("Hi", 1),
            end(thought("short", content=[{"type": "reasoning_text", "text": "hm!"}]), message("Hi")),
        ),
        Good("Hi", "hm!"),
    ),
    "with-its-item": (sse(done(thought("hm")), say("Hi", 1), END), Good("Hi", "hm")),
    "at-the-end": (sse(say("Hi", 1), end(thought("hm"), message("Hi"))), Good("Hi", "hm")),
    "sealed": (sse(added(thought()), done(thought()), say("Hi", 1), end(thought(), message("Hi"))), HI),
    "text-after-a-sealed-item": (
        sse(
            done(thought()),
            done(message("Hi", index=1), 1),
            reasons("hm", "reasoning_text"),
            end(thought(), message("Hi"), thought(content=[{"type": "reasoning_text", "text": "hm"}])),
        ),
        Good("Hi", "hm"),
    ),
    "null-fields": (sse(done(thought(summary=None, content=None)), say("Hi"), end(thought(summary=[None]))), HI),
}

ALL = {
    f"{group}-{name}": case
    for group, cases in (
        ("framing", FRAMING),
        ("errors", ERRORS),
        ("text", TEXT),
        ("reasoning", REASONING),
        ("tools", TOOLS),
    )
    for name, case in cases.items()
}
