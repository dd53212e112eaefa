"""HTML to readable text, markdown-like, in one pass and in linear time whatever the page.

The standard library's parser takes quadratic time on hostile input and holds the interpreter meanwhile. Here every step
goes forward, and a construct that is never closed swallows the rest of the page, as it does in a browser.
"""

import html
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

MAX_TEXT_CHARS: Final = 200_000
"""Where reading stops: the model is shown less, and this bounds the work."""

_TAG: Final = re.compile(r"</?([a-zA-Z][^\s/>]*+)")
_BLANK: Final = re.compile(r"[\s/]*+")
_SPACE: Final = re.compile(r"\s+")
_NAME: Final = re.compile(r"=?[^\s/>=]*+")
_EQUALS: Final = re.compile(r"\s*+=\s*+")
_BARE: Final = re.compile(r"[^\s>]*+")
_LONG_NUMBER: Final = re.compile(r"&#[xX]?[0-9a-fA-F]{9,}+;?")
_RAW: Final = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style", "textarea", "title")
}
_UNREAD: Final = frozenset({"script", "style", "textarea"})
_SKIPPED: Final = frozenset({"noscript", "template", "svg", "math", "iframe", "object", "select"})
_VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta", "source", "wbr", "area", "base", "col", "embed"})
# These are often left open, or hidden only until a script has run: hiding them could swallow the whole page.
_NEVER_HIDDEN: Final = _VOID | {"html", "body", "main", "p", "li", "td", "th", "tr", "dd", "dt"}
_BLOCKS: Final = frozenset(
    {"address", "article", "aside", "blockquote", "div", "dl", "dt", "dd", "fieldset", "figure", "figcaption", "footer"}
    | {"form", "header", "main", "nav", "ol", "p", "pre", "section", "table", "ul", "h1", "h2", "h3", "h4", "h5", "h6"}
)


class _Token(NamedTuple):
    kind: Literal["text", "open", "close"]
    value: str
    attributes: Mapping[str, str]


def html_to_text(page: str, absolute: Callable[[str], str | None]) -> tuple[str, str]:
    """The title and the text of a page. `absolute`: the full URL of a link's target, or None when it is not shown."""
    reader = _Reader(absolute)
    for token in _tokens(page):
        reader.take(token)
        if reader.size > MAX_TEXT_CHARS:
            break
    return reader.title, reader.text


class _Reader:
    """Collects the text of one page."""

    def __init__(self, absolute: Callable[[str], str | None]) -> None:
        self._absolute = absolute
        self._parts: list[str] = []
        self._title: list[str] = []
        self._inside = ""
        self._skipping = ""
        self._depth = 0
        self._pre = 0
        self._target: str | None = None
        self.size = 0

    @property
    def title(self) -> str:
        """The title on one line."""
        return _SPACE.sub(" ", "".join(self._title)).strip()[:300]

    @property
    def text(self) -> str:
        """The text; at most one empty line in a row."""
        lines: list[str] = []
        for line in "".join(self._parts).split("\n"):
            kept = line.rstrip()
            if kept.strip() or (lines and lines[-1]):
                lines.append(kept)
        return "\n".join(lines).strip("\n")

    def take(self, token: _Token) -> None:
        """Read on."""
        if self._skipping:
            if token.kind != "text" and token.value == self._skipping:
                self._depth += 1 if token.kind == "open" else -1
                if self._depth == 0:
                    self._skipping = ""
        elif token.kind == "text":
            self._take_text(_unescaped(token.value))
        elif token.kind == "open":
            self._open(token.value, token.attributes)
        else:
            self._close(token.value)

    def _take_text(self, text: str) -> None:
        if self._inside == "title":
            self._title.append(text)
        elif self._pre:
            self._add(text)
        else:
            text = _SPACE.sub(" ", text)
            self._add(text.lstrip() if not self._parts or self._parts[-1][-1:] in {"\n", " "} else text)

    def _add(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self.size += len(text)

    def _open(self, name: str, attributes: Mapping[str, str]) -> None:
        if name in _SKIPPED or (name not in _NEVER_HIDDEN and _hidden(attributes)):
            self._skipping, self._depth = name, 1
            return
        self._inside = name if name in _RAW else ""
        if name in _BLOCKS:
            self._add("\n\n")
        match name:
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._add("#" * int(name[1]) + " ")
            case "li":
                self._add("\n- ")
            case "br" | "tr":
                self._add("\n")
            case "hr":
                self._add("\n\n---\n\n")
            case "td" | "th":
                self._add(" | ")
            case "pre":
                self._pre += 1
            case "img" if alt := _SPACE.sub(" ", attributes.get("alt", "")).strip():
                self._add(f"[image: {alt}]")
            case "a":
                self._end_link()
                self._target = self._absolute(attributes.get("href", "").strip())
            case _:
                pass

    def _close(self, name: str) -> None:
        self._inside = ""
        if name == "a":
            self._end_link()
        if name in _BLOCKS:
            self._add("\n\n")
        if name == "pre":
            self._pre = max(0, self._pre - 1)

    def _end_link(self) -> None:
        # The whole target, host included, after the text: a text may claim to be another address.
        if self._target:
            self._add(f" <{self._target}>")
        self._target = None


def _hidden(attributes: Mapping[str, str]) -> bool:
    return "hidden" in attributes or "display:none" in _SPACE.sub("", attributes.get("style", "")).lower()


def _unescaped(text: str) -> str:
    # A number with thousands of digits would be an exception, or a long computation.
    return html.unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


def _tokens(page: str) -> Iterator[_Token]:
    at = 0
    while at < len(page):
        start = page.find("<", at)
        if start != at:
            yield _Token("text", page[at:start] if start >= 0 else page[at:], {})
            if start < 0:
                return
        tag = _TAG.match(page, start)
        if tag is not None:
            attributes, at = _attributes(page, tag.end())
            if at < 0:
                return
            name = tag[1].lower()
            closing = page[start + 1] == "/"
            yield _Token("close" if closing else "open", name, attributes)
            if not closing and name in _RAW:
                end = _RAW[name].search(page, at)
                if end is None:
                    return
                if name not in _UNREAD:
                    yield _Token("text", page[at : end.start()], {})
                at = end.start()
        elif page.startswith(("<!", "<?", "</"), start):
            mark = "-->" if page.startswith("<!--", start) else ">"
            end_at = page.find(mark, start + 2)
            if end_at < 0:
                return
            at = end_at + len(mark)
        else:
            yield _Token("text", "<", {})
            at = start + 1


def _attributes(page: str, at: int) -> tuple[dict[str, str], int]:
    """The attributes from there on and where the tag ends; -1 when it does not."""
    found: dict[str, str] = {}
    while True:
        at = _end(_BLANK, page, at)
        if at >= len(page):
            return found, -1
        if page[at] == ">":
            return found, at + 1
        after = _end(_NAME, page, at)
        name = page[at:after].lower()
        at = after
        value = ""
        if equals := _EQUALS.match(page, at):
            at = equals.end()
            quote = page[at : at + 1]
            if quote in {'"', "'"}:
                after = page.find(quote, at + 1)
                if after < 0:
                    return found, -1
                value, at = page[at + 1 : after], after + 1
            else:
                after = _end(_BARE, page, at)
                value, at = page[at:after], after
        found.setdefault(name, _unescaped(value))


def _end(pattern: re.Pattern[str], page: str, at: int) -> int:
    match = pattern.match(page, at)
    return match.end() if match else at
