import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bots.cards.split import Part, split

MARKDOWN = MarkdownIt("commonmark").enable("table")


def texts(parts: list[Part]) -> list[str]:
    return [part.text for part in parts]


def joined(parts: list[Part]) -> str:
    return "".join(part.source for part in parts)


def codes(text: str) -> list[str]:
    return [token.content for token in MARKDOWN.parse(text) if token.type == "fence"]


def is_balanced(text: str) -> bool:
    """Whether every fence of the text is closed, seen without the parser's forgiveness: a line after it is no code."""
    return not any("sentinel" in code for code in codes(f"{text}\n\nsentinel"))


# -- where it cuts


@pytest.mark.parametrize("text", ["", "short", "exactly ten"])
def test_a_text_that_fits_is_one_part(text: str) -> None:
    assert split(text, 11) == [Part(text)]


def test_between_paragraphs() -> None:
    text = "first paragraph\n\nsecond paragraph\n\nthird paragraph"
    assert texts(split(text, 40)) == ["first paragraph\n\nsecond paragraph\n\n", "third paragraph"]


def test_not_between_a_heading_and_its_text() -> None:
    text = "one one one one\n\n# Heading\n\ntwo two two two two two"
    assert texts(split(text, 34)) == ["one one one one\n\n", "# Heading\n\ntwo two two two two two"]


def test_between_items_of_a_list() -> None:
    text = "- first item of it\n- second item of it\n- third item of it\n"
    assert texts(split(text, 45)) == ["- first item of it\n- second item of it\n", "- third item of it\n"]


def test_not_before_a_nested_item_which_would_become_code() -> None:
    text = "- first item of it\n    - nested item\n    - nested too\n- last one"
    (first, second) = split(text, 60)
    assert (first.text, second.text) == ("- first item of it\n    - nested item\n    - nested too\n", "- last one")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("line one here\nline two here\nline three", ["line one here\nline two here\n", "line three"]),
        ("One is here. Two is here. Three is it.", ["One is here. Two is here. ", "Three is it."]),
        ("words and words and words and words", ["words and words and words and ", "words"]),
        (
            "句子一在这里。句子二在这里。句子三在这里。句子四在这里。句子五。",
            ["句子一在这里。句子二在这里。句子三在这里。句子四在这里。", "句子五。"],
        ),
        ("x" * 40, ["x" * 30, "x" * 10]),
    ],
)
def test_lines_then_sentences_then_words_then_characters(text: str, parts: list[str]) -> None:
    assert texts(split(text, 30)) == parts


@pytest.mark.parametrize(
    "character",
    [
        "👩‍👩‍👧",
        "👍🏽",
        "❤️",
        "🇩🇪",
        "e\u0301",
        "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
        "각",
    ],
)
@pytest.mark.parametrize("limit", [10, 11, 12, 13])
def test_no_character_is_torn(character: str, limit: int) -> None:
    parts = split(character * 30, limit)
    assert joined(parts) == character * 30
    assert all(len(part.text) <= limit and not part.text.replace(character, "") for part in parts)


def test_no_line_end_is_torn() -> None:
    assert all(not part.source.startswith("\n") for part in split("a\r\n" * 20, 4))


# -- code


def test_a_code_block_moves_as_a_whole() -> None:
    text = "intro intro\n\n```py\na = 1\nb = 2\n```\n"
    assert texts(split(text, 30)) == ["intro intro\n\n", "```py\na = 1\nb = 2\n```\n"]


def test_a_long_code_block_is_closed_and_reopened() -> None:
    text = "```py\n" + "".join(f"line{n} = {n}\n" for n in range(10)) + "```\nafter\n"
    parts = split(text, 55)
    assert joined(parts) == text
    assert parts[0].text == "```py\nline0 = 0\nline1 = 1\nline2 = 2\nline3 = 3\n```"
    assert parts[1].text.startswith("```py\nline4 = 4\n")
    assert parts[-1].text.endswith("```\nafter\n")
    assert all(is_balanced(part.text) and len(part.text) <= 55 for part in parts)


@pytest.mark.parametrize("limit", range(40, 80))
def test_no_part_has_an_empty_code_block(limit: int) -> None:
    text = "intro\n\n~~~~ sh\n" + "".join(f"echo number {n}\n" for n in range(12)) + "~~~~\n\noutro\n"
    parts = split(text, limit)
    assert joined(parts) == text
    assert all(code.strip() for part in parts for code in codes(part.text))
    assert all(is_balanced(part.text) for part in parts)
    assert "".join(code for part in parts for code in codes(part.text)) == codes(text)[0]


@pytest.mark.parametrize(("opener", "prefix"), [("- ```py", "  "), ("> ```py", "> "), ("1. ```py", "   ")])
def test_code_inside_of_lists_and_quotes(opener: str, prefix: str) -> None:
    text = f"{opener}\n" + "".join(f"{prefix}line{n} = {n}\n" for n in range(12)) + f"{prefix}```\n\nafter\n"
    parts = split(text, 80)
    assert len(parts) > 2
    assert joined(parts) == text
    assert all(is_balanced(part.text) for part in parts)
    assert "".join(code for part in parts for code in codes(part.text)) == codes(text)[0]


def test_a_line_of_code_that_is_longer_than_a_part() -> None:
    text = f"```\n{'x' * 200}\n```"
    parts = split(text, 50)
    assert joined(parts) == text
    assert all(len(part.text) <= 50 and is_balanced(part.text) for part in parts)
    assert "".join(code.strip() for part in parts for code in codes(part.text)) == "x" * 200


def test_a_fence_in_code_is_no_fence() -> None:
    text = "````md\n" + "```py\nx\n```\n" * 8 + "````\n"
    assert all(is_balanced(part.text) for part in split(text, 50))


# -- tables


HEADER = "| name | value |\n| --- | --- |\n"


def test_a_table_moves_as_a_whole() -> None:
    text = f"intro intro intro\n\n{HEADER}| a | 1 |\n"
    assert texts(split(text, 50)) == ["intro intro intro\n\n", f"{HEADER}| a | 1 |\n"]


def test_a_long_table_repeats_its_header() -> None:
    text = HEADER + "".join(f"| row{n} | {n} |\n" for n in range(20)) + "\nafter"
    parts = split(text, 100)
    assert joined(parts) == text
    assert all(part.text.startswith(HEADER) for part in parts[:-1])
    rows = [row for part in parts for row in part.text.splitlines() if row.startswith("| row")]
    assert len(rows) == 20
    assert all(len(part.text) <= 100 for part in parts)


def test_no_header_is_repeated_where_the_table_has_ended() -> None:
    table = HEADER + "".join(f"| row{n} | {n} |\n" for n in range(4))
    for after in range(4):
        parts = split(f"{table}\nafter the table comes a text", len(table) + after)
        assert parts[-1].head == ""


# -- what always holds


line = st.text(alphabet="ab c*_[]()`|#->+.!?。语😀\u0301", max_size=40)
code = st.builds(
    lambda fence, info, lines: f"{fence}{info}\n" + "".join(f"{entry}\n" for entry in lines) + fence,
    st.sampled_from(["```", "~~~", "````"]),
    st.sampled_from(["", "py", "c++"]),
    st.lists(st.text(alphabet="ab (){}=#", max_size=30).filter(str.strip), min_size=1, max_size=12),
)
table = st.lists(st.text(alphabet="ab1", min_size=1, max_size=8), min_size=1, max_size=12).map(
    lambda cells: HEADER + "\n".join(f"| {cell} | x |" for cell in cells)
)
prose = st.lists(st.text(alphabet="ab c.,语😀", min_size=1, max_size=40), min_size=1, max_size=5).map("\n".join)
document = st.lists(prose | code | table | st.just("# Heading"), max_size=8).map("\n\n".join)
limits = st.integers(60, 160)


def units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2 + 4 * text.count("<")


@settings(deadline=None)
@given(st.text(max_size=300) | line.flatmap(lambda one: st.just(one * 8)), st.integers(20, 80))
def test_any_text_is_kept_and_fits(text: str, limit: int) -> None:
    parts = split(text, limit, units)
    assert joined(parts) == text
    assert all(units(part.text) <= limit for part in parts)


@given(document, limits)
@settings(max_examples=150, deadline=None)
def test_documents_are_kept_and_fit_and_every_part_stands_alone(text: str, limit: int) -> None:
    parts = split(text, limit)
    assert joined(parts) == text
    for part in parts:
        assert len(part.text) <= limit
        assert is_balanced(part.text)
    whole = re.sub(r"\s", "", "".join(codes(text)))
    assert re.sub(r"\s", "", "".join(code for part in parts for code in codes(part.text))) == whole


@given(document, limits, st.integers(7, 40))
@settings(max_examples=40, deadline=None)
def test_a_growing_text_changes_only_its_last_two_parts(text: str, limit: int, step: int) -> None:
    before: list[Part] = []
    for end in range(step, len(text) + step, step):
        parts = split(text[:end], limit)
        assert len(parts) >= len(before)
        assert parts[: max(0, len(before) - 2)] == before[:-2]
        before = parts


def test_parts_are_found_again_quickly() -> None:
    paragraph = "Some words of a **long** answer, with `code` in it. " * 12
    text = "\n\n".join(f"## Section {n}\n\n{paragraph}\n\n- a\n- b\n\n```py\nx = {n}\n```" for n in range(150))
    assert len(text) > 100_000
    parts = split(text, 11_000, units)
    assert joined(parts) == text
    assert len(parts) < 1.4 * len(text) / 11_000
    started = time.process_time()
    split(f"{text} and more", 11_000, units)
    # No target, only the order of magnitude: a parse of the whole text takes ten times as long.
    assert time.process_time() - started < 1.0
