"""A short way to write what a server of the Responses API sends."""

from typing import Any

from tests.providers.wire import sse


def ev(kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def say(text: str, index: int = 0, **more: Any) -> dict[str, Any]:
    return ev("output_text.delta", item_id=f"msg_{index}", output_index=index, content_index=0, delta=text, **more)


def message(*texts: str, index: int = 0, refusal: str = "", **more: Any) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    if refusal:
        content.append({"type": "refusal", "refusal": refusal})
    return {"type": "message", "id": f"msg_{index}", "role": "assistant", "content": content, **more}


def fcall(name: str = "f", args: Any = '{"a": 1}', call_id: str | None = "x", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name, "arguments": args, **more}


def thought(*summary: str, sealed: str | None = "sealed", **more: Any) -> dict[str, Any]:
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return {"type": "reasoning", "id": "rs_1", "summary": parts, "encrypted_content": sealed, **more}


def added(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    """As the API writes it: the item is still empty."""
    empty = {"arguments": "", "content": [], "summary": []}
    return ev("output_item.added", output_index=index, item=item | {k: v for k, v in empty.items() if k in item})


def done(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return ev("output_item.done", output_index=index, item=item)


def more(fragment: str, index: int = 0, item_id: str = "fc_x") -> dict[str, Any]:
    return ev("function_call_arguments.delta", item_id=item_id, output_index=index, delta=fragment)


def end(*output: dict[str, Any], kind: str = "completed", **fields: Any) -> dict[str, Any]:
    response = {"id": "resp_1", "object": "response", "status": kind, "error": None, "output": list(output)}
    return ev(kind, response=response | fields)


def incomplete(reason: str | None, *output: dict[str, Any]) -> dict[str, Any]:
    return end(*output, kind="incomplete", incomplete_details=None if reason is None else {"reason": reason})


def failed(error: Any, *output: dict[str, Any]) -> dict[str, Any]:
    return end(*output, kind="failed", error=error)


CREATED = ev("created", response={"id": "resp_1", "status": "in_progress", "output": [], "usage": None})


def named(*events: dict[str, Any]) -> bytes:
    """The events as the API writes them, each with its name."""
    return b"".join(f"event: {event['type']}\n".encode() + sse(event) for event in events)
