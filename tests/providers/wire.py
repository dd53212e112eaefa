"""A short way to write what a server sends: chunks as data, and the bytes they make on the wire."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from harness.errors import ErrorKind
from harness.messages import AssistantMessage, Reasoning, Text

DONE = "[DONE]"


def delta(reason: str | None = None, /, **fields: Any) -> dict[str, Any]:
    """One chunk: `D{fields}`, and `F=reason`."""
    choice = {"index": 0, "delta": fields, "finish_reason": reason}
    return {"id": "c-1", "object": "chat.completion.chunk", "choices": [choice]}


def say(text: str, reason: str | None = None) -> dict[str, Any]:
    return delta(reason, content=text)


def call(index: int | None = None, id: str | None = None, name: str | None = None, args: Any = None) -> dict[str, Any]:
    """`T{index, id, name, arguments}`; None is absent."""
    function = {key: value for key, value in (("name", name), ("arguments", args)) if value is not None}
    entry: dict[str, Any] = {"function": function} if function else {}
    if index is not None:
        entry["index"] = index
    if id is not None:
        entry["id"] = id
    return entry


def calls(*entries: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return delta(reason, tool_calls=list(entries))


def usage(prompt: int | None, completion: int | None) -> dict[str, Any]:
    figures = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {"id": "c-1", "object": "chat.completion.chunk", "choices": [], "usage": figures}


def sse(*events: object, end: str = "\n", space: str = " ") -> bytes:
    """The events as bytes: a str or bytes stands as it is, anything else becomes a `data:` line of JSON."""
    out = b""
    for event in events:
        if event == DONE:
            out += f"data:{space}[DONE]{end}{end}".encode()
        elif isinstance(event, str):
            out += event.encode()
        elif isinstance(event, bytes):
            out += event
        else:
            out += f"data:{space}".encode() + orjson.dumps(event) + f"{end}{end}".encode()
    return out


@dataclass(frozen=True)
class Good:
    """What a good response comes to."""

    text: str = ""
    reasoning: str = ""
    calls: Sequence[tuple[str, Any]] = ()
    ids: Sequence[str] | None = None
    refusal: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "calls", tuple(self.calls))
        object.__setattr__(self, "ids", None if self.ids is None else tuple(self.ids))

    @classmethod
    def of(cls, message: AssistantMessage, *, ids: bool) -> "Good":
        parts = message.parts
        return cls(
            text="".join(part.text for part in parts if isinstance(part, Text) and not part.refusal),
            reasoning="".join(part.text for part in parts if isinstance(part, Reasoning)),
            calls=tuple((call.name, call.arguments) for call in message.tool_calls),
            ids=tuple(call.provider_id for call in message.tool_calls) if ids else None,
            refusal="".join(part.text for part in parts if isinstance(part, Text) and part.refusal),
        )


@dataclass(frozen=True)
class Bad:
    """How a failed response ends: the kind, and the text that was shown before."""

    kind: ErrorKind
    text: str = ""


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait until it holds; TimeoutError when it does not in time."""
    async with asyncio.timeout(seconds):
        while not condition():  # whatever is waited for sets no event
            await asyncio.sleep(0.005)
