"""From HTML to text: what is kept, what is dropped, and that no page takes long."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.tools.charsets import decoded
from harness.tools.html_text import MAX_TEXT_CHARS, html_to_text


def text_of(page: str) -> str:
    return html_to_text(page, lambda target: target or None)[1]


PAGES = {
    "<h1>One</h1><p>Two <b>bold</b>\n  words</p><h3>Three</h3>": "# One\n\nTwo bold words\n\n### Three",
    "<ul><li>a<li>b</ul>after": "- a\n- b\n\nafter",
    "a<br>b<hr>c": "a\nb\n\n---\n\nc",
    "<pre>  x = 1\n    y</pre>": "  x = 1\n    y",
    '<a href="https://evil.example/x">https://bank.example</a>!': "https://bank.example <https://evil.example/x>!",
    '<a href="">same page</a>': "same page",
    "<table><tr><td>1<td>2<tr><td>3</table>": "| 1 | 2\n | 3",
    '<img src="https://x.example/?q=secret" alt="A  cat">': "[image: A cat]",
    "<script>if (a < b) alert('</p>')</script>ok<style>p{}</style>": "ok",
    "<SCRIPT>x</ScRiPt >ok": "ok",
    "<!-- <p>no</p> -->ok<!doctype html><?php no ?>": "ok",
    "<noscript>no <p>no</p></noscript><svg><title>no</title><a>no</a></svg>ok": "ok",
    '<div hidden>no<div>no</div>no</div><span style="Display : none">no</span>ok': "ok",
    "<p hidden>left open<p>ok": "left open\n\nok",
    "a &lt; b &amp;&#65;&#x42; &nope; 1 < 2 <3": "a < b &AB &nope; 1 < 2 <3",
    f"&#{'9' * 10_000};ok": "\ufffdok",
    "<p title='a > b' data-x=\">\" y=1/>ok</p>": "ok",
    "ok<a href='never closed": "ok",
    "ok<!-- never closed <p>x": "ok",
    "ok<script>never closed": "ok",
    "ok</div></a></pre></ul>ok": "ok\n\nok",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page[:40])
def test_pages(page: str) -> None:
    assert text_of(page).replace("\n| ", "\n | ").strip() == PAGES[page].strip()


def test_the_title_is_apart() -> None:
    page = "<html><head><title>A &amp;\n B</title><meta x></head><body>text</body>"
    assert html_to_text(page, lambda _: None) == ("A & B", "text")


HOSTILE = {
    "open tags": "<a " * 350_000,
    "open quotes": "<a b='" * 170_000,
    "many quotes": "<a \"<a '" * 130_000,
    "comments": "<!--" * 260_000,
    "declarations": "<!" * 500_000,
    "processing": "<?" * 500_000,
    "closings": "</" * 500_000,
    "scripts": "<script>" * 130_000,
    "attributes": "<p " + "a=1 " * 250_000 + ">",
    "equals": "<p " + "= " * 500_000 + ">",
    "spaces": "<p" + " " * 1_000_000,
    "text spaces": "<pre>" + " " * 1_000_000 + "x",
    "entities": "&" * 1_000_000,
    "numbers": "&#" + "1" * 1_000_000,
    "numbers again": "&#x" * 300_000,
    "nesting": "<div>" * 200_000,
    "hidden": "<div hidden>" * 80_000,
    "links": "<a href=x>" * 100_000,
    "less": "<" * 1_000_000,
}


@pytest.mark.timeout(20)  # quadratic work on a megabyte would take hours
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_pages_take_linear_time(kind: str) -> None:
    started = time.process_time()
    assert len(text_of(HOSTILE[kind])) <= MAX_TEXT_CHARS + 2**20
    assert time.process_time() - started < 10


@given(st.text(alphabet="<>/!-='\"& abpre\n", max_size=200))
def test_any_text_is_a_page(page: str) -> None:
    title, text = html_to_text(page, lambda target: target)
    assert "\n\n\n" not in text
    assert "\n" not in title


@pytest.mark.parametrize(
    ("data", "declared", "text"),
    [
        ("grüß".encode(), None, "grüß"),
        ("grüß".encode("latin-1"), "ISO-8859-1", "grüß"),
        ("“x”".encode("cp1252"), "iso-8859-1", "“x”"),
        ("价格".encode("gbk"), "gb2312", "价格"),
        ("価格".encode("cp932"), '"Shift_JIS"', "価格"),
        ("\ufeffgrüß".encode("utf-16-le"), "utf-8", "grüß"),
        (b"<meta charset=gbk>" + "价格".encode("gbk"), None, "<meta charset=gbk>价格"),
        (b"<meta http-equiv=x content='text/html; charset=koi8-r'>" + "да".encode("koi8-r"), None, "да"),
        (b"a\xff\x00b\x1b[2J", "utf-8", "a\ufffdb[2J"),
        (b"uryyb", "rot13", "uryyb"),
        (b"+AGE-", "utf-7", "+AGE-"),
        (b"\\x61", "unicode_escape", "\\x61"),
        (b"x", "no such thing", "x"),
        (b"a\r\nb\rc", None, "a\nb\nc"),
    ],
)
def test_charsets(data: bytes, declared: str | None, text: str) -> None:
    assert decoded(data, declared, is_html=True).endswith(text)
