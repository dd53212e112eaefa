"""Tool calls that a model wrote into its text, for servers without a tool parser (`text_tool_markup = "parse"`).

A text may show such markup without meaning it, so what is read here must be a whole: every tag closed, nothing behind
the last one, a tool that is on offer, its required arguments there and no others. Anything else is no call.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from harness.messages import JsonObject, ToolCall
from harness.providers.base import ToolSpec
from harness.providers.wire import as_list, as_object, as_text, parse_arguments

# <tool_call>{"name": .., "arguments": {..}}</tool_call>
_JSON_BLOCK: Final = re.compile(r"<(tool_call|function_call)>\s*(\{.*?\})\s*</\1>", re.DOTALL)
# <function=name><parameter=key>value</parameter></function>
_FUNCTION: Final = re.compile(r"<function=([\w.-]+)>(.*?)</function>", re.DOTALL)
_PARAMETER: Final = re.compile(r"<parameter=([\w.-]+)>(.*?)</parameter>", re.DOTALL)
# <invoke name="name"><parameter name="key">value</parameter></invoke>, perhaps with a prefix in each tag
_INVOKE: Final = re.compile(r'<([^<>\s/"=]*)invoke name="([^"]+)">(.*?)</\1invoke>', re.DOTALL)
_NAMED: Final = re.compile(r'<([^<>\s/"=]*)parameter name="([^"]+)"[^<>]*>(.*?)</\1parameter>', re.DOTALL)
# What may stand around the calls.
_WRAPPER: Final = re.compile(r"</?(?:[^<>\s/\"=]*)(?:tool_calls?|function_calls?)>|\s+")
_MAX_CHARS: Final = 100_000
"""A longer text is not searched: unclosed tags in it would take the patterns too long."""
_LIST_MARK: Final = "[TOOL_CALLS]"


class TextToolParser:
    """Reads calls of these tools out of a text; `new_id` makes their ids."""

    def __init__(self, tools: Sequence[ToolSpec], new_id: Callable[[], str]) -> None:
        self._schemas: Mapping[str, JsonObject] = {tool.name: tool.parameters for tool in tools}
        self._new_id = new_id

    def __call__(self, text: str) -> Sequence[ToolCall]:
        """The calls that the text is made of, from its first tag to its end; none when it is anything else."""
        if len(text) > _MAX_CHARS:
            return ()
        found = self._listed(text) if text.startswith(_LIST_MARK) else self._tagged(text)
        calls: list[ToolCall] = []
        for name, raw in found or ():
            arguments = parse_arguments(raw)
            if arguments is None or not self._fits(name, arguments):
                return ()
            calls.append(ToolCall(self._new_id(), name, arguments, raw))
        return calls

    def _listed(self, text: str) -> list[tuple[str, str]] | None:
        try:
            listed: object = json.loads(text.removeprefix(_LIST_MARK))
        except (ValueError, RecursionError):
            return None
        return [_name_and_arguments(as_object(item) or {}) for item in as_list(listed)]

    def _tagged(self, text: str) -> list[tuple[str, str]] | None:
        found: list[tuple[int, str, str]] = []
        rest = text
        for pattern in (_FUNCTION, _INVOKE, _JSON_BLOCK):
            found += [(match.start(), *self._read(pattern, match)) for match in pattern.finditer(rest)]
            # Blanked, not cut: the places of what is left stay as they are.
            rest = pattern.sub(lambda match: " " * len(match[0]), rest)
        if _WRAPPER.sub("", rest):
            return None
        return [(name, raw) for _, name, raw in sorted(found)]

    def _read(self, pattern: re.Pattern[str], match: re.Match[str]) -> tuple[str, str]:
        if pattern is _JSON_BLOCK:
            try:
                return _name_and_arguments(as_object(json.loads(match[2])) or {})
            except (ValueError, RecursionError):
                return "", ""
        if pattern is _FUNCTION:
            name, values = match[1], ((item[1], item[2]) for item in _PARAMETER.finditer(match[2]))
        else:
            name, values = match[2], ((item[2], item[3]) for item in _NAMED.finditer(match[3]))
        return name, json.dumps(dict(self._typed(name, values)), ensure_ascii=False)

    def _typed(self, name: str, values: Iterator[tuple[str, str]]) -> Iterator[tuple[str, object]]:
        """The values as what the schema says they are: in tags everything is text."""
        properties = as_object(self._schemas.get(name, {}).get("properties")) or {}
        for key, text in values:
            value = text.removeprefix("\n").removesuffix("\n")
            if (as_object(properties.get(key)) or {}).get("type") == "string":
                yield key, value
                continue
            try:
                yield key, json.loads(value)
            except (ValueError, RecursionError):
                yield key, value

    def _fits(self, name: str, arguments: JsonObject) -> bool:
        schema = self._schemas.get(name)
        if schema is None:
            return False
        known = set(as_object(schema.get("properties")) or {})
        return set(as_list(schema.get("required"))) <= set(arguments) <= known


def _name_and_arguments(call: JsonObject) -> tuple[str, str]:
    arguments = call.get("arguments", call.get("parameters"))
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return as_text(call.get("name")), raw
