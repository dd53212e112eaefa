"""What the scripted model server needs of a wire protocol: checks of requests, and the bytes of answers. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from harness.messages import JsonObject
from harness.providers.script import Call, Heard, Say, Step, Think


class BadRequest(Exception):
    """The request breaks a rule of the API; `param` names the field."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A checked request. `include_usage`: the caller wants token figures in a stream."""

    model: str
    messages: Sequence[JsonObject]
    stream: bool
    heard: Heard
    prompt_tokens: int
    include_usage: bool = True


class WireAnswer(Protocol):
    """One response being written; knows what was said, so that it can close with reason and usage."""

    def head(self) -> Iterator[bytes]:
        """What a stream begins with."""
        ...

    def step(self, step: Say | Think | Call) -> Iterator[bytes]:
        """The events of one step, in fragments as the real server writes them."""
        ...

    def failure(self, message: str, status: int) -> Iterator[bytes]:
        """An error in the middle of a stream that began with 200."""
        ...

    def tail(self) -> Iterator[bytes]:
        """The end of a good answer."""
        ...

    def whole(self, steps: Sequence[Step]) -> bytes:
        """The same answer without streaming."""
        ...


class Wire(Protocol):
    """One protocol; `path` is where its requests go."""

    path: str

    def is_authorized(self, headers: Mapping[str, str]) -> bool:
        """Whether the request carries a key, whatever it is. Header names in lower case."""
        ...

    def parse(self, body: bytes) -> WireRequest:
        """Check as strictly as the strict servers do. Raises `BadRequest`."""
        ...

    def answer(self, number: int, request: WireRequest) -> WireAnswer:
        """The answer to the request, the server's `number`th."""
        ...

    def error(self, message: str, status: int, param: str | None = None) -> JsonObject:
        """The body of an error response."""
        ...


def json_body(body: bytes) -> JsonObject:
    """The body as an object. Raises `BadRequest`."""
    try:
        data: object = orjson.loads(body)
    except ValueError as error:
        raise BadRequest("We could not parse the JSON body of your request.") from error
    if not isinstance(data, dict):
        raise BadRequest("The body must be a JSON object.")
    return data  # pyright: ignore[reportUnknownVariableType]  # the keys of a JSON object are strings


def has_bearer(headers: Mapping[str, str]) -> bool:
    """Whether there is a bearer token."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and bool(token.strip())


def data_event(data: object, name: str = "") -> bytes:
    """One server-sent event, with its name where the protocol names events."""
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + orjson.dumps(data) + b"\n\n"
