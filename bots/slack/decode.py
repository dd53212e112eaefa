"""Text as a person wrote it, from what Slack sends. Pure; never raises for any string.

Slack escapes exactly `& < >` in `text` and marks everything that is more than text as `<...>`. So the order is fixed:
tokens are read on the raw text, then what is between them is decoded once. Text that a person typed as `<@U1>` arrives
as `&lt;@U1&gt;` and stays text. In `rich_text` blocks the strings are not escaped and mentions are elements.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, cast

JsonObject = Mapping[str, object]

_ENTITY: Final = re.compile(r"&(amp|lt|gt);")
_ENTITIES: Final = {"amp": "&", "lt": "<", "gt": ">"}
_TOKEN: Final = re.compile(r"<([^<>]*)>")
_BROADCASTS: Final = frozenset({"here", "channel", "everyone"})
_LIST_INDENT: Final = "  "


@dataclass(frozen=True, slots=True)
class Decoded:
    """`text`: without the bot's own mention, stripped at the ends. `mentions_bot`: whether it was there."""

    text: str
    mentions_bot: bool


class _OwnMention:
    """Stands in a list of pieces where the bot itself was named."""


_OWN: Final = _OwnMention()
_Piece = str | _OwnMention


def decode_text(raw: str, bot_user_id: str) -> Decoded:
    """Decode a message's `text` field (mrkdwn)."""
    return _joined(_text_pieces(raw, bot_user_id))


def decode_blocks(blocks: object, bot_user_id: str) -> Decoded | None:
    """Decode the `rich_text` blocks of a message; None when there are none that hold text."""
    pieces: list[_Piece] = []
    for block in _objects(blocks):
        if block.get("type") != "rich_text":
            continue
        for element in _objects(block.get("elements")):
            if pieces:
                pieces.append("\n")
            pieces.extend(_element_pieces(element, bot_user_id))
    return _joined(pieces) if pieces else None


def unescape(text: str) -> str:
    """`&amp; &lt; &gt;` to characters, in one pass that never reads its own output."""
    return _ENTITY.sub(lambda found: _ENTITIES[found[1]], text)


def _joined(pieces: Iterable[_Piece]) -> Decoded:
    text = ""
    mentioned = False
    after_mention = False
    for piece in pieces:
        if isinstance(piece, _OwnMention):
            mentioned = after_mention = True
            continue
        if after_mention and piece:
            # Taking a word out must leave one space, not two, and none at the edge of a line.
            text = text.rstrip(" \t")
            piece = piece.lstrip(" \t")
            if text and piece and text[-1] != "\n" and piece[0] not in "\n.,:;!?，。：；！？":
                piece = f" {piece}"
            after_mention = not piece
        text += piece
    return Decoded(text.strip(), mentioned)


def _text_pieces(raw: str, bot_user_id: str) -> Iterator[_Piece]:
    end = 0
    for token in _TOKEN.finditer(raw):
        yield unescape(raw[end : token.start()])
        yield _token_piece(token[1], bot_user_id)
        end = token.end()
    yield unescape(raw[end:])


def _token_piece(token: str, bot_user_id: str) -> _Piece:
    target, _, label = token.partition("|")
    label = unescape(label)
    match target[:1]:
        case "@":
            if target[1:] == bot_user_id:
                return _OWN
            return f"@{label.removeprefix('@') or unescape(target[1:])}"
        case "#":
            return _channel(unescape(target[1:]), label)
        case "!":
            return _special(unescape(target[1:]), label)
        case _:
            return _link(unescape(target), label)


def _special(name: str, label: str) -> str:
    kind, _, rest = name.partition("^")
    if kind == "subteam":
        return f"@{label.removeprefix('@') or rest}"
    if kind == "date":
        return label or _date(rest.partition("^")[0])
    if kind in _BROADCASTS:
        return f"@{kind}"
    return label or f"<!{name}>"


def _channel(channel: str, name: str) -> str:
    # The id stays readable: a tool may need it, and names change.
    return f"#{name} ({channel})" if name else f"#{channel}"


def _link(url: str, label: str) -> str:
    address = url.removeprefix("mailto:").removeprefix("tel:")
    if not label or label in (url, address) or address in (f"http://{label}", f"https://{label}"):
        return address
    return f"{label} ({url})"


def _date(seconds: str) -> str:
    try:
        return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return seconds


def _element_pieces(element: JsonObject, bot_user_id: str) -> Iterator[_Piece]:
    """The pieces of one part of a rich_text block: section, code, quote or list."""
    match element.get("type"):
        case "rich_text_preformatted":
            code = "".join(_plain(piece) for piece in _inline_pieces(element, bot_user_id))
            yield f"```\n{code.rstrip(chr(10))}\n```"
        case "rich_text_quote":
            yield "> "
            for piece in _inline_pieces(element, bot_user_id):
                yield piece.replace("\n", "\n> ") if isinstance(piece, str) else piece
        case "rich_text_list":
            yield from _list_pieces(element, bot_user_id)
        case _:
            yield from _inline_pieces(element, bot_user_id)


def _list_pieces(element: JsonObject, bot_user_id: str) -> Iterator[_Piece]:
    depth = _number(element.get("indent"))
    first = _number(element.get("offset")) + 1
    for index, item in enumerate(_objects(element.get("elements"))):
        if index:
            yield "\n"
        mark = f"{first + index}." if element.get("style") == "ordered" else "-"
        yield f"{_LIST_INDENT * min(depth, 8)}{mark} "
        yield from _inline_pieces(item, bot_user_id)


def _inline_pieces(element: JsonObject, bot_user_id: str) -> Iterator[_Piece]:
    for inline in _objects(element.get("elements")):
        yield _inline_piece(inline, bot_user_id)


def _inline_piece(inline: JsonObject, bot_user_id: str) -> _Piece:
    text = _string(inline.get("text"))
    match inline.get("type"):
        case "user":
            user = _string(inline.get("user_id"))
            return _OWN if user == bot_user_id else f"@{user}"
        case "usergroup":
            return f"@{_string(inline.get('usergroup_id'))}"
        case "channel":
            return _channel(_string(inline.get("channel_id")), _string(inline.get("name")))
        case "broadcast":
            return f"@{_string(inline.get('range'))}"
        case "link":
            return _link(_string(inline.get("url")), text)
        case "emoji":
            return f":{_string(inline.get('name'))}:"
        case "date":
            return _string(inline.get("fallback")) or _date(str(inline.get("timestamp", "")))
        case "color":
            return _string(inline.get("value"))
        case _:
            style = inline.get("style")
            is_code = isinstance(style, Mapping) and bool(cast("JsonObject", style).get("code"))
            return f"`{text}`" if is_code and text else text


def _plain(piece: _Piece) -> str:
    return piece if isinstance(piece, str) else ""


def _objects(value: object) -> Iterator[JsonObject]:
    """The JSON objects in what should be a list of them; anything else is passed over."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for item in cast("Sequence[object]", value):
            if isinstance(item, Mapping):
                yield cast("JsonObject", item)


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
