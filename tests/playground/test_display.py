"""What a person sees: visible text and the display tree, without a server."""

import pytest

from bots.playground.slack import display, mrkdwn
from bots.playground.slack.model import Version, Workspace
from bots.playground.slack.visible import visible_text

SPACE = Workspace()
ALICE = "<@U0ALICE0001>"


def shown(*blocks, text=""):
    return visible_text(Version(0.0, "test", text, tuple(blocks)), SPACE.name_of)


def flat(node) -> str:
    """A tree as a line: tag(children)."""
    if isinstance(node, str):
        return node
    inner = "".join(flat(child) for child in node.get("children", ()))
    return f"{node['tag']}({inner})"


def markdown(text):
    return "".join(flat(node) for node in display.markdown_nodes(text, SPACE.name_of))


@pytest.mark.parametrize(
    ("stored", "seen"),
    [
        ("a &lt;b&gt; &amp;amp; c", "a <b> &amp; c"),
        (f"hi {ALICE} and <@U0OTHER|dan>", "hi @alice and @dan"),
        ("<!here> <!subteam^S1|@team> <!date^1^{date}|today>", "@here @team today"),
        ("<#C0GENERAL01|general> <https://x.test/?a=1&amp;b=2> <https://x.test|label>", None),
        ("1 < 2 > 0", "1 < 2 > 0"),
    ],
)
def test_stored_text_is_decoded_once(stored, seen):
    expected = seen or "#general https://x.test/?a=1&b=2 label"
    assert mrkdwn.decode(stored, SPACE.name_of) == expected


def test_escaping_leaves_entities_and_tokens_alone():
    assert mrkdwn.escape(f"a&b &amp; <i> {ALICE} <!here>") == f"a&amp;b &amp; &lt;i&gt; {ALICE} <!here>"


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("@bot, hi @Alice", "<@U0BT5LOCAL1>, hi <@U0ALICE0001>"),
        ("me@bot.test @nobody @@bot", "me@bot.test @nobody @@bot"),
        ("@here look: https://x.test/a?b=1&c=2.", "<!here> look: <https://x.test/a?b=1&amp;c=2>."),
        ("看 https://x.test/路。好", "看 <https://x.test/路>。好"),
        ("&lt; is not <", "&amp;lt; is not &lt;"),
    ],
)
def test_typed_text_becomes_slack_s(typed, stored):
    text, elements = mrkdwn.compose(typed, SPACE.id_of)
    assert text == stored
    if "@nobody" not in typed:
        assert shown({"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": elements}]})


def test_a_markdown_block_reads_as_its_source():
    source = "# 标题\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nif a < b: print('&amp;')\n```\n\n- **x** `<y>`"
    assert shown({"type": "markdown", "text": source}) == source
    assert shown({"type": "markdown", "text": "1 &lt; 2 `&lt;`\n```\n&lt; still open"}) == (
        "1 < 2 `&lt;`\n```\n&lt; still open"
    )


def test_blocks_in_order_without_buttons():
    button = {"type": "button", "text": {"type": "plain_text", "text": "Stop"}, "action_id": "stop"}
    seen = shown(
        {"type": "header", "text": {"type": "plain_text", "text": "Card"}},
        {"type": "section", "text": {"type": "mrkdwn", "text": f"*for* {ALICE}"}},
        {"type": "divider"},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": "Done"}, {"type": "mrkdwn", "text": "2 s"}]},
        {"type": "actions", "elements": [button]},
        text="the fallback is not seen",
    )
    assert seen == "Card\n*for* @alice\nDone 2 s"


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        ("**b** *i* ~~s~~ `c<d`", "p(strong(b) em(i) s(s) code(c<d))"),
        ("- one\n- two", "ul(li(one)li(two))"),
        ("```py\nx < y\n```", "pre(x < y)"),
        ("|a|\n|-|\n|1|", "table(thead(tr(th(a)))tbody(tr(td(1))))"),
        ("## 标题", "h2(标题)"),
        ("<b>no</b> <script>x</script>", "p(<b>no</b> <script>x</script>)"),
        (f"hi {ALICE}", "p(hi span(@alice))"),
        ("[x](javascript:alert(1))", "p([x](javascript:alert(1)))"),
        ("![cat](https://x.test/cat.png)", "p(a(cat))"),
    ],
)
def test_markdown_becomes_a_tree_of_harmless_tags(source, tree):
    assert markdown(source) == tree


def test_mrkdwn_styles():
    nodes = display.mrkdwn_nodes("*b* _i_ ~s~ `c` 2*3*4 a_b_c\nnext :warning: <https://x.test|l>", SPACE.name_of)
    line = "".join(flat(node) for node in nodes)
    assert line == "strong(b) em(i) s(s) code(c) 2*3*4 a_b_cbr()next ⚠️ a(l)"
