"""The question as people see it: everything that would run, literally, and how it ended."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.cards.approval import Argument, QuestionState, decider, question_view, split_decider
from bots.cards.strings.en import EN
from bots.cards.strings.zh import ZH
from harness.approval import Approval

ROW = Approval("i" * 32, "ABCDEF", "write_file", {"path": "a.txt"}, 1_700_000_000.0, requester="slack:U1")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def arguments(**values: Any) -> tuple[Argument, ...]:
    return question_view(replace(ROW, arguments=values)).arguments


# Status and decision of the row -> what is shown.
STATES: dict[str, tuple[dict[str, Any], QuestionState]] = {
    "open": ({}, QuestionState.PENDING),
    "once": ({"status": "allowed", "decision": "once"}, QuestionState.ONCE),
    "session": ({"status": "allowed", "decision": "session"}, QuestionState.SESSION),
    "always": ({"status": "allowed", "decision": "always"}, QuestionState.ALWAYS),
    "denied": ({"status": "denied", "decision": "deny"}, QuestionState.DENIED),
    "expired": ({"status": "expired", "decision": "deny"}, QuestionState.EXPIRED),
    "void": ({"status": "void"}, QuestionState.VOID),
}


@pytest.mark.parametrize("case", STATES)
def test_the_view_follows_the_row(case: str) -> None:
    fields, state = STATES[case]
    view = question_view(replace(ROW, **fields))
    assert (view.state, view.is_open) == (state, case == "open")
    assert (view.id, view.code, view.requester, view.expires_at) == (ROW.id, ROW.code, "slack:U1", ROW.expires_at)


def test_every_state_has_its_words_in_both_languages() -> None:
    for strings in (EN, ZH):
        assert set(strings.question) == set(QuestionState)
        assert len(set(strings.question.values())) == len(QuestionState)
        by_person = {state for state, text in strings.question.items() if "{person}" in text}
        assert by_person == {QuestionState.ONCE, QuestionState.SESSION, QuestionState.ALWAYS, QuestionState.DENIED}


# Value -> what is shown of it.
VALUES: dict[str, tuple[Any, str]] = {
    "text": ("plain", "plain"),
    "lines": ("one\n\ttwo\n", "one\n\ttwo\n"),
    "other scripts": ("中文\u3000και 🙂", "中文\u3000και 🙂"),
    "nothing": ("", '""'),
    "only blanks": (" \n ", '" \\n "'),
    "a number": (3, "3"),
    "a long number": (10**40, str(10**40)),
    "yes": (True, "true"),
    "no value": (None, "null"),
    "a list": (["a", 1], '["a", 1]'),
    "an object": ({"b": {"c": "ä"}}, '{"b": {"c": "ä"}}'),
    "text that runs backwards": ("rm \u202egnihton", "rm \\u202egnihton"),
    "text that cannot be seen": ("a\u200bb\u2066c\ufeffd", "a\\u200bb\\u2066c\\ufeffd"),
    "a line that is written over": ("harmless\r rm -rf", "harmless\\r rm -rf"),
    "escape sequences": ("\x1b[2Kx\x00", "\\x1b[2Kx\\x00"),
    "half a character": ("\ud800", "\\ud800"),
}


@pytest.mark.parametrize("case", VALUES)
def test_what_is_shown_of_a_value(case: str) -> None:
    value, shown = VALUES[case]
    assert arguments(x=value) == (Argument("x", shown),)


def test_a_name_is_one_visible_line() -> None:
    shown = question_view(replace(ROW, tool="a\nb", arguments={"p\n\u202eq": 1, "": 2}))
    assert [argument.name for argument in shown.arguments] == ["p\\n\\u202eq", '""']
    assert shown.tool == "a\\nb"


def test_many_arguments_are_one_object() -> None:
    many = {f"k{n}": f"line\n{n}" for n in range(11)}
    [only] = arguments(**many)
    assert only.name == ""
    assert json.loads(only.value) == many
    assert len(arguments(**dict(list(many.items())[:10]))) == 10


@given(st.dictionaries(st.text(), JSON, max_size=12))
def test_nothing_is_left_out_and_nothing_hides(values: dict[str, Any]) -> None:
    shown = question_view(replace(ROW, arguments=values)).arguments
    whole = "".join(argument.name + argument.value for argument in shown)
    assert all(char.isprintable() or char in "\n\t\u3000" for char in whole)
    for name, value in values.items():
        for text in (name, value) if isinstance(value, str) else (name,):
            # Between two characters that have to be escaped the text is there as it is.
            visible = "".join(char if char.isprintable() and char not in '"\\' else "\n" for char in text)
            assert all(piece in whole for piece in visible.split("\n"))


@given(st.from_regex(r"[a-z]{1,8}:[A-Z0-9]{1,12}", fullmatch=True), st.text())
def test_who_decided_and_why_can_be_told_apart(user: str, reason: str) -> None:
    assert split_decider(decider(user, reason)) == (user, reason)


def test_a_decision_of_ours_has_no_person() -> None:
    text = "the bot, because: it could not ask"
    assert split_decider(text) == (text, "")
