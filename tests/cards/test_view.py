"""The fold: a card is what its events say, no value ever changes, and a piece of text costs the same at any length."""

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bots.cards.strings.en import EN
from bots.cards.strings.zh import ZH
from bots.cards.text import footer_line, language_of, notice_line, state_line, tool_line
from bots.cards.view import CardView, Phase, Pieces, ToolRow, fold
from harness.errors import ERROR_KINDS
from harness.events import (
    Event,
    MessageRetracted,
    ModelDelta,
    ModelEnded,
    ModelReasoning,
    ModelRetrying,
    ModelStarted,
    RunEnded,
    RunError,
    RunStarted,
    StepTaken,
    TaskStateChanged,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    UsageReported,
)
from harness.messages import ToolCall, Usage
from harness.runtime import STOPPING
from harness.status import StopReason, TaskStatus


def make(cls: type[Any], *fields: Any, at: float = 0.0) -> Any:
    return cls("t", 1, at, *fields)


def folded(*events: Event, view: CardView | None = None) -> CardView:
    view = view or CardView()
    for event in events:
        view = fold(view, event)
    return view


def state(to: TaskStatus, position: int = 0, reason: str = "") -> Event:
    return make(TaskStateChanged, None, to, reason, position)


def delta(text: str) -> Event:
    return make(ModelDelta, text)


def call(id: str = "c", arguments: Any = None) -> Event:
    return make(ToolStarted, ToolCall(id, "look", arguments if arguments is not None else {"x": 1}, "{bad"))


def end(status: TaskStatus, error: RunError | None = None, at: float = 5.0) -> Event:
    return make(RunEnded, status, StopReason.FINISHED, "", 1, Usage(3, 4), error, "slack:U1", at=at)


START = make(RunStarted, "s", "go", at=2.0)
TURN = make(ModelStarted, 1)
RETRACTED = make(MessageRetracted, "truncated")


def ended(text: str) -> Event:
    return make(ModelEnded, text, (), "stop", Usage())


WORDS = st.text("ab \n世", min_size=1, max_size=4)
ATTEMPTS = st.lists(WORDS, max_size=4)
TURNS = st.lists(
    st.tuples(
        st.lists(ATTEMPTS, max_size=2),  # attempts that are retracted
        ATTEMPTS,  # the one that counts
        st.booleans(),  # does it come piece by piece, or whole at the end of the turn?
        st.lists(st.sampled_from(["reasoning", "retry", "tool", "step", "progress", "usage"]), max_size=3),
    ),
    max_size=4,
)
OTHERS: dict[str, list[Event]] = {
    "reasoning": [make(ModelReasoning, "hm")],
    "retry": [make(ModelRetrying, 1, 0.5, "overloaded")],
    "tool": [call(), make(ToolEnded, "c", "look", "1", False, 3)],
    "step": [make(StepTaken, 1, "model", "")],
    "progress": [make(ToolProgressed, "c", "look", "half")],
    "usage": [make(UsageReported, Usage(1, 1))],
}


def events_of(turns: list[tuple[list[list[str]], list[str], bool, list[str]]]) -> list[Event]:
    events: list[Event] = [state(TaskStatus.RUNNING), START]
    for retracted, final, streamed, others in turns:
        events.append(TURN)
        for attempt in retracted:
            events += [*map(delta, attempt), RETRACTED]
        if streamed:
            events += map(delta, final)
        events.append(ended("".join(final)))
        for name in others:
            events += OTHERS[name]
    return events


@settings(deadline=None)
@given(TURNS)
def test_the_text_is_what_the_model_wrote_with_a_blank_line_between_turns(turns: list[Any]) -> None:
    texts = ["".join(final) for _, final, _, _ in turns]
    assert folded(*events_of(turns)).text == "\n\n".join(text for text in texts if text)


@settings(deadline=None)
@given(TURNS)
def test_no_view_ever_changes(turns: list[Any]) -> None:
    view = CardView()
    kept = [(view, replace(view), view.text)]
    for event in [*events_of(turns), end(TaskStatus.COMPLETED)]:
        view = fold(view, event)
        kept.append((view, replace(view), view.text))
    for seen, copy, text in kept:
        assert seen == copy
        assert seen.text == text


@settings(deadline=None)
@given(st.data())
def test_pieces_are_values_although_they_share_one_list(data: st.DataObject) -> None:
    values = [(Pieces(), "")]
    texts: list[list[str]] = [[]]
    for _ in range(data.draw(st.integers(0, 30))):
        which = data.draw(st.integers(0, len(values) - 1))
        base, items = values[which][0], texts[which]
        if data.draw(st.booleans()):
            piece = data.draw(st.sampled_from(["a", "b"]))
            values.append((base.append(piece), "".join([*items, piece])))
            texts.append([*items, piece])
        else:
            size = data.draw(st.integers(0, 5))
            values.append((base.cut(size), "".join(items[:size])))
            texts.append(items[:size])
    for (pieces, text), items in zip(values, texts, strict=True):
        assert (str(pieces), len(pieces)) == (text, len(items))


def test_a_piece_of_text_is_one_append_whatever_the_length() -> None:
    class Counting(list[str]):
        """A list that says when more than its end is touched."""

        touched = 0

        def __getitem__(self, index: Any) -> Any:
            self.touched += 1
            return super().__getitem__(index)

        def __iter__(self) -> Any:
            self.touched += 1
            return super().__iter__()

    items = Counting()
    view = CardView(pieces=Pieces(items))
    for number in range(5_000):
        view = fold(view, delta("x"))
        assert len(items) == number + 1, "one item more, and always in the same list"
    assert items.touched == 0, "nothing was copied, joined or looked at on the way"
    assert len(view.text) == 5_000


def test_pieces_compare_by_their_text() -> None:
    assert Pieces().append("a").append("b") == Pieces().append("ab")
    assert hash(Pieces().append("ab")) == hash(Pieces().append("a").append("b"))
    assert Pieces() != ""


def test_a_retracted_turn_takes_its_blank_line_away_and_leaves_the_turn_before() -> None:
    before = folded(START, TURN, delta("first"), ended("first"), TURN)
    view = folded(delta("wro"), delta("ng"), view=before)
    assert view.text == "first\n\nwrong"
    assert (folded(RETRACTED, view=view).text, folded(RETRACTED, view=view).phase) == ("first", Phase.THINKING)
    assert folded(RETRACTED, delta("right"), view=view).text == "first\n\nright"
    assert view.text == "first\n\nwrong"


def test_a_card_lives_from_queued_to_done() -> None:
    view = CardView()
    phases = []
    for event in (
        state(TaskStatus.QUEUED, 2), state(TaskStatus.QUEUED, 1), state(TaskStatus.RUNNING), START, TURN, delta("a"),
        call(), state(TaskStatus.WAITING_APPROVAL), state(TaskStatus.RUNNING), state(TaskStatus.COMPLETED),
    ):  # fmt: skip
        view = fold(view, event)
        phases.append((view.phase, view.position))
    assert phases == [
        (Phase.QUEUED, 2), (Phase.QUEUED, 1), (Phase.THINKING, 0), (Phase.THINKING, 0), (Phase.THINKING, 0),
        (Phase.RUNNING, 0), (Phase.RUNNING, 0), (Phase.WAITING, 0), (Phase.RUNNING, 0), (Phase.DONE, 0),
    ]  # fmt: skip
    final = fold(view, end(TaskStatus.COMPLETED, at=9.0))
    assert (final.phase, final.seconds, final.input_tokens, final.output_tokens) == (Phase.DONE, 7.0, 3, 4)
    assert (final.task_id, final.stop_by) == ("t", "slack:U1")


def test_every_terminal_status_has_a_final_phase() -> None:
    for status in TaskStatus:
        view = fold(CardView(), state(status))
        assert view.phase.is_final is status.is_terminal


def test_tools_have_rows_and_what_ran_at_the_end_is_unknown() -> None:
    view = folded(
        call("a"), call("b"), call("c", {}), make(ToolEnded, "a", "look", "1", False, 1500),
        make(ToolEnded, "b", "look", "no", True, 2),
    )  # fmt: skip
    assert [row.status for row in view.tools] == ["done", "failed", "running"]
    done = fold(view, end(TaskStatus.CANCELED))
    assert [row.status for row in done.tools] == ["done", "failed", "unknown"]
    malformed = fold(CardView(), make(ToolStarted, ToolCall("a", "look", None, "{bad")))
    assert malformed.tools[0].arguments == "{bad"


def test_retrying_is_shown_until_text_or_the_end_comes() -> None:
    retrying = folded(START, TURN, make(ModelRetrying, 2, 0.5, "overloaded"))
    assert "attempt 2" in notice_line(retrying, EN)
    assert notice_line(fold(retrying, delta("a")), EN) == ""
    assert notice_line(fold(retrying, ended("a")), EN) == ""


def test_thinking_changes_the_view_once() -> None:
    view = folded(START, TURN, make(ModelReasoning, "a"))
    assert fold(view, make(ModelReasoning, "b")) is view


def test_every_error_and_phase_has_its_words_in_both_languages() -> None:
    for strings in (EN, ZH):
        for kind in ERROR_KINDS:
            failed = folded(START, TURN, end(TaskStatus.FAILED, RunError(kind, "internal detail")))
            partial = folded(START, TURN, delta("half"), end(TaskStatus.FAILED, RunError(kind, "internal detail")))
            assert notice_line(failed, strings) == strings.errors[kind]
            assert notice_line(partial, strings) == f"{strings.errors[kind]}{strings.sentence_gap}{strings.partial}"
            assert "internal detail" not in notice_line(failed, strings), "that is for the operator"
        for phase in Phase:
            assert strings.phase[phase] in state_line(CardView(phase), strings)
    assert state_line(CardView(Phase.QUEUED, position=3), EN).endswith("Queued (3)")
    assert state_line(CardView(Phase.QUEUED, position=3), ZH).endswith("排队中（3）")


def test_an_answer_of_white_space_is_no_answer_that_could_be_incomplete() -> None:
    for text in ("", " ", "\n\n", "\u3000\t"):
        view = folded(START, TURN, *([delta(text)] if text else []), end(TaskStatus.FAILED, RunError("truncated", "")))
        assert notice_line(view, EN) == EN.errors["truncated"]


def test_sentences_are_joined_as_the_language_does() -> None:
    view = folded(START, TURN, delta("half"), end(TaskStatus.FAILED, RunError("connection", "")))
    assert "broke. The answer" in notice_line(view, EN)
    assert "中断了。以上" in notice_line(view, ZH)


def interrupted(reason: str, *before: Event) -> CardView:
    return folded(*before, state(TaskStatus.INTERRUPTED, reason=reason), end(TaskStatus.INTERRUPTED))


def test_an_interruption_says_whether_the_work_had_begun() -> None:
    queued = state(TaskStatus.QUEUED, 2)
    for strings in (EN, ZH):
        for reason in ("", STOPPING):
            assert notice_line(interrupted(reason, queued), strings) == strings.interrupted_early
            assert notice_line(interrupted(reason, START, TURN), strings) == strings.interrupted
            assert notice_line(interrupted(reason, START, TURN, delta("a")), strings) == strings.interrupted
            assert notice_line(interrupted(reason, call()), strings) == strings.interrupted
        # Another process may have shown and done anything before it died.
        assert notice_line(interrupted("its replica died"), strings) == strings.interrupted
    for text in (EN.interrupted, EN.interrupted_early):
        assert "stopped" not in text
        assert "Retry" in text


def test_people_are_told_to_type_only_what_slack_lets_them_type() -> None:
    for strings in (EN, ZH):
        assert not re.search(r"(?<![\w/])/[a-z]", f"{strings.help} {' '.join(strings.errors.values())}")
        assert "!new" in strings.errors["context_length"]
        assert all(f"`!{command}`" in strings.help for command in ("new", "status", "help", "retry"))


@pytest.mark.parametrize(
    ("text", "default", "language"),
    [
        ("", "en", "en"),
        ("hello", "en", "en"),
        ("hello", "zh", "zh"),
        ("你好", "en", "zh"),
        ("请解释 this function", "en", "zh"),
        ("what does 谢谢 mean?", "en", "zh"),
        ("\U00020000", "en", "zh"),
        ("2*(3+4) ！？。", "en", "en"),
        ("日本語で説明してください", "en", "en"),
        ("漢字와 한글", "en", "en"),
        ("😀 naïve Ünïcode", "en", "en"),
    ],
)
def test_the_card_speaks_the_language_of_the_request(text: str, default: str, language: str) -> None:
    assert language_of(text, default) == language


def test_the_row_of_a_call_shows_any_arguments_in_short() -> None:
    def line(arguments: Any, **more: Any) -> str:
        return tool_line(ToolRow("c", "look", arguments, **more), EN)

    assert line({"expression": "2*(3+4)"}, status="done", duration_ms=140) == "✓ look(2*(3+4)) · 0.1 s"
    assert line({}) == "⋯ look()"
    assert line("{bad") == "⋯ look({bad)"
    assert line({"a": 1, "b": "世"}) == '⋯ look({"a":1,"b":"世"})'
    assert line({"a": "x\n  y"}) == "⋯ look(x y)"
    assert len(line({"a": "x" * 500})) < 100
    # Whole numbers of any length: a row that cannot be drawn would leave the whole card as it was.
    assert line({"min": 10**30, "max": 2}) == f'⋯ look({{"min":{10**30},"max":2}})'
    assert line({"a": 1}, status="unknown").endswith("outcome unknown")
    assert line({"a": 1}, status="failed").startswith("✗")


def test_the_footer_comes_with_the_end() -> None:
    view = folded(START, TURN, delta("a"), ended("a"))
    assert footer_line(view, "m", EN) == ""
    final = fold(view, end(TaskStatus.COMPLETED))
    assert footer_line(final, "m", EN) == "m · 7 tokens · 3.0 s"
    assert footer_line(final, "", EN) == "7 tokens · 3.0 s"
