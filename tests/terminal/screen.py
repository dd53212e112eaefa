"""A small terminal: what a person sees after these bytes. Enough for this program and its line editor, no more.

What scrolls off the top is kept, so that `text` is all that was ever on the screen and still is.
"""

import re

from rich.cells import cell_len

_SEQUENCE = re.compile(r"\x1b(?:\[([?>]?)([\d;]*)([A-Za-z])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[=>78M]|\([AB0])")


class Screen:
    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.rows: list[list[str]] = [[]]
        self.row = 0
        self.column = 0
        self.wraps = True
        self._left = ""

    @property
    def top(self) -> int:
        return max(0, len(self.rows) - self.lines)

    @property
    def text(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self.rows).rstrip("\n")

    def feed(self, text: str) -> None:
        text = self._left + text
        self._left = ""
        at = 0
        while at < len(text):
            char = text[at]
            if char == "\x1b":
                found = _SEQUENCE.match(text, at)
                if found is None:
                    self._left = text[at:]
                    assert len(self._left) < 200, f"not understood: {self._left!r}"
                    return
                if found[3]:
                    self._control(found[1], found[2], found[3])
                at = found.end()
                continue
            at += 1
            match char:
                case "\n":
                    self._down()
                case "\r":
                    self.column = 0
                case "\b":
                    self.column = max(0, min(self.column, self.columns - 1) - 1)
                case "\x07":
                    pass
                case _:
                    assert char.isprintable() or char == "\N{IDEOGRAPHIC SPACE}", f"{char!r} reached the terminal"
                    self._put(char)

    def _put(self, char: str) -> None:
        cells = cell_len(char)
        row = self.rows[self.row]
        if cells == 0:
            if row:
                row[min(self.column, len(row)) - 1] += char
            return
        if self.column + cells > self.columns:
            # Without wrapping the last column is overwritten; the program must never need that.
            assert self.wraps, f"{char!r} beyond the edge"
            self.column = 0
            self._down()
            row = self.rows[self.row]
        row.extend(" " * (self.column + cells - len(row)))
        row[self.column : self.column + cells] = [char] + [""] * (cells - 1)
        self.column += cells

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append([])

    def _control(self, mark: str, numbers: str, final: str) -> None:
        first = int(numbers.split(";")[0] or 0)
        many = max(first, 1)
        if mark:
            if (numbers, final) in (("7", "h"), ("7", "l")):
                self.wraps = final == "h"
            return
        match final:
            case "A":
                self.row = max(self.top, self.row - many)
            case "B":
                self.row = min(len(self.rows) - 1, self.row + many)
            case "C":
                self.column = min(self.columns - 1, self.column + many)
            case "D":
                self.column = max(0, min(self.column, self.columns - 1) - many)
            case "G":
                self.column = min(self.columns, many) - 1
            case "J" if first == 0:
                del self.rows[self.row][self.column :]
                del self.rows[self.row + 1 :]
            case "K" if first == 0:
                del self.rows[self.row][self.column :]
            case "m" | "h" | "l" | "q":
                pass
            case _:
                raise AssertionError(f"not understood: {numbers}{final}")
