"""What model text may not do on Slack: call people, and show pictures of its own choice. Pure.

Both changes cannot be seen: a zero-width joiner in a token that would ring everybody's bell, and an image as the link
that it is. Everything else of the text stays as the model wrote it.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline, image

WORD_JOINER: Final = "\u2060"
"""Breaks a token without being seen. Entities would not do: inside of code they are shown as they are."""

_MENTION: Final = re.compile(
    # What shows as "<", also where markdown decodes it, in front of what Slack takes for a mention.
    r"(<|&(?:lt|LT|#0*60|#[xX]0*3[cC]);)"
    r"(?=\\?(?:!|&(?:excl|#0*33|#[xX]0*21);)\\?(?:here|channel|everyone|group|subteam)"
    r"|\\?(?:@|&(?:commat|#0*64|#[xX]0*40);)\\?[UWB][A-Z0-9]+(?:[|>\\]|&))"
)
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ESCAPED: Final = re.compile("[&<>]")
_IMAGE: Final = "!["
_AT: Final = "at"


def escape(text: str) -> str:
    """Text for a mrkdwn field: `& < >` as entities, so that nothing in it is a token."""
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text)


def size(text: str) -> int:
    """Size in Slack's unit, at its worst: UTF-16 units, escaped, with every `<` and `&` made harmless."""
    units = len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
    return units + 5 * text.count("&") + 4 * text.count("<") + 3 * text.count(">")


def clip(text: str, limit: int) -> str:
    """`text`, escaped, in at most `limit` of Slack's units; `…` where it was cut, never inside of an entity."""
    escaped = escape(text)
    if _units(escaped) <= limit:
        return escaped
    kept: list[str] = []
    room = limit - 1
    for character in text:
        piece = _ESCAPES.get(character, character)
        room -= _units(piece)
        if room < 0:
            break
        kept.append(piece)
    return "".join(kept).rstrip() + "…"


@lru_cache(maxsize=256)
def harmless(markdown: str) -> str:
    """The text for a markdown block: nobody is mentioned by it, images are links."""
    return _MENTION.sub(rf"\1{WORD_JOINER}", _images_as_links(markdown))


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _images_as_links(markdown: str) -> str:
    """Without the `!` of each image; again until none is left, as a picture's description may hold another."""
    while _IMAGE in markdown and (marks := list(_image_marks(markdown))):
        ends = [0, *(mark + 1 for mark in marks)]
        markdown = "".join(markdown[end:mark] for end, mark in zip(ends, [*marks, len(markdown)], strict=True))
    return markdown


def _image_marks(markdown: str) -> Iterator[int]:
    """Where the `!` of each image stands, in order.

    The parser gives lines for paragraphs but no offsets for what is inside of them. The n-th `![` of a paragraph is
    the n-th in its lines, though: what the parser strips from lines (indents, quote marks) never contains one.
    """
    starts = [0, *(found.end() for found in re.finditer(r"\r\n?|\n", markdown))]
    cursor = 0
    for token in _PARSER.parse(markdown):
        if token.type != "inline" or token.map is None:
            continue
        cursor = max(cursor, starts[token.map[0]])
        images = {child.meta[_AT] for child in token.children or () if child.type == "image"}
        for found in re.finditer(re.escape(_IMAGE), token.content):
            cursor = markdown.index(_IMAGE, cursor)
            if found.start() in images:
                yield cursor
            cursor += len(_IMAGE)


def _image_with_place(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - the parser's own signature
    at = state.pos
    if not image(state, silent):
        return False
    if not silent:
        state.tokens[-1].meta[_AT] = at
    return True


def _image_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    parser.inline.ruler.at("image", _image_with_place)
    return parser


_PARSER: Final = _image_parser()
