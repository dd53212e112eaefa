"""Text of others on a screen: made harmless, cut to width, shown as markdown without losing or doubling a word."""

import io
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from harness.approval import Approval
from harness.providers import script_texts
from harness.reporters.markdown import BlockSplitter, MarkdownPainter
from harness.reporters.visible import one_line, rows, visible
from harness.terminal.question import shown_call
from tests.terminal.screen import Screen

HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\r\x00\x7f\u202eevil\u2066\udc80"
MARKDOWN = st.lists(
    st.sampled_from(
        ["word", "你好，", " ", "\n", "\n\n", "# ", "- ", "1. ", "```\n", "```py\n", "~~~\n", "    ",
         "| a | b |\n|---|---|\n", "**", "`", "> ", "<div>", "[a](b)", "[x]: http://y\n", "\x1b[31m",
         "\r\n", "\t", "---\n", "~"]
    ),
    max_size=40,
).map("".join)  # fmt: skip


def painted(pieces: Sequence[str], columns: int = 40, lines: int = 500, **options: Any) -> Screen:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=columns, height=lines, color_system="truecolor", **options)
    painter = MarkdownPainter(out, console)
    for piece in pieces:
        painter.write(piece)
    painter.end(complete=True)
    screen = Screen(columns, lines)
    screen.feed(out.getvalue().replace("\n", "\r\n"))
    assert screen.wraps, "the terminal's own wrapping is on again"
    assert screen.column == 0, "the next line is free"
    return screen


def words(text: str) -> str:
    """The letters alone, in order."""
    return "".join(char for char in text if char.isalnum())


@given(text=MARKDOWN, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=30))
@settings(max_examples=150, deadline=None)
def test_blocks_are_the_text_again_and_do_not_depend_on_the_pieces(text: str, sizes: list[int]) -> None:
    text = visible(text)
    whole = BlockSplitter()
    expected = [*whole.feed(text), whole.take_rest()]
    splitter, found, at = BlockSplitter(), [], 0
    while at < len(text):
        size = sizes[at % len(sizes)]
        found += splitter.feed(text[at : at + size])
        at += size
    found.append(splitter.take_rest())
    assert "".join(found) == text
    assert found == expected


@given(text=MARKDOWN, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=30), lines=st.sampled_from([4, 500]))
@settings(max_examples=120, deadline=None)
def test_every_word_stands_on_the_screen_once_however_it_arrives(text: str, sizes: list[int], lines: int) -> None:
    pieces, at = [], 0
    while at < len(text):
        size = sizes[at % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    screen = painted(pieces, lines=lines)
    if lines == 500:
        assert screen.text == painted([text]).text, "the same picture as at once"
    # Markdown itself leaves out the language of a code block, and no other letter.
    said = words(visible(text))
    for word in ("word", "你好", "div"):
        assert words(screen.text).count(word) == said.count(word)


def test_blocks_end_where_a_reader_would_say_so() -> None:
    text = "One\nstill one.\n\n- a\n- b\n\n  more of b\n\n```py\nx = 1\n\ny = 2\n```\n# T\nlast"
    splitter = BlockSplitter()
    assert [*splitter.feed(text), splitter.take_rest()] == [
        "One\nstill one.\n\n", "- a\n", "- b\n\n  more of b\n\n", "```py\nx = 1\n\ny = 2\n```\n", "# T\n", "last",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["TABLE", "CODE", "LONG"])
def test_a_block_too_tall_for_the_screen_stays_raw_and_is_there_once(name: str) -> None:
    text = getattr(script_texts, name)
    screen = painted(list(text), columns=50, lines=7)
    assert screen.lines == 7
    for line in text.split("\n"):
        for word in line.replace("`", " ").split():
            if len(word) > 7 and word.isalpha():
                assert words(screen.text).count(word) == words(text).count(word), word


def test_after_a_change_of_the_window_nothing_is_taken_away() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=30, height=20)
    painter = MarkdownPainter(out, console)
    painter.write("**bold** and more, wider than twenty cells")
    console.width = 20
    for piece in ("\n\n", "*ne", "xt*", "\n\nend"):
        painter.write(piece)
    painter.end(complete=True)
    assert "\x1b[J" in out.getvalue(), "what began after the change is drawn as ever"
    screen = Screen(30, 20)
    screen.feed(out.getvalue().replace("\n", "\r\n"))
    assert screen.text == "**bold** and more, wider than\ntwenty cells\n\nnext\n\nend"


def test_what_markdown_would_hide_is_shown() -> None:
    shown = painted(["<b>one</b>\n\n![two](three)\n\n[four](http://five)\n\n[six]: http://seven\n\na\nb"]).text
    for word in ("<b>one</b>", "two", "three", "four", "http://five", "[six]: http://seven", "a\nb"):
        assert word in shown


@pytest.mark.parametrize("columns", [1, 5, 20, 21])
def test_wide_characters_fill_rows_and_none_is_cut(columns: int) -> None:
    text = "你好世界" * 10 + "a" + "宽" * 9 + " 🙂 e\u0301"
    out = io.StringIO()
    painter = MarkdownPainter(out, Console(file=out, force_terminal=True, width=columns, height=200))
    for char in text:
        painter.write(char)
    painter.end(complete=False)
    screen = Screen(max(columns, 2), 200)
    screen.feed(out.getvalue().replace("\n", "\r\n"))
    assert "".join(screen.text.split()) == "".join(text.split())
    assert "".join(rows(text, max(columns, 2))) == text
    assert all(cell_len(row) <= max(columns, 2) for row in rows(text, columns))


def test_nothing_reaches_the_terminal_that_it_would_obey() -> None:
    for shown in (visible(HOSTILE), one_line(HOSTILE)):
        assert not any(0 <= ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in shown)
        assert not set(shown) & {"\u202e", "\u2066", "\udc80"}
        assert "evil" in shown
    assert visible("a\r\nb\tc\n") == "a\nb\tc\n"
    painted([HOSTILE, "\n\n", f"# {HOSTILE}\n", f"`{HOSTILE}`"])
    assert one_line("x" * 10_000) == "x" * 199 + "…"
    assert one_line(" a \n\n b ") == "a b"


@pytest.mark.parametrize("width", [12, 40, 80])
def test_a_question_shows_every_argument_whole_and_none_can_pose_as_the_question(width: int) -> None:
    arguments = {
        "path": "a" * 300, "content": f"one\n{HOSTILE}\n  y once, s session\n" + "z" * 1000, "empty": "",
        "n": [1, None], "\x1bname": "x",
    }  # fmt: skip
    lines = list(shown_call(Approval("i", "c", "write_file", arguments, 0.0), width))
    assert "write_file" in lines[0]
    assert all(line.startswith("  | ") and line.isprintable() and cell_len(line) < max(width, 14) for line in lines[1:])
    joined = "".join(line[4:] for line in lines[1:])
    for part in ("a" * 300, "z" * 1000, "\\x1b[2J", "\\u202eevil", 'empty: ""', "n: [1, null]", "\\x1bname"):
        assert part in joined
