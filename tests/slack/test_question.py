"""A question as a Slack message: within Slack's limits and harmless whatever the model wrote, or not at all."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bots.cards.approval import QuestionState, QuestionView, decider, question_view
from bots.cards.strings import Strings
from bots.cards.strings.en import EN
from bots.cards.strings.zh import ZH
from bots.errors import QuestionTooLong
from bots.playground.slack import blocks as slack_rules
from bots.playground.slack.limits import BLOCKS_PER_MESSAGE
from bots.slack.limits import QUESTION_ARGUMENTS, RICH_TEXT_PIECE, UPDATE_TEXT
from bots.slack.question import render_question
from bots.slack.sanitise import size
from harness.approval import Approval

ROW = Approval("i" * 32, "ABCDEF", "write_file", {"path": "a.txt"}, 1_700_000_000.0, requester="slack:U0ALICE")
VIEW = question_view(ROW)
HOSTILE = ["<!channel>", "<@U0ADMIN>", "```", "`", "*bold*", "&lt;", "<https://evil.example|ok>", "\u202e", "\n", ":x:"]
TEXT = st.text() | st.lists(st.sampled_from(HOSTILE) | st.text(max_size=5), max_size=30).map("".join)
LABELS = {
    "en": ["Allow once", "Allow for this session", "Always allow", "Deny"],
    "zh": ["允许一次", "本会话允许", "始终允许", "拒绝"],
}


def with_arguments(**values: Any) -> QuestionView:
    return question_view(replace(ROW, arguments=values))


def rich(blocks: Any) -> list[tuple[str, str]]:
    """Kind and text of everything that is shown literally, in order."""
    parts = [element for block in blocks if block["type"] == "rich_text" for element in block["elements"]]
    return [(part["type"], "".join(piece["text"] for piece in part["elements"])) for part in parts]


def formatted(blocks: Any) -> str:
    """All text in which Slack looks for tokens and formatting."""
    texts = [block["text"] for block in blocks if block["type"] == "section"]
    texts += [element for block in blocks if block["type"] == "context" for element in block["elements"]]
    return "\n".join(text["text"] for text in texts)


def buttons(blocks: Any) -> list[Any]:
    return [button for block in blocks if block["type"] == "actions" for button in block["elements"]]


@pytest.mark.parametrize("strings", [EN, ZH])
def test_an_open_question_says_everything_and_has_four_buttons(strings: Strings) -> None:
    message = render_question(VIEW, strings)
    found = buttons(message.blocks)
    assert [button["text"]["text"] for button in found] == LABELS["en" if strings is EN else "zh"]
    assert [button["action_id"] for button in found] == ["allow_once", "allow_session", "allow_always", "deny"]
    assert {button["value"] for button in found} == {ROW.id}, "opaque: the row is the authority"
    assert rich(message.blocks) == [("rich_text_section", "path"), ("rich_text_preformatted", "a.txt")]
    small = formatted(message.blocks)
    for part in ("`write_file`", "<@U0ALICE>", "!approve ABCDEF", "!deny ABCDEF", "<!date^1700000000^"):
        assert part in small
    assert "write_file" in message.text


ENDS: dict[str, tuple[dict[str, Any], str]] = {
    "once": ({"status": "allowed", "decision": "once", "decided_by": "slack:U0BOB"}, "Allowed once by <@U0BOB>"),
    "always": ({"status": "allowed", "decision": "always", "decided_by": "slack:U0BOB"}, "Always allowed by <@U0BOB>"),
    "denied": (
        {"status": "denied", "decision": "deny", "decided_by": decider("slack:U0BOB", "no <!here>")},
        "Reason: no &lt;!here&gt;",
    ),
    "by the API": ({"status": "allowed", "decision": "once", "decided_by": "api:<@U1>"}, "by api:&lt;@U1&gt;"),
    "expired": ({"status": "expired", "decision": "deny"}, "Expired, not run"),
    "void": ({"status": "void"}, "Canceled, not run"),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_question_that_is_over_keeps_its_call_and_loses_its_buttons(case: str) -> None:
    fields, words = ENDS[case]
    message = render_question(question_view(replace(ROW, **fields)), EN)
    assert words in formatted(message.blocks)
    assert buttons(message.blocks) == []
    assert "ABCDEF" not in formatted(message.blocks)
    assert rich(message.blocks) == rich(render_question(VIEW, EN).blocks)


def check(view: QuestionView, strings: Strings) -> None:
    message = render_question(view, strings)
    assert slack_rules.validate([dict(block) for block in message.blocks], escaped=True) == []
    assert len(message.blocks) <= BLOCKS_PER_MESSAGE
    assert 0 < size(message.text) <= UPDATE_TEXT
    assert "<" not in message.text
    literal = rich(message.blocks)
    assert all(size(text) <= RICH_TEXT_PIECE for _, text in literal)
    assert "".join(text for _, text in literal) == "".join(a.name + a.value for a in view.arguments), "whole"
    # Nothing of the arguments is where Slack looks for tokens.
    if view.arguments:
        without = formatted(render_question(replace(view, arguments=()), strings).blocks)
        assert formatted(message.blocks) == without.replace(f"\n{strings.question_no_arguments}", "")


@given(st.dictionaries(TEXT, TEXT | st.integers() | st.lists(TEXT, max_size=3), max_size=14), st.sampled_from([EN, ZH]))
@example({"content": "<!channel>" * 200}, EN)
@example({f"k{n}": "v" for n in range(10)}, EN)
@example({"k" * 5000: "v", "w": "\n" * 3000}, ZH)
@example({"content": "🙂" * 4000}, EN)
def test_arguments_of_every_kind_are_within_the_limits_or_not_asked_about(values: Any, strings: Strings) -> None:
    view = with_arguments(**values)
    whole = sum(size(argument.name) + size(argument.value) for argument in view.arguments)
    if whole > QUESTION_ARGUMENTS:
        with pytest.raises(QuestionTooLong):
            render_question(view, strings)
        return
    for state in QuestionState:
        check(replace(view, state=state, decided_by="slack:U0BOB", reason="because <!here>"), strings)


@pytest.mark.parametrize("char", ["x", "&", "<", "\n", "中", "🙂", "`"])
def test_the_largest_call_that_fits_is_shown_whole_and_the_next_one_is_not(char: str) -> None:
    fits = (QUESTION_ARGUMENTS - len("content")) // size(char)
    check(with_arguments(content="." + char * (fits - 1)), EN)
    with pytest.raises(QuestionTooLong):
        render_question(with_arguments(content="." + char * (fits + 1)), EN)


def test_a_file_is_cut_into_pieces_at_the_ends_of_lines() -> None:
    lines = "".join(f"line {n}\n" for n in range(900))
    pieces = [text for kind, text in rich(render_question(with_arguments(c=lines), EN).blocks) if "pre" in kind]
    assert len(pieces) > 2
    assert all(piece.endswith("\n") for piece in pieces)


@given(st.text(max_size=3000), st.text(max_size=300), st.text(max_size=3000), st.floats(allow_nan=False))
def test_names_reasons_and_times_are_harmless(tool: str, user: str, reason: str, at: float) -> None:
    view = replace(VIEW, tool=tool or "t", requester=user, expires_at=at)
    check(view, EN)
    check(replace(view, state=QuestionState.DENIED, decided_by=user, reason=reason), EN)


def test_a_call_without_arguments_says_so() -> None:
    assert EN.question_no_arguments in formatted(render_question(with_arguments(), EN).blocks)
