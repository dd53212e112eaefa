"""Markdown in a terminal while it is being written.

What arrives is shown raw at once. When a block (a paragraph, a list item, a table, a code block) is finished, its raw
text is taken away and its rendered form written in the same place, in one write: no flicker, and every word stands on
the screen once. A block that does not fit on the screen any more stays raw, because what has scrolled away cannot be
taken back.
"""

import re
from typing import IO, ClassVar, Final

from markdown_it import MarkdownIt
from rich.console import Console
from rich.markdown import Heading, Markdown

from harness.reporters.visible import Harmless, RawRegion

_FENCE: Final = re.compile(r" *(`{3,}(?=[^`]*$)|~{3,})")
_HEADING: Final = re.compile(r"#{1,6}(\s|$)")
_BLANK_BEFORE: Final = re.compile(r"\A(?:[ \t]*\n)+")
_BLANK_AFTER: Final = re.compile(r"\n[ \t]*\n\Z")
_PADDING: Final = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$", re.MULTILINE)
_ITEM: Final = re.compile(r"([-*+]|\d{1,9}[.)])(\s|$)")


class BlockSplitter:
    """Cuts markdown into blocks while it arrives: the blocks and what is left, joined, are the text again."""

    def __init__(self) -> None:
        self._block = ""
        self._partial = ""
        self._fence = ""
        self._after_blank = False

    @property
    def rest(self) -> str:
        """What is not finished yet."""
        return self._block + self._partial

    def feed(self, text: str) -> list[str]:
        """Take more text; returns the blocks that are finished now."""
        done: list[str] = []
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._line(line, done)
        # A block ends where the next one begins, and for that its first character is enough.
        if self._partial and self._after_blank and not self._fence and not self._partial[0].isspace():
            self._cut(done)
        return done

    def take_rest(self) -> str:
        """End of the text: the last block, "" when there is none."""
        rest = self.rest
        self.__init__()
        return rest

    def _line(self, line: str, done: list[str]) -> None:
        if self._fence:
            self._block += f"{line}\n"
            closing = line.strip()
            if closing.startswith(self._fence) and not closing.strip(self._fence[0]):
                self._fence = ""
                if not line.startswith(" ") and self._block[0] in "`~":
                    self._cut(done)
            return
        if not line.strip():
            self._block += f"{line}\n"
            self._after_blank = True
            return
        fence, heading = _FENCE.match(line), _HEADING.match(line)
        next_item = _ITEM.match(line) and _ITEM.match(self._block)
        if (self._after_blank and not line[0].isspace()) or heading or next_item or (fence and line[0] != " "):
            self._cut(done)
        self._after_blank = False
        self._block += f"{line}\n"
        if fence:
            self._fence = fence[1]
        elif heading:
            self._cut(done)

    def _cut(self, done: list[str]) -> None:
        if self._block:
            done.append(self._block)
        self._block, self._after_blank = "", False


class MarkdownPainter:
    """Writes streaming markdown to `out`, a terminal that `console` knows the size and the colours of.

    Between two calls of `end` nobody else may write to that terminal.
    """

    def __init__(self, out: IO[str], console: Console) -> None:
        self._out = out
        self._console = console
        self._harmless = Harmless()
        self._splitter = BlockSplitter()
        self._region: RawRegion | None = None

    def write(self, text: str) -> None:
        """More of the text."""
        text = self._harmless.feed(text)
        blocks = self._splitter.feed(text)
        self._show(text, blocks, self._splitter.rest)

    def end(self, *, complete: bool) -> None:
        """No more text. What is left is rendered when the text is complete; the next line of the screen is free."""
        rest = self._splitter.take_rest()
        region, self._region = self._region, None
        self._harmless = Harmless()
        erase = region.erase(self._size()) if region is not None and complete and rest.strip() else None
        if erase is not None:
            self._put(erase + self._rendered(rest))
        elif region is not None and region.column:
            self._put("\n")

    def _show(self, text: str, blocks: list[str], rest: str) -> None:
        if not blocks:
            self._put(self._raw(text))
            return
        erase = "" if self._region is None else self._region.erase(self._size())
        if erase is not None:
            self._region = None
            self._put(erase + "".join(self._rendered(block) for block in blocks) + self._raw(rest))
            return
        # It has to stay raw. What follows can be redrawn again once it begins below what stays.
        kept = len(text) - len(rest)
        if kept < 0:
            self._put(self._raw(text))
            return
        shown = self._raw(text[:kept])
        self._region = None
        self._put(shown + self._raw(text[kept:]))

    def _raw(self, text: str) -> str:
        if not text:
            return ""
        if self._region is None:
            self._region = RawRegion(self._size())
        return self._region.add(text)

    def _rendered(self, block: str) -> str:
        body = _BLANK_BEFORE.sub("", block).rstrip().expandtabs(4)
        if not body:
            return "\n" if block else ""
        with self._console.capture() as captured:
            self._console.print(_Rendered(body))
        # Empty for what markdown does not show, such as the target of a link: nothing that was said may vanish.
        shown = _PADDING.sub(r"\1", captured.get()).strip("\n") or body
        return f"{shown}\n\n" if _BLANK_AFTER.search(block) else f"{shown}\n"

    def _size(self) -> tuple[int, int]:
        size = self._console.size
        return size.width, size.height

    def _put(self, text: str) -> None:
        if text:
            self._out.write(text)
            self._out.flush()


class _PlainHeading(Heading):
    LEVEL_ALIGN = dict.fromkeys(Heading.LEVEL_ALIGN, "left")


class _Rendered(Markdown):
    """Rich's markdown without what hides or joins text.

    HTML is text, the address of a link or picture is always shown, and a line break of the model is a line break.
    """

    elements: ClassVar = {**Markdown.elements, "heading_open": _PlainHeading}

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("image")
        self.parsed = parser.parse(text)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"
