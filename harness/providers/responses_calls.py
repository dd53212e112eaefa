"""The function calls of one response of the Responses API, put together from its events.

An event names its call by an item id and by the place in the output. Servers get either wrong: an id that changes with
each event or that two calls share, the same place for all. So an id counts while one call has it, then the place, and
what neither tells belongs to the call that is open.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness.errors import ProviderError
from harness.messages import JsonObject, ToolCall
from harness.providers.base import ToolCallDelta
from harness.providers.wire import as_text, parse_arguments


@dataclass(slots=True)
class _Call:
    """`given`: arguments that its item began with, which count if no others follow; `whole`: its last word on them.

    `is_closed`: its arguments are final. `is_cut`: the server says that they are not all there.
    """

    position: int
    call_id: str = ""
    name: str = ""
    given: str = ""
    whole: str = ""
    is_closed: bool = False
    is_cut: bool = False
    announced: bool = False
    pieces: list[str] = field(default_factory=list[str])

    @property
    def arguments(self) -> str:
        return self.whole or "".join(self.pieces) or self.given

    def may_be(self, call_id: str, name: str) -> bool:
        """Whether nothing speaks against this being the call of that id and name."""
        return not (call_id and self.call_id and call_id != self.call_id) and not (
            name and self.name and name != self.name
        )

    def close(self, item: JsonObject) -> str:
        """Take the call as a finished item or event has it; returns what is new in the arguments, for display."""
        self.call_id = self.call_id or as_text(item.get("call_id"))
        self.name = self.name or as_text(item.get("name"))
        self.is_cut = self.is_cut or item.get("status") == "incomplete"
        self.is_closed = True
        shown = self.whole or "".join(self.pieces)
        final = _arguments_text(item.get("arguments"))
        if shown and (final.strip() in {"", "null"} or (final.strip() == "{}" and parse_arguments(shown))):
            return ""  # a server that forgot at the end what it had written
        self.whole = final
        return final[len(shown) :] if final.startswith(shown) else ""


class ResponseCalls:
    """Collects the calls of one response. `new_id` makes our own call ids.

    Each method takes an event and returns what a display may show of it.
    """

    __slots__ = ("_at_index", "_calls", "_new_id", "_with_item")

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._calls: list[_Call] = []
        self._at_index: dict[int, _Call] = {}
        self._with_item: dict[str, _Call | None] = {}
        """None: more than one call has this id, so it says nothing."""

    def begin(self, item: JsonObject, event: JsonObject) -> ToolCallDelta | None:
        """`response.output_item.added`."""
        call_id, name = as_text(item.get("call_id")), as_text(item.get("name"))
        call = self._named(event, as_text(item.get("id")))
        # Told twice it is the same call; but without an id, one whose arguments are final is not told again.
        if call is None or not call.may_be(call_id, name) or (call.is_closed and not call_id):
            call = self._opened(event, as_text(item.get("id")))
        call.call_id = call.call_id or call_id
        call.name = call.name or name
        call.given = _arguments_text(item.get("arguments"))
        return _shown(call, "")

    def more(self, event: JsonObject) -> ToolCallDelta | None:
        """`response.function_call_arguments.delta`."""
        fragment = event.get("delta")
        if not fragment or not isinstance(fragment, str):
            return None
        item_id = as_text(event.get("item_id"))
        call = self._named(event, item_id)
        if call is None or call.is_closed:
            unfinished = self._unfinished()
            if call is not None and (not unfinished or self._with_item.get(item_id) is call):
                return None  # its arguments were final
            call = unfinished[0] if unfinished else self._opened(event, item_id)
        call.pieces.append(fragment)
        return _shown(call, fragment)

    def end(self, item: JsonObject, event: JsonObject) -> ToolCallDelta | None:
        """`response.output_item.done`, or `response.function_call_arguments.done`, which is both item and event."""
        call_id, name = as_text(item.get("call_id")), as_text(item.get("name"))
        item_id = as_text(item.get("item_id")) or as_text(item.get("id"))
        named = self._named(event, item_id)
        candidates = [named] if named is not None else self._unfinished()
        if call_id:
            # Its own id tells a call from all others, unless two of them have the same.
            candidates += [call for call in self._calls if call.call_id == call_id]
        call = next((call for call in candidates if call.may_be(call_id, name)), None)
        if call is None:
            call = self._opened(event, item_id)
        return _shown(call, call.close(item))

    def settle(self, output: Sequence[JsonObject]) -> list[ToolCallDelta]:
        """The function calls of the whole response: they complete what the events brought, and never double it."""
        left = list(self._calls)
        pairs: list[tuple[JsonObject, _Call | None]] = []
        for item in output:
            call_id = as_text(item.get("call_id"))
            call = next((call for call in left if call_id and call.call_id == call_id), None)
            if call is not None:
                left.remove(call)
            pairs.append((item, call))
        shown: list[ToolCallDelta | None] = []
        for item, paired in pairs:
            call = paired
            if call is None:
                # Without ids in common the order tells.
                call = next((call for call in left if call.may_be("", as_text(item.get("name")))), None)
                if call is not None:
                    left.remove(call)
                else:
                    call = self._opened({}, "")
            shown.append(_shown(call, call.close(item)))
        return [delta for delta in shown if delta is not None]

    def finish(self, *, cut: bool) -> list[ToolCall]:
        """The calls, in the order in which they began. `cut`: the response ended before its time.

        Raises `ProviderError` (protocol) for a call without a name.
        """
        calls: list[ToolCall] = []
        for call in self._calls:
            if not call.name:
                raise ProviderError("protocol", "The model asked for a tool call without naming the tool.")
            raw = call.arguments
            arguments = parse_arguments(raw)
            if not raw.strip() and (call.is_cut or (cut and not call.is_closed)):
                # Nothing at all means no arguments, but not where they may still have been on their way.
                arguments = None
            calls.append(
                ToolCall(
                    id=self._new_id(),
                    name=call.name,
                    arguments=arguments,
                    raw_arguments=raw if arguments or arguments is None else "{}",
                    provider_id=call.call_id,
                )
            )
        return calls

    def _named(self, event: JsonObject, item_id: str) -> _Call | None:
        """The call that the event names, by its item's id or its place."""
        call = self._with_item.get(item_id) if item_id else None
        index = event.get("output_index")
        return self._at_index.get(index) if call is None and isinstance(index, int) else call

    def _unfinished(self) -> list[_Call]:
        """The call that was begun last, if it is still open."""
        return [call for call in self._calls[-1:] if not call.is_closed]

    def _opened(self, event: JsonObject, item_id: str) -> _Call:
        call = _Call(len(self._calls))
        self._calls.append(call)
        index = event.get("output_index")
        if isinstance(index, int):
            self._at_index[index] = call
        if item_id:
            self._with_item[item_id] = None if item_id in self._with_item else call
        return call


def _shown(call: _Call, new: str) -> ToolCallDelta | None:
    if not call.name:
        return None
    if not call.announced:
        call.announced = True
        return ToolCallDelta(call.position, call.name, call.whole or "".join(call.pieces))
    return ToolCallDelta(call.position, "", new) if new else None


def _arguments_text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)
