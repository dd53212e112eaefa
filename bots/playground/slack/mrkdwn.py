"""Slack's text format: the three entities, the `<...>` tokens, and what a person sees of them.

docs.slack.dev/messaging/formatting-message-text
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from bots.playground.chat_server import JsonObject

# The name behind a user id, or None for an id that is not of this workspace.
NameOf: TypeAlias = Callable[[str], str | None]

TOKEN = re.compile(r"<([@#!][^<>\n]+|(?:https?|mailto|tel):[^<>\n]+)>")
_BARE_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt);)")
_ENTITY = re.compile(r"&(amp|lt|gt);")
_ENTITY_CHARACTER = {"amp": "&", "lt": "<", "gt": ">"}
# Code of a markdown text: a fence (an unclosed one runs to the end, as in a text that is still growing) or a span.
MARKDOWN_CODE = re.compile(r"(?ms)^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)|(?<!`)(`+)(?!`).*?(?<!`)\2(?!`)")
# Typed by a person: `@name` that does not continue a word, and addresses without the punctuation after them.
_TYPED = re.compile(
    r"(?<![\w@])@(?P<at>[A-Za-z][A-Za-z0-9_-]*)|(?P<url>https?://[^\s<>。，；：！？）]*[^\s<>.,;:!?)\]。，；：！？）])"
)


def escape(text: str) -> str:
    """Text as Slack stores it: bare `&`, `<`, `>` become entities; entities and tokens stay as they are."""
    parts: list[str] = []
    end = 0
    for token in TOKEN.finditer(text):
        parts += (_escape_plain(text[end : token.start()]), token.group())
        end = token.end()
    parts.append(_escape_plain(text[end:]))
    return "".join(parts)


def decode_entities(text: str) -> str:
    """The characters behind the three entities, in one pass: `&amp;lt;` is `&lt;`."""
    return _ENTITY.sub(lambda match: _ENTITY_CHARACTER[match[1]], text)


def decode(text: str, name_of: NameOf) -> str:
    """What a person sees of stored text: tokens by their label or name, entities as characters."""
    parts: list[str] = []
    end = 0
    for token in TOKEN.finditer(text):
        parts += (decode_entities(text[end : token.start()]), token_text(token[1], name_of))
        end = token.end()
    parts.append(decode_entities(text[end:]))
    return "".join(parts)


def decode_markdown(text: str, name_of: NameOf) -> str:
    """What a person sees of a markdown block, as markdown: like `decode`, but code is left alone."""
    parts: list[str] = []
    end = 0
    for code in MARKDOWN_CODE.finditer(text):
        parts += (decode(text[end : code.start()], name_of), code.group())
        end = code.end()
    parts.append(decode(text[end:], name_of))
    return "".join(parts)


def token_text(token: str, name_of: NameOf) -> str:
    """What a person sees of one token (given without its angle brackets)."""
    target, _, label = token.partition("|")
    label = decode_entities(label)
    if target[0] == "@":
        return f"@{name_of(target[1:]) or label or target[1:]}"
    if target[0] == "#":
        return f"#{label or target[1:]}"
    if target[0] == "!":
        name, is_long_form, _ = target[1:].partition("^")
        return label if is_long_form and label else f"@{name}"
    return label or decode_entities(target.removeprefix("mailto:"))


def compose(typed: str, id_of: Callable[[str], str | None]) -> tuple[str, list[JsonObject]]:
    """What Slack's client makes of typed text: the stored text and the elements of a rich_text section.

    `@name` of a known user becomes a mention, `@here` and its like a broadcast, an address a link.
    """
    text: list[str] = []
    elements: list[JsonObject] = []

    def plain(part: str) -> None:
        if part:
            text.append(_escape_plain(part, keep_entities=False))
            elements.append({"type": "text", "text": part})

    end = 0
    for match in _TYPED.finditer(typed):
        found = _typed_token(match, id_of)
        if found is None:
            continue
        plain(typed[end : match.start()])
        text.append(found[0])
        elements.append(found[1])
        end = match.end()
    plain(typed[end:])
    return "".join(text), elements


def _typed_token(match: re.Match[str], id_of: Callable[[str], str | None]) -> tuple[str, JsonObject] | None:
    if match["url"]:
        url = match["url"]
        return f"<{url.replace('&', '&amp;')}>", {"type": "link", "url": url}
    name = match["at"].lower()
    if name in {"here", "channel", "everyone"}:
        return f"<!{name}>", {"type": "broadcast", "range": name}
    user_id = id_of(name)
    return (f"<@{user_id}>", {"type": "user", "user_id": user_id}) if user_id else None


def _escape_plain(text: str, *, keep_entities: bool = True) -> str:
    text = _BARE_AMPERSAND.sub("&amp;", text) if keep_entities else text.replace("&", "&amp;")
    return text.replace("<", "&lt;").replace(">", "&gt;")
