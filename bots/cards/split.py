"""Cut a long markdown text into parts that each fit one message. Pure.

Where to cut is decided from the beginning of the rest alone, up to the limit, so a part does not change any more once
the text has grown past it, and each edit of a growing answer costs one parse of about one part. Blocks are found by
markdown-it-py's block parser; characters are never taken for structure.

Known limit: a code block that is indented by four or more (a list in a list) and longer than a part is reopened
without its indentation, so what follows it in the same list item may be drawn as code.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

Measure = Callable[[str], int]

_NEWLINE: Final = re.compile(r"\r\n?|\n")
_SENTENCE_END: Final = re.compile(r"(?:[.!?…][\"')\]]*\s+|[。！？；][”’」』）]*)")
_WORD_END: Final = re.compile(r"\s+|[，、：]")
_WELL_FILLED: Final = 0.5
"""A part should be at least this full before a cut at a better place is preferred to a fuller part."""
_BEFORE_A_UNIT: Final = 0.2
"""The same before a table or a code block, which people want whole."""
_LOOK_BACK: Final = 64
"""How far to look for a place between two visible characters: longer sequences of joined ones are not text."""
_LOOK_AHEAD: Final = 200
"""How much behind a part decides whether the block at its end goes on."""
_PLACES_IN_A_LINE: Final = 8
_CODE_INDENT: Final = 4
_JOINER: Final = "\u200d"
_CONTINUING: Final = (("\U0001f3fb", "\U0001f3ff"), ("\U000e0020", "\U000e007f"), ("\u1160", "\u11ff"))
"""Skin tones, the letters of a flag's tag sequence, the later parts of a Hangul syllable."""


@dataclass(frozen=True, slots=True)
class Part:
    """One message's share of a text.

    `source` is a slice of the text: all of them joined are the text. `head` and `tail` are what has to be repeated
    around it, so that it can be read on its own: a code fence reopened and closed, a table's header.
    """

    source: str
    head: str = ""
    tail: str = ""

    @property
    def text(self) -> str:
        """What to show."""
        return f"{self.head}{self.source}{self.tail}"


@dataclass(frozen=True, slots=True)
class _Cut:
    """A place to cut: how many characters come before, what closes the part, what opens the next one."""

    at: int
    tail: str = ""
    head: str = ""


def split(text: str, limit: int, measure: Measure = len) -> list[Part]:
    """Parts of `text` of which none measures more than `limit`; one empty part for an empty text.

    `measure` gives a string's size in the unit of `limit`; a longer string must not measure less.
    """
    parts: list[Part] = []
    start = 0
    head = ""
    while True:
        window = _fitting(text, start, head, limit, measure)
        end = start + len(window)
        if end == len(text):
            return [*parts, Part(window, head)]
        cut = _plan(head, window, text[end : end + _LOOK_AHEAD], limit, measure)
        parts.append(Part(window[: cut.at], head, cut.tail))
        start += cut.at
        head = cut.head


def _fitting(text: str, start: int, head: str, limit: int, measure: Measure) -> str:
    """The longest beginning of the rest that fits below its head; one character at least, if there is one."""

    def fits(size: int) -> bool:
        return measure(head + text[start : start + size]) <= limit

    rest = len(text) - start
    low, high = 0, min(rest, max(1, limit))
    while fits(high):
        if high == rest:
            return text[start:]
        low, high = high, min(rest, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return text[start : start + max(1, low)]


@lru_cache(maxsize=256)
def _plan(head: str, window: str, following: str, limit: int, measure: Measure) -> _Cut:
    """Where to cut the rest, of which `window` is what would just fit and `following` what comes next."""
    for cut in _Layout(head, window, following).candidates():
        if measure(cut.head) > limit // 2:
            cut = _Cut(cut.at, cut.tail)  # repeating it would leave no room for what is new
        if measure(head + window[: cut.at] + cut.tail) <= limit:
            return cut
    # The limit is too small for a fence and its closing line: the text matters more.
    return _Cut(_between_characters(window + following, len(window)))


class _Layout:
    """The blocks at the beginning of the rest of a text.

    Positions are offsets into the window; those of the head, which was shown before, are negative.
    """

    def __init__(self, head: str, window: str, following: str) -> None:
        self._source = head + window + following
        self._head_size = len(head)
        self._size = len(window)
        self._tokens = _parse(self._source)
        self._lines = [0, *(found.end() for found in _NEWLINE.finditer(self._source))]
        self._units = [token for token in self._tokens if token.type in ("fence", "table_open")]

    def candidates(self) -> Iterator[_Cut]:
        """Places to cut, best first; the caller takes the first that fits."""
        size = self._size
        half = size * _WELL_FILLED
        least = size * _BEFORE_A_UNIT if self._unit_at(size) else half
        outer = [at for at in self._block_starts(top_level=True) if at >= least]
        yield from (_Cut(at) for at in outer if not self._follows_heading(at))
        yield from (_Cut(at) for at in outer)
        yield from (_Cut(at) for at in self._block_starts(top_level=False) if at >= half and not self._is_deep(at))
        places = [at for at in self._line_places() if at >= half]
        yield from (self._closed(at) for at in places if self._unit_at(at) or not self._is_deep(at))
        yield from (self._closed(at) for at in places)
        yield from (self._closed(at) for at in self._places_in_a_line(int(half)))
        # What is left are long lines of code or of a table.
        yield from (self._closed(at) for at in self._line_places())
        yield from (self._closed(at) for at in range(_between_characters(self._text, size), 0, -1))

    @cached_property
    def _text(self) -> str:
        return self._source[self._head_size :]

    def _block_starts(self, *, top_level: bool) -> list[int]:
        """Where blocks begin that are not part of a code block or table, last first."""
        found: set[int] = set()
        for token in self._tokens:
            if token.map is None or token.type == "inline" or (top_level and token.level):
                continue
            at = self._position(token.map[0])
            if 0 < at <= self._size and self._unit_at(at) is None:
                found.add(at)
        return sorted(found, reverse=True)

    def _line_places(self) -> Iterator[int]:
        """Where lines begin at which even a code block or a table may be cut, last first."""
        for start in reversed(self._lines):
            at = start - self._head_size
            if 0 < at <= self._size and self._may_cut_line(at):
                yield at

    def _may_cut_line(self, at: int) -> bool:
        unit = self._unit_at(at)
        if unit is None or unit.map is None:
            return True
        if unit.type == "table_open":
            return at >= self._position(unit.map[0] + 3)  # one row at least stays with its header
        # An empty fence is noise, on either side of the cut.
        next_line = _NEWLINE.split(self._text[at:], maxsplit=1)[0]
        return at >= self._position(unit.map[0] + 2) and not _closes(next_line, unit.markup)

    def _places_in_a_line(self, least: int) -> Iterator[int]:
        """After a sentence, else after a word, else between two characters."""
        for pattern in (_SENTENCE_END, _WORD_END):
            ends = [found.end() for found in pattern.finditer(self._text, least, self._size)]
            yield from reversed(ends[-_PLACES_IN_A_LINE:])
        at = self._size
        for _ in range(_LOOK_BACK):
            at = _between_characters(self._text, at)
            if at <= 0:
                return
            yield at
            at -= 1

    def _closed(self, at: int) -> _Cut:
        """A cut that closes and reopens the code block around it, or repeats the header of the table."""
        unit = self._unit_at(at)
        if unit is None or unit.map is None:
            return _Cut(at)
        first = unit.map[0]
        if unit.type == "table_open":
            is_row = at + self._head_size in self._lines and at >= self._position(first + 2)
            return _Cut(at, head=self._source[self._line(first) : self._line(first + 2)] if is_row else "")
        opener = self._source[self._line(first) : self._line(first + 1)]
        prefix = re.sub(r"[^>\s]", " ", opener[: opener.index(unit.markup)])
        indent = len(prefix) - len(prefix.lstrip())
        line_end = "" if self._source[: at + self._head_size].endswith(("\n", "\r")) else "\n"
        reopened = prefix if len(prefix[:indent].expandtabs(4)) < _CODE_INDENT else prefix.lstrip()
        return _Cut(at, f"{line_end}{prefix}{unit.markup}", f"{reopened}{unit.markup}{unit.info.strip()}\n")

    def _unit_at(self, at: int) -> Token | None:
        """The code block or table that goes on across `at`."""
        for token in self._units:
            if token.map and self._position(token.map[0]) < at < self._position(token.map[1]):
                return token
        return None

    def _follows_heading(self, at: int) -> bool:
        return any(
            token.map
            and self._position(token.map[1]) <= at
            and not self._text[self._position(token.map[1]) : at].strip()
            for token in self._tokens
            if token.type == "heading_open"
        )

    def _is_deep(self, at: int) -> bool:
        """Whether the line is indented so far that it would be code if a part began with it."""
        line = self._text[at : at + 2 * _CODE_INDENT]
        return len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip(" ")) >= _CODE_INDENT

    def _line(self, number: int) -> int:
        # A block that reaches the end of what is known goes on behind it.
        return self._lines[number] if number < len(self._lines) else len(self._source) + 1

    def _position(self, number: int) -> int:
        return self._line(number) - self._head_size


def _block_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


_PARSER: Final = _block_parser()


def _parse(source: str) -> list[Token]:
    return _PARSER.parse(source)


def _closes(line: str, markup: str) -> bool:
    line = line.strip(" \t>")
    return len(line) >= len(markup) and not line.strip(markup[0])


def _between_characters(text: str, at: int) -> int:
    """The last place up to `at` that does not tear apart what is seen as one character; `at` where there is none."""
    return next((place for place in range(at, max(0, at - _LOOK_BACK), -1) if not _is_joined(text, place)), at)


def _is_joined(text: str, at: int) -> bool:
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if before < "\u0300" and after < "\u0300":
        return before == "\r" and after == "\n"
    if before == _JOINER or after == _JOINER or unicodedata.category(after) in ("Mn", "Mc", "Me"):
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    if _is_flag_letter(before) and _is_flag_letter(after):
        letters = 1
        while letters < at and _is_flag_letter(text[at - 1 - letters]):
            letters += 1
        return letters % 2 == 1
    # Skin tones, the letters of a flag's tag sequence, and the later parts of a Hangul syllable.
    return (
        "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f" or "\u1160" <= after <= "\u11ff"
    )


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
