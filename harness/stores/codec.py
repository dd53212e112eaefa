"""Records to and from JSON. Pure.

The types of `harness` are the schema: a field is stored under its name, a member of a union with its tag in `_TAGS`.
So names and tags are part of what is stored. A field that is added needs a default, and a record may hold fields that
this code does not know; whatever changes the meaning of a field needs a new `RECORD_VERSION`.
"""

import json
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, Generic, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import orjson

from harness.admission import RunInput
from harness.approval import Approval, Grant
from harness.errors import StoreError
from harness.events import Event, RunError
from harness.messages import (
    AssistantMessage,
    JsonObject,
    Message,
    Reasoning,
    SummaryMessage,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from harness.stores.base import ParkedRun

RECORD_VERSION: Final = 1
"""Written into every row."""

_TAG: Final = "is"
_TAGS: Final[Mapping[type, str]] = {
    UserMessage: "user",
    AssistantMessage: "assistant",
    ToolResult: "result",
    SummaryMessage: "summary",
    Text: "text",
    Reasoning: "reasoning",
    ToolCall: "call",
    **{event: event.kind for event in get_args(Event)},
}
# orjson reads a whole number that does not fit into 64 bits as a float.
_LONG_NUMBER = re.compile(r"\d{19}")

_T = TypeVar("_T")
_Read = Callable[[Any], Any]


class Codec(Generic[_T]):
    """One kind of record. `hint`: its type."""

    def __init__(self, hint: object) -> None:
        self._hint = hint

    def encode(self, value: _T) -> str:
        """The JSON of a record. Half a character (a lone surrogate) becomes U+FFFD: no database could hold it.

        Raises StoreError for what JSON cannot say.
        """
        try:
            try:
                return orjson.dumps(_plain(value, _same)).decode()
            except (TypeError, UnicodeEncodeError):
                return orjson.dumps(_plain(value, _whole)).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"a {type(value).__name__} cannot be stored: {error}") from error

    def decode(self, text: str, version: int = RECORD_VERSION) -> _T:
        """The record. Raises StoreError when it was written by newer code, or is damaged."""
        check_version(version)
        try:
            return cast("_T", _reader(self._hint)(_parse(text)))
        except (TypeError, ValueError, KeyError, RecursionError) as error:
            raise StoreError(f"a stored record is damaged ({error}): restore the database from a backup") from error


def check_version(version: int) -> None:
    """Raise StoreError for a row that newer code has written: guessing at its meaning would damage it."""
    if version > RECORD_VERSION:
        raise StoreError(
            f"a stored record has format {version}, and this version of the program knows formats up to "
            f"{RECORD_VERSION}: upgrade the program"
        )


# --- writing ---------------------------------------------------------------------------------------------------------


def _same(text: str) -> str:
    return text


def _whole(text: str) -> str:
    # Joins two halves that belong together, too.
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _plain(value: Any, text: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, tuple):
        return [_plain(item, text) for item in cast("tuple[Any, ...]", value)]
    if isinstance(value, Mapping):
        # Any JSON at all: the standard library keeps whole numbers of any length, infinity and deep nesting.
        made = json.dumps(cast("JsonObject", value), ensure_ascii=False, separators=(",", ":"))
        return orjson.Fragment(text(made).encode())
    if is_dataclass(value):
        tag = _TAGS.get(type(value))
        plain: dict[str, Any] = {} if tag is None else {_TAG: tag}
        for name in _names(type(value)):
            plain[name] = _plain(getattr(value, name), text)
        return plain
    return value


@cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


# --- reading ---------------------------------------------------------------------------------------------------------


def _parse(text: str) -> Any:
    if not _LONG_NUMBER.search(text):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # infinity, which only the standard library reads; it will say what else is wrong
    return json.loads(text)


@cache
def _reader(hint: Any) -> _Read:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union(arguments)
    if origin is tuple:
        return _sequence(arguments)
    if origin is Literal:
        return _checked(lambda value: value in arguments, "one of the known words")
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _checked(lambda value: isinstance(value, dict), "an object")
    if is_dataclass(hint):
        return _record(cast("type", hint))
    if issubclass(hint, Enum):
        return hint
    if hint is float:
        return _checked(lambda value: type(value) in (int, float), "a number")
    return _checked(lambda value: type(value) is hint, hint.__name__)


def _checked(is_right: Callable[[Any], bool], what: str) -> _Read:
    def read(value: Any) -> Any:
        if not is_right(value):
            raise ValueError(f"{value!r:.40} is not {what}")
        return value

    return read


def _sequence(arguments: tuple[Any, ...]) -> _Read:
    if arguments[-1] is Ellipsis:
        item = _reader(arguments[0])
        return lambda values: tuple([item(value) for value in values])
    items = [_reader(argument) for argument in arguments]
    return lambda values: tuple([read(value) for read, value in zip(items, values, strict=True)])


def _union(arguments: tuple[Any, ...]) -> _Read:
    tagged = {_TAGS[member]: _reader(member) for member in arguments if member in _TAGS}
    others = [_reader(member) for member in arguments if member not in _TAGS and member is not types.NoneType]
    assert len(others) <= 1, "only tagged types can be told apart"

    def read(value: Any) -> Any:
        if value is None:
            if types.NoneType in arguments:
                return None
            raise ValueError("null is not expected here")
        read_value = others[0] if others else tagged[value[_TAG]]
        return read_value(value)

    return read


def _record(cls: type) -> _Read:
    hints = get_type_hints(cls)
    readers: dict[str, _Read] = {}
    required: set[str] = set()
    for field in fields(cls):
        readers[field.name] = _reader(hints[field.name])
        if field.default is MISSING and field.default_factory is MISSING:
            required.add(field.name)

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r:.40} is no object")  # noqa: TRY004 - damaged data, no wrong call
        if missing := required - cast("dict[str, Any]", value).keys():
            raise ValueError(f"{cls.__name__} without {min(missing)}")
        return cls(**{name: read_field(value[name]) for name, read_field in readers.items() if name in value})

    return read


MESSAGE: Final = Codec[Message](Message)
EVENT: Final = Codec[Event](Event)
CALL: Final = Codec[ToolCall](ToolCall)
APPROVAL: Final = Codec[Approval](Approval)
GRANT: Final = Codec[Grant](Grant)
RUN_INPUT: Final = Codec[RunInput](RunInput)
PARKED_RUN: Final = Codec[ParkedRun](ParkedRun)
USAGE: Final = Codec[Usage](Usage)
RUN_ERROR: Final = Codec[RunError](RunError)
PLACE: Final = Codec[Mapping[str, str]](Mapping[str, str])
TEXT: Final = Codec[str](str)
"""Free text is stored as a JSON string: PostgreSQL has no zero character, and what tools print may have one."""
