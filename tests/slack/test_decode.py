import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.slack.decode import decode_blocks, decode_text, unescape
from tests.slack.payloads import BOT_USER, rich_text, section, words

RAW = [
    ("plain", "plain", False),
    (f"<@{BOT_USER}> hello", "hello", True),
    (f"hello <@{BOT_USER}>", "hello", True),
    (f"hey <@{BOT_USER}> there", "hey there", True),
    (f"hey <@{BOT_USER}|bot>, there", "hey, there", True),
    (f"<@{BOT_USER}> <@{BOT_USER}> twice", "twice", True),
    (f"one\n<@{BOT_USER}> two", "one\ntwo", True),
    (f"<@{BOT_USER}>", "", True),
    ("ask <@U0BOB|bob>", "ask @bob", False),
    ("ask <@U0BOB>", "ask @U0BOB", False),
    ("ask <@W0GRID>", "ask @W0GRID", False),
    ("see <#C0OTHER|general>", "see #general (C0OTHER)", False),
    ("see <#C0OTHER>", "see #C0OTHER", False),
    ("<!here> <!channel> <!everyone>", "@here @channel @everyone", False),
    ("<!subteam^S0OPS|@ops> and <!subteam^S0OPS>", "@ops and @S0OPS", False),
    ("<https://a.example/?x=1&amp;y=2>", "https://a.example/?x=1&y=2", False),
    ("<https://a.example|the page>", "the page (https://a.example)", False),
    ("<http://a.example|a.example>", "http://a.example", False),
    ("<mailto:a@b.example|a@b.example>", "a@b.example", False),
    ("<!date^1392734382^{date}|Feb 18>", "Feb 18", False),
    ("<!date^1392734382^{date}>", "2014-02-18 14:39 UTC", False),
    ("<!date^99999999999999^{date}>", "99999999999999", False),
    ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d", False),
    ("&amp;lt;", "&lt;", False),
    ("&amp;amp;lt;", "&amp;lt;", False),
    ("&copy; &#60; stay", "&copy; &#60; stay", False),
    (f"&lt;@{BOT_USER}&gt; is no mention", f"<@{BOT_USER}> is no mention", False),
    ("&lt;!here&gt;", "<!here>", False),
    ("```if a &lt; b:\n    go()```", "```if a < b:\n    go()```", False),
    ("unclosed <@U0", "unclosed <@U0", False),
    ("<>", "", False),
]


@pytest.mark.parametrize(("raw", "text", "mentioned"), RAW)
def test_text(raw: str, text: str, mentioned: bool) -> None:
    decoded = decode_text(raw, BOT_USER)
    assert (decoded.text, decoded.mentions_bot) == (text, mentioned)


@given(st.text())
def test_any_text_decodes(raw: str) -> None:
    assert isinstance(decode_text(raw, BOT_USER).text, str)


@given(st.text(alphabet="<>&@!#|^;ltgamp U0BOT:/.\n", max_size=60))
def test_any_text_of_slack_characters_decodes(raw: str) -> None:
    assert isinstance(decode_text(raw, BOT_USER).text, str)


@given(st.text())
def test_what_was_typed_comes_back_once_decoded(typed: str) -> None:
    escaped = html.escape(typed, quote=False)
    assert unescape(escaped) == typed
    assert decode_text(escaped, BOT_USER).text == typed.strip()


@given(st.text(), st.text())
def test_typed_mentions_are_text(before: str, after: str) -> None:
    raw = f"{html.escape(before, quote=False)}&lt;@{BOT_USER}&gt;{html.escape(after, quote=False)}"
    decoded = decode_text(raw, BOT_USER)
    assert not decoded.mentions_bot
    assert f"<@{BOT_USER}>" in decoded.text


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "elements", "text", "style", "user_id", "indent", "offset", "url", "name"]), inner
        )
    ),
    max_leaves=12,
)


@given(json)
def test_any_blocks_decode(blocks: object) -> None:
    decode_blocks(blocks, BOT_USER)
    decode_blocks([{"type": "rich_text", "elements": blocks}], BOT_USER)


def test_rich_text_keeps_structure() -> None:
    blocks = rich_text(
        section(
            {"type": "user", "user_id": BOT_USER},
            words(" why does "),
            words("a < b", code=True),
            words(" fail for "),
            {"type": "user", "user_id": "U0BOB"},
            words("?\n"),
        ),
        {"type": "rich_text_preformatted", "elements": [words("if a &lt; b:\n    <!here>\n")]},
        {
            "type": "rich_text_list",
            "style": "ordered",
            "indent": 0,
            "elements": [section(words("one")), section(words("two"))],
        },
        {"type": "rich_text_list", "style": "bullet", "indent": 1, "elements": [section(words("deep"))]},
        {"type": "rich_text_quote", "elements": [words("said\nthat")]},
        section(
            {"type": "link", "url": "https://a.example", "text": "page"},
            words(" "),
            {"type": "channel", "channel_id": "C0OTHER"},
            words(" "),
            {"type": "emoji", "name": "wave"},
            {"type": "broadcast", "range": "here"},
            {"type": "usergroup", "usergroup_id": "S0OPS"},
            {"type": "date", "timestamp": 0, "format": "{date}", "fallback": "1970"},
        ),
    )
    decoded = decode_blocks(blocks, BOT_USER)
    assert decoded is not None
    assert decoded.mentions_bot
    assert decoded.text == (
        "why does `a < b` fail for @U0BOB?\n\n"
        "```\nif a &lt; b:\n    <!here>\n```\n"
        "1. one\n2. two\n  - deep\n> said\n> that\n"
        "page (https://a.example) #C0OTHER :wave:@here@S0OPS1970"
    )
    assert not re.search("<@", decoded.text)


def test_without_rich_text_there_is_nothing() -> None:
    assert decode_blocks(None, BOT_USER) is None
    assert decode_blocks([{"type": "section", "text": {"type": "mrkdwn", "text": "x"}}], BOT_USER) is None
