"""Text of others on a person's screen: nothing in it may move the cursor, change colours, or hide.

A model repeats what it reads, so an answer can hold any terminal sequence that a web page or a file chose.
"""

from collections.abc import Iterator
from typing import Final

from rich.cells import cell_len

_BIDI: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SHOWN: Final = (
    {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
    | {0x7F: "\N{SYMBOL FOR DELETE}"}
    | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}  # some terminals take these 8-bit forms too
    | {code: f"\\u{code:04x}" for code in _BIDI}
    | dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")
)
_TAB: Final = 4


def visible(text: str) -> str:
    """The text with its line breaks and tabs; every other control character is shown as a sign that does nothing."""
    return text.replace("\r\n", "\n").translate(_SHOWN)


class Harmless:
    """`visible` for a text that arrives in pieces: a line break of two characters may come in two of them."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """The next piece as it may be shown."""
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        return visible(text.removesuffix("\r"))


def one_line(text: str, limit: int = 200) -> str:
    """The text as one line of at most `limit` characters, all white space as single spaces."""
    # Cut first: a result may be long, and most of it is not shown.
    line = " ".join(text[: limit * 4].split())
    shown = visible(line)
    return shown if len(shown) <= limit and len(text) <= limit * 4 else shown[: limit - 1] + "…"


def rows(text: str, width: int) -> Iterator[str]:
    """Cut one line into rows of at most `width` cells; a wide character counts two. At least one row."""
    row, used = "", 0
    for char in text.expandtabs(_TAB):
        cells = cell_len(char)
        if row and used + cells > width:
            yield row
            row, used = "", 0
        row += char
        used += cells
    yield row


class RawRegion:
    """Text at the bottom of the screen that can be taken away again.

    It breaks the lines itself, between words, with the terminal's own wrapping off: only so is it known how many rows
    there are, whatever the terminal thinks of a character's width. `size` is (columns, lines) when the region began.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size
        self.column = 0
        self._rows = 1
        self._word = ""

    def add(self, text: str) -> str:
        """What to write so that the text stands at the end of the region."""
        parts: list[str] = []
        for char in text:
            if char == "\n":
                self._break(parts)
                self._word = ""
            elif char == "\t":
                self._put(" " * (_TAB - self.column % _TAB), parts)
            else:
                self._put(char, parts)
        return f"\x1b[?7l{''.join(parts)}\x1b[?7h" if parts else ""

    def erase(self, size: tuple[int, int]) -> str | None:
        """What to write to take the region away; None when it cannot be: scrolled off, or the window has changed."""
        if size != self.size or self._rows >= self.size[1]:
            return None
        up = f"\x1b[{self._rows - 1}A" if self._rows > 1 else ""
        return f"\r{up}\x1b[J"

    def _put(self, piece: str, parts: list[str]) -> None:
        cells = cell_len(piece)
        columns = max(self.size[0], 2)
        if self.column + cells > columns:
            moved = cell_len(self._word)
            if not piece.isspace() and 0 < moved < self.column and moved + cells <= columns:
                # The word has begun on this row: take it along. To a column by its number, since the cursor stands
                # on the last one, not behind it, when the row is full.
                parts.append(f"\x1b[{self.column - moved + 1}G\x1b[K")
                self._break(parts)
                parts.append(self._word)
                self.column = moved
            else:
                self._break(parts)
                self._word = ""
        parts.append(piece)
        self.column += cells
        # Scripts with wide characters break anywhere.
        self._word = "" if piece.isspace() or cells == 2 else self._word + piece

    def _break(self, parts: list[str]) -> None:
        parts.append("\n")
        self._rows += 1
        self.column = 0
