"""Tool calls put together from the fragments of a stream, under every id and index style that servers use.

One set of rules instead of a case per server; each rule reads only what the fragment itself says:

1. Absent is absent: None and "" as id or name say nothing; a fragment that says nothing is skipped.
2. A fragment belongs to the call at its index, else to the call with its id, else to the current call.
3. It begins a new call when it contradicts that call: another index or id, with a name or with the call complete.
4. Id and name are set once, never appended.
5. Arguments are appended, but a fragment that repeats all of a complete text replaces it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson

from harness.errors import ProviderError
from harness.messages import JsonObject, ToolCall
from harness.providers.base import ToolCallDelta
from harness.providers.wire import as_object, as_text, parse_arguments

_STANDARD_FIELDS = frozenset({"index", "id", "type", "function"})


@dataclass(slots=True)
class _Fragment:
    index: int | None
    id: str
    name: str
    arguments: str
    extras: dict[str, object]

    @property
    def opens_object(self) -> bool:
        return self.arguments.lstrip().startswith("{")


@dataclass(slots=True)
class _Call:
    position: int
    index: int | None
    id: str = ""
    name: str = ""
    extras: dict[str, object] = field(default_factory=dict[str, object])
    announced: bool = False
    _pieces: list[str] = field(default_factory=list[str])
    _size: int = 0

    @property
    def arguments(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def is_empty(self) -> bool:
        return self._size == 0

    @property
    def is_complete(self) -> bool:
        return not self.is_empty and _is_object(self.arguments)

    def add(self, fragment: str) -> str:
        """Take more of the arguments; returns what is new in them, for display."""
        if self.is_empty and fragment.strip() in {"", "null"}:
            return ""
        if not self.is_empty and len(fragment) >= self._size:
            before = self.arguments
            extends = fragment.startswith(before) or (before == "{}" and fragment.startswith("{"))
            if extends and self.is_complete:
                self._pieces, self._size = [fragment], len(fragment)
                return fragment[len(before) :] if fragment.startswith(before) else fragment
        self._pieces.append(fragment)
        self._size += len(fragment)
        return fragment


class ToolCallCollector:
    """Collects the calls of one response. `new_id` makes our own call ids."""

    __slots__ = ("_at_index", "_calls", "_new_id", "_with_id")

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._calls: list[_Call] = []
        self._at_index: dict[int, _Call] = {}
        self._with_id: dict[str, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def feed(self, entry: object) -> ToolCallDelta | None:
        """Take one entry of `tool_calls`; returns what a display may show of it."""
        fragment = _read(entry)
        if fragment is None:
            return None
        call = self._call_for(fragment)
        if fragment.index is not None:
            self._at_index[fragment.index] = call
        if fragment.id and not call.id:
            call.id = fragment.id
            self._with_id[fragment.id] = call
        call.name = call.name or fragment.name
        call.extras.update(fragment.extras)
        new = call.add(fragment.arguments)
        if not call.name:
            return None
        if not call.announced:
            call.announced = True
            return ToolCallDelta(call.position, call.name, call.arguments)
        return ToolCallDelta(call.position, "", new) if new else None

    def finish(self) -> list[ToolCall]:
        """The calls, in the order in which they began. Raises `ProviderError` (protocol) for one without a name."""
        calls: list[ToolCall] = []
        for call in self._calls:
            if not call.name:
                raise ProviderError("protocol", "The model asked for a tool call without naming the tool.")
            raw = call.arguments
            arguments = parse_arguments(raw)
            calls.append(
                ToolCall(
                    id=self._new_id(),
                    name=call.name,
                    arguments=arguments,
                    raw_arguments=raw if arguments or arguments is None else "{}",
                    provider_id=call.id,
                    provider_data=call.extras or None,
                )
            )
        return calls

    def _call_for(self, fragment: _Fragment) -> _Call:
        candidate = self._candidate(fragment)
        if candidate is None or _contradicts(fragment, candidate):
            candidate = _Call(len(self._calls), fragment.index)
            self._calls.append(candidate)
        return candidate

    def _candidate(self, fragment: _Fragment) -> _Call | None:
        at_index = None if fragment.index is None else self._at_index.get(fragment.index)
        with_id = self._with_id.get(fragment.id) if fragment.id else None
        if with_id is not None and not fragment.name:
            # Several calls may share one index; the id then says which of them goes on.
            return with_id
        return at_index or with_id or (self._calls[-1] if self._calls else None)


def _contradicts(fragment: _Fragment, call: _Call) -> bool:
    """Does the fragment begin another call than this candidate?"""
    other_index = fragment.index is not None and call.index is not None and fragment.index != call.index
    other_id = bool(fragment.id) and bool(call.id) and fragment.id != call.id
    if not fragment.name:
        if other_index and other_id:
            return True
        return other_id and call.is_complete and fragment.opens_object
    if not call.name:
        return other_index or other_id
    if fragment.name != call.name:
        return True
    if other_index and (other_id or not fragment.id):
        return True
    if other_id:
        return call.is_empty or call.is_complete
    if fragment.id or fragment.index is not None:
        # The same call by id or index, named again in each chunk; unless a second object begins.
        return call.is_complete and fragment.opens_object and not _repeats(fragment, call)
    # Neither id nor index: a name begins a call, unless the fragment can only be the rest of the one before.
    return call.is_empty or call.is_complete or fragment.opens_object


def _repeats(fragment: _Fragment, call: _Call) -> bool:
    return call.arguments == "{}" or fragment.arguments.startswith(call.arguments)


def _read(value: object) -> _Fragment | None:
    entry = as_object(value)
    if entry is None:
        return None
    function = as_object(entry.get("function")) or {}
    index = entry.get("index")
    extras = {key: item for key, item in entry.items() if key not in _STANDARD_FIELDS and item is not None}
    fragment = _Fragment(
        index=index if isinstance(index, int) else None,
        id=_id_text(entry.get("id")),
        name=as_text(function.get("name")),
        arguments=_arguments_text(function.get("arguments")),
        extras=extras,
    )
    says_nothing = not (fragment.id or fragment.name or fragment.arguments or extras)
    return None if says_nothing else fragment


def _id_text(value: object) -> str:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else as_text(value)


def _arguments_text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        # A whole number beyond 64 bits, which JSON may hold and orjson does not write.
        return json.dumps(value, ensure_ascii=False)


def _is_object(text: str) -> bool:
    stripped = text.strip()
    if not (stripped.startswith("{") and stripped.endswith("}")):
        return False
    arguments: JsonObject | None = parse_arguments(stripped)
    return arguments is not None
