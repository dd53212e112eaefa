"""A stored conversation for people and for programs: rows on a screen, Markdown, JSON. Pure.

On the screen everything but a heading is indented, so that no text of a model or a stranger can look like one.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, assert_never

from rich.cells import cell_len

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
from harness.reporters.visible import one_line, rows, visible

Row = tuple[str, str]
"""A row of the screen and its style."""

_INDENT: Final = "  "
_ASSISTANT: Final = "Assistant"
_HIDDEN: Final = "[here the conversation was made shorter for the model]"


def shown(messages: Sequence[Message], *, width: int | None = None, most: int | None = None) -> Iterator[Row]:
    """The conversation as a person reads it.

    `width`: cells of the screen, None = lines are not broken. `most`: so many rows of each text are enough.
    """
    heading = ""
    for message in messages:
        title = _heading(message)
        if title and (title != heading or isinstance(message, UserMessage)):
            if heading:
                yield "", ""
            yield title, "bold"
            heading = title
        for text, style in _rows_of(message):
            lines = [row for line in text.split("\n") for row in _broken(line, width)]
            for line in lines if most is None else lines[:most]:
                yield f"{_INDENT}{line}".rstrip(), style
            if most is not None and len(lines) > most:
                yield f"{_INDENT}...", "dim"


def last_exchange(messages: Sequence[Message]) -> Sequence[Message]:
    """What was asked last, and all that came after."""
    asked = [number for number, message in enumerate(messages) if isinstance(message, UserMessage)]
    return messages[asked[-1] if asked else 0 :]


def markdown(title: str, messages: Sequence[Message]) -> str:
    """The conversation as a document: the texts as they are, calls and results in fences that nothing in them ends."""
    blocks = [f"# {one_line(title) or 'Conversation'}"]
    heading = ""
    for message in messages:
        new = _heading(message)
        if new and (new != heading or isinstance(message, UserMessage)):
            blocks.append(f"## {new}")
            heading = new
        blocks.extend(_blocks_of(message))
    return "\n\n".join(blocks) + "\n"


def to_json(message: Message) -> dict[str, Any]:
    """One message as plain data; a reader must ignore fields that it does not know."""
    match message:
        case UserMessage(text=text, speaker=speaker):
            return {"role": "user", "text": text, "speaker": speaker}
        case AssistantMessage():
            return {
                "role": "assistant",
                "text": message.text,
                "reasoning": "".join([part.text for part in message.parts if isinstance(part, Reasoning)]),
                "tool_calls": [_call(call) for call in message.tool_calls],
                "state": message.state,
                "finish_reason": message.finish_reason,
                "usage": _usage(message.usage),
            }
        case ToolResult(call_id=call_id, name=name, content=content, is_error=is_error):
            return {"role": "tool", "call_id": call_id, "name": name, "content": content, "is_error": is_error}
        case SummaryMessage(text=text, covers=covers, trims=trims):
            return {"role": "summary", "text": text, "covers": covers, "trims": trims, "usage": _usage(message.usage)}
        case _:
            assert_never(message)


def _heading(message: Message) -> str:
    match message:
        case UserMessage(speaker=speaker):
            return f"User {one_line(speaker, 80)}" if speaker else "User"
        case AssistantMessage() | ToolResult():
            return _ASSISTANT
        case SummaryMessage():
            return "" if message.is_mark else "Summary"
        case _:
            assert_never(message)


def _rows_of(message: Message) -> Iterator[Row]:
    match message:
        case UserMessage(text=text):
            yield visible(text), ""
        case AssistantMessage():
            for part in message.parts:
                match part:
                    case Text(text=text):
                        yield visible(text.strip("\n")), ""
                    case Reasoning(text=text):
                        yield f"~ {one_line(text, 100)}", "dim"
                    case ToolCall(name=name, raw_arguments=arguments):
                        yield f"> {one_line(name, 80)} {one_line(arguments)}", "cyan"
                    case _:
                        assert_never(part)
            if message.state != "complete":
                yield f"[{message.state}]", "yellow"
        case ToolResult(name=name, content=content, is_error=is_error):
            mark, style = ("x", "red") if is_error else ("=", "green")
            yield f"{mark} {one_line(name, 80)}: {one_line(content)}", style
        case SummaryMessage(text=text):
            yield (_HIDDEN, "dim") if message.is_mark else (visible(text), "")
        case _:
            assert_never(message)


def _broken(line: str, width: int | None) -> Iterator[str]:
    """The line in rows of the screen: between words where it can be, scripts with wide characters anywhere."""
    if width is None:
        yield line
        return
    width = max(width - len(_INDENT), 8)
    line = line.expandtabs(4)
    start = 0
    while len(row := next(rows(line[start : start + width], width))) < len(line) - start:
        whole = start + len(row)
        end = next((place for place in range(whole, start, -1) if _may_break(line[place - 1], line[place])), whole)
        yield line[start:end].rstrip()
        start = end
    yield row


def _may_break(before: str, after: str) -> bool:
    return before.isspace() or after.isspace() or cell_len(before) == 2 or cell_len(after) == 2


def _blocks_of(message: Message) -> Iterator[str]:
    match message:
        case UserMessage(text=text):
            yield text
        case AssistantMessage():
            for part in message.parts:
                match part:
                    case Text(text=text):
                        yield text.strip("\n")
                    case Reasoning():
                        pass  # thoughts are no part of what was said; --json has them
                    case ToolCall(name=name, arguments=arguments, raw_arguments=raw):
                        pretty = raw if arguments is None else json.dumps(dict(arguments), ensure_ascii=False, indent=2)
                        yield f"Calls {_code(name)}:\n\n{_fenced(pretty, 'json')}"
                    case _:
                        assert_never(part)
            if message.state != "complete":
                yield f"*[{message.state}]*"
        case ToolResult(name=name, content=content, is_error=is_error):
            yield f"{_code(name)} {'failed' if is_error else 'gave'}:\n\n{_fenced(content, 'text')}"
        case SummaryMessage(text=text):
            yield f"*{_HIDDEN}*" if message.is_mark else text
        case _:
            assert_never(message)


def _code(name: str) -> str:
    return f"`{one_line(name, 80).replace('`', '')}`"


def _fenced(text: str, language: str) -> str:
    longest = max([len(run) for run in re.findall(r"`+", text)], default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _call(call: ToolCall) -> JsonObject:
    given = {"raw_arguments": call.raw_arguments} if call.arguments is None else {"arguments": dict(call.arguments)}
    return {"id": call.id, "name": call.name, **given}


def _usage(usage: Usage) -> JsonObject:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "estimated": usage.estimated,
        "cost": usage.cost,
    }
