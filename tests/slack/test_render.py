import html
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from bots.cards.strings.en import EN
from bots.cards.strings.zh import ZH
from bots.cards.view import CardView, Phase, Pieces, ToolRow
from bots.slack.limits import (
    BLOCKS_PER_MESSAGE,
    CONTEXT_TEXT,
    MARKDOWN_PER_MESSAGE,
    NOTIFICATION_TEXT,
    UPDATE_TEXT,
)
from bots.slack.render import SlackMessage, render
from bots.slack.sanitise import WORD_JOINER, clip, escape, harmless, size
from harness.errors import ERROR_KINDS, ErrorKind


def view(text: str = "", **fields: Any) -> CardView:
    return CardView(pieces=Pieces([text], 1) if text else Pieces(), **{"task_id": "task-1", **fields})


def rendered(card: CardView, **options: Any) -> list[SlackMessage]:
    return render(card, **{"model": "model-x", "strings": EN, **options})


def of_type(message: SlackMessage, kind: str) -> list[Any]:
    return [block for block in message.blocks if block["type"] == kind]


def contexts(message: SlackMessage) -> list[str]:
    return [block["elements"][0]["text"] for block in of_type(message, "context")]


def answer(messages: list[SlackMessage]) -> str:
    return "".join(block["text"] for message in messages for block in of_type(message, "markdown"))


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def check_limits(messages: list[SlackMessage]) -> None:
    """Slack's limits, by a count of our own: every string as if it were escaped once more."""
    for message in messages:
        assert len(message.blocks) <= BLOCKS_PER_MESSAGE
        assert 0 < units(message.text) <= NOTIFICATION_TEXT <= UPDATE_TEXT
        markdown = "".join(block["text"] for block in of_type(message, "markdown"))
        assert units(html.escape(markdown, quote=False)) <= MARKDOWN_PER_MESSAGE
        assert all(block["text"].strip() for block in of_type(message, "markdown"))
        assert all(0 < units(text) <= CONTEXT_TEXT for text in contexts(message))
        json.dumps(message.blocks)


# -- the parts of a card


def test_a_card_without_text_is_a_state_and_a_stop_button() -> None:
    (message,) = rendered(view())
    assert contexts(message) == ["💭 Thinking"]
    (actions,) = of_type(message, "actions")
    (button,) = actions["elements"]
    assert (button["action_id"], button["value"], button["text"]["text"]) == ("stop", "task-1", "Stop")
    assert [block["type"] for block in message.blocks] == ["context", "actions"]
    assert message.text == "💭 Thinking"


def test_the_language_is_the_one_that_is_given() -> None:
    (message,) = rendered(view(), strings=ZH)
    assert contexts(message) == ["💭 思考中"]
    assert of_type(message, "actions")[0]["elements"][0]["text"]["text"] == "停止"


def test_the_task_of_the_button_may_be_given() -> None:
    (message,) = rendered(view(task_id=""), value="task-2")
    assert of_type(message, "actions")[0]["elements"][0]["value"] == "task-2"


def test_without_a_task_there_is_no_button() -> None:
    assert of_type(rendered(view(task_id=""))[0], "actions") == []


@pytest.mark.parametrize("phase", list(Phase))
def test_a_card_offers_stop_while_it_runs_and_retry_where_that_makes_sense(phase: Phase) -> None:
    (message,) = rendered(view("text", phase=phase))
    offered = [button["action_id"] for block in of_type(message, "actions") for button in block["elements"]]
    again = phase in (Phase.INTERRUPTED, Phase.TIMED_OUT)
    assert offered == (["stop"] if not phase.is_final else ["retry"] if again else [])


@pytest.mark.parametrize("kind", ERROR_KINDS)
def test_a_failure_offers_retry_where_the_same_request_may_work_now(kind: ErrorKind) -> None:
    (message,) = rendered(view("text", phase=Phase.FAILED, error=kind))
    assert bool(of_type(message, "actions")) is ERROR_KINDS[kind].offer_retry


def test_a_finished_card() -> None:
    card = view(
        "It is **14**.",
        phase=Phase.DONE,
        tools=(ToolRow("1", "calculator", {"expression": "2*(3+4)"}, "done", 100),),
        input_tokens=1000,
        output_tokens=234,
        started_at=10.0,
        ended_at=12.5,
    )
    (message,) = rendered(card)
    assert contexts(message) == ["✅ Done", "✓ `calculator(2*(3+4))` · 0.1 s", "model-x · 1,234 tokens · 2.5 s"]
    assert answer([message]) == "It is **14**."
    assert [block["type"] for block in message.blocks] == ["context", "context", "markdown", "context"]
    assert message.text == "It is **14**."


def test_a_failed_card_says_so_and_keeps_the_text() -> None:
    card = view("half an ans", phase=Phase.FAILED, error="truncated", started_at=1.0, ended_at=2.0)
    (message,) = rendered(card)
    assert answer([message]) == "half an ans"
    assert "broke off" in contexts(message)[1]
    assert "incomplete" in contexts(message)[1]


def test_the_same_view_gives_the_same_messages() -> None:
    card = view("text " * 10_000, tools=(ToolRow("1", "t", {}),))
    assert rendered(card) == rendered(card)


# -- tools


@pytest.mark.parametrize("count", [1, 10, 11, 60, 500])
def test_many_tools_fit(count: int) -> None:
    rows = tuple(
        ToolRow(str(n), "tool", {"a": "<&>" * 200}, "failed" if n % 7 == 0 else "done", 5) for n in range(count)
    )
    messages = rendered(view("text", tools=rows))
    check_limits(messages)
    lines = contexts(messages[0])[1].split("\n")
    assert len(lines) == min(count, 10)
    if count > 10:
        failed = sum(row.status == "failed" for row in rows[: count - 9])
        assert lines[0] == f"… ✓ ×{count - 9 - failed} · ✗ ×{failed}"


def test_arguments_are_no_formatting_and_no_tokens() -> None:
    row = ToolRow("1", "sh", {"command": "echo `a` *b* _c_ <!here> · x"}, "running")
    line = contexts(rendered(view(tools=(row,)))[0])[1]
    assert line == "⋯ `sh(echo ˋaˋ *b* _c_ &lt;!here&gt; · x)`"


def test_an_unknown_outcome_is_told() -> None:
    row = ToolRow("1", "sh", {"command": "rm x"}, "unknown")
    assert contexts(rendered(view(tools=(row,)))[0])[1] == "? `sh(rm x)` · outcome unknown"


# -- the text is the model's


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "# Title\n\n- a\n- b\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nif a < b & c > d: pass\n```\n",
        "a < b && c > d, <b>html</b>, &lt;entities&gt; &amp; &copy;",
        "<https://a.example> [link](https://b.example) user@c.example #channel @name",
        "List<@NonNull String> and <!-- a comment --> and <!DOCTYPE html>",
        "not an image: \\![x](y) `![code](x)` ! [x](y)\n\n    ![indented](code)\n\n```\n![fenced](code)\n```",
        "中文答案：第一步，第二步。\n\n**重点**",
        "👩‍👩‍👧 e\u0301 \u200b zero width",
    ],
)
def test_the_text_is_shown_as_it_is(text: str) -> None:
    assert answer(rendered(view(text))) == text


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("word " * 20_000, 100_000),
        ("这是一个很长的回答。" * 10_000, 100_000),
        ("😀" * 50_000, 50_000),
        ("<&>" * 20_000, 60_000),
        ("para\n\n" * 20_000, 120_000),
    ],
)
def test_a_long_text_takes_several_messages_and_stays_whole(text: str, length: int) -> None:
    assert len(text) == length
    messages = rendered(view(text, phase=Phase.DONE, started_at=1.0, ended_at=2.0))
    check_limits(messages)
    assert len(messages) > 5
    assert answer(messages) == text


def test_long_code_is_reopened_in_every_message() -> None:
    text = "```py\n" + "".join(f"value_{n} = {n}  # a line of code\n" for n in range(1_500)) + "```"
    messages = rendered(view(text))
    check_limits(messages)
    parser = MarkdownIt("commonmark")
    codes = ["".join(token.content for token in parser.parse(answer([message]))) for message in messages]
    assert len(codes) > 3
    assert "".join(codes) == text.removeprefix("```py\n").removesuffix("```")


def test_where_the_lines_of_a_long_card_stand() -> None:
    card = view("word " * 10_000, phase=Phase.DONE, tools=(ToolRow("1", "t", {}),), started_at=1.0, ended_at=2.0)
    messages = rendered(card)
    assert contexts(messages[0]) == ["✅ Done", "⋯ `t()`"]
    assert [contexts(message) for message in messages[1:-1]] == [["↳ continued"]] * (len(messages) - 2)
    assert contexts(messages[-1]) == ["↳ continued", "model-x · 1.0 s"]


def test_the_button_of_a_long_card_is_at_its_end() -> None:
    messages = rendered(view("word " * 10_000))
    assert [bool(of_type(message, "actions")) for message in messages] == [False] * (len(messages) - 1) + [True]


def test_growth_leaves_the_earlier_messages_alone() -> None:
    text = "word " * 6_000
    before, after = rendered(view(text)), rendered(view(text + "more " * 10))
    assert len(before) == len(after) > 2
    assert after[:-1] == before[:-1]
    assert after[-1] != before[-1]


def test_white_space_alone_is_no_message() -> None:
    messages = rendered(view("\n" * 30_000))
    check_limits(messages)
    assert of_type(messages[0], "markdown") == []


# -- the output rules


TOKENS = ["<!here>", "<!channel>", "<!everyone>", "<!subteam^S0OPS>", "<!subteam^S0OPS|@ops>", "<@U0ALICE>", "<@W0X|x>"]


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("around", ["{}", "`{}`", "```\n{}\n```", "[x]({})", "> {}", "- {}", "\\{}", "**{}**", "a{}b"])
def test_nobody_is_called(token: str, around: str) -> None:
    text = around.format(token)
    shown = answer(rendered(view(text)))
    assert token not in shown
    assert shown.replace(WORD_JOINER, "") == text


@pytest.mark.parametrize(
    "text",
    [
        "&lt;!here&gt;",
        "&#60;!here>",
        "&#x3c;!channel>",
        "<\\!here>",
        "<&excl;here>",
        "&lt;@U0ALICE&gt;",
        "<\\@U0ALICE\\>",
    ],
)
def test_nobody_is_called_by_what_markdown_decodes(text: str) -> None:
    shown = answer(rendered(view(text)))
    decoded = html.unescape(shown).replace("\\", "")
    assert not any(token in decoded for token in ("<!here>", "<!channel>", "<@U0ALICE>"))
    assert shown.replace(WORD_JOINER, "") == text


@given(st.text(alphabet="<>!@|^`\\&;ltUW0here channel", max_size=60))
def test_nobody_is_called_by_any_text(text: str) -> None:
    shown = harmless(text)
    assert shown.replace(WORD_JOINER, "") == text.replace(WORD_JOINER, "")
    assert not any(token in shown for token in ("<!here", "<!channel", "<@U0", "<@W0>"))
    assert units(html.escape(shown, quote=False)) <= size(text)


def test_nobody_is_called_by_a_tool_or_by_the_notification() -> None:
    row = ToolRow("1", "<!here>", {"a": "<!channel>"}, "done", 1)
    (message,) = rendered(view("<!everyone> hi", tools=(row,)))
    assert "<!" not in "".join(contexts(message)) + message.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("![alt](https://a.example/x.png)", "[alt](https://a.example/x.png)"),
        ("![](https://a.example)", "[](https://a.example)"),
        ("a ![b](c) and `![d](e)` and ![f](g)", "a [b](c) and `![d](e)` and [f](g)"),
        ("> - ![q](x)\n>   ![r](y)", "> - [q](x)\n>   [r](y)"),
        ("[![badge](i)](l)", "[[badge](i)](l)"),
        ("![o ![p](q)](r)", "[o [p](q)](r)"),
        ("![r][ref]\n\n[ref]: https://a.example", "[r][ref]\n\n[ref]: https://a.example"),
        ("| ![a](b) | `![c](d)` |\n|--|--|\n| ![e](f) | x |", "| [a](b) | `![c](d)` |\n|--|--|\n| [e](f) | x |"),
        ("wow![not](an image) ![yes](u)", "wow![not](an image) [yes](u)"),
    ],
)
def test_images_are_links(text: str, shown: str) -> None:
    assert answer(rendered(view(text))) == shown


@given(st.text(alphabet="![]()`\\ab \n>-|", max_size=60))
def test_no_image_is_left_and_nothing_else_is_touched(text: str) -> None:
    shown = harmless(text)
    parser = MarkdownIt("commonmark").enable("table")
    images = [child for token in parser.parse(shown) for child in token.children or () if child.type == "image"]
    assert images == []
    assert shown.replace("!", "") == text.replace("!", "")


# -- strings for mrkdwn


@given(st.text(), st.integers(2, 60))
def test_clipped_text_fits_and_is_a_beginning(text: str, limit: int) -> None:
    clipped = clip(text, limit)
    assert units(clipped.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")) <= limit
    if clipped != escape(text):
        assert clipped.endswith("…")
        assert escape(text).startswith(clipped[:-1])


def test_an_entity_is_never_cut() -> None:
    assert [clip("<<<<", limit) for limit in (16, 15, 14, 13, 12, 9, 8, 5, 4)] == [
        "&lt;&lt;&lt;&lt;",
        "&lt;&lt;&lt;…",
        "&lt;&lt;&lt;…",
        "&lt;&lt;&lt;…",
        "&lt;&lt;…",
        "&lt;&lt;…",
        "&lt;…",
        "&lt;…",
        "…",
    ]
