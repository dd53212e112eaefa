"""Whatever a log looks like, what a model is sent is valid: made for logs by crashes, other versions and old bugs."""

from collections.abc import Sequence
from copy import deepcopy

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.history import NO_RESULT, STOPPED_MARK, prepare_history
from harness.messages import (
    AssistantMessage,
    Message,
    Reasoning,
    SummaryMessage,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)

# Few ids, so that they repeat within a message, across messages, and as what a renaming would choose.
IDS = st.sampled_from(["a", "b", "a-2", "a-2-2", ""])
WORDS = st.sampled_from(["", "one", "two", "三"])
CALLS = st.builds(ToolCall, IDS, st.sampled_from(["look", "change"]), st.just({}))
PARTS = st.one_of(st.builds(Text, WORDS), st.builds(Reasoning, WORDS), CALLS)
ASSISTANTS = st.builds(
    AssistantMessage,
    st.lists(PARTS, max_size=4).map(tuple),
    st.sampled_from(["complete", "complete", "interrupted", "failed"]),
)
RESULTS = st.builds(ToolResult, IDS, st.just("look"), st.text("xyz", max_size=2), st.booleans())
USERS = st.builds(UserMessage, WORDS, st.sampled_from(["", "alice"]))
LOGS = st.lists(st.one_of(USERS, ASSISTANTS, RESULTS, st.builds(SummaryMessage, WORDS)), max_size=12)


def assert_valid(history: Sequence[Message]) -> None:
    """Each call has exactly one result right behind its message, in order; ids are unique; nothing is left over."""
    seen: set[str] = set()
    position = 0
    while position < len(history):
        message = history[position]
        position += 1
        assert not isinstance(message, ToolResult), "a result without its call"
        if not isinstance(message, AssistantMessage):
            continue
        assert message.state == "complete"
        assert message.parts
        for call in message.tool_calls:
            assert call.id not in seen, "an id occurs twice"
            seen.add(call.id)
            result = history[position] if position < len(history) else None
            assert isinstance(result, ToolResult), "a call without its result"
            assert result.call_id == call.id
            position += 1


@settings(deadline=None)
@given(LOGS)
def test_any_log_gives_a_valid_history(log: list[Message]) -> None:
    before = deepcopy(log)
    history = prepare_history(log)
    assert_valid(history)
    assert log == before, "the log stays raw"
    assert prepare_history(log) == history, "equal logs give equal histories"
    assert prepare_history(history) == history, "what is valid stays as it is"


@settings(deadline=None)
@given(LOGS)
def test_nothing_that_a_person_said_is_lost(log: list[Message]) -> None:
    def spoken(messages: Sequence[Message]) -> list[Message]:
        return [message for message in messages if isinstance(message, UserMessage | SummaryMessage)]

    assert spoken(prepare_history(log)) == spoken(log)


@settings(deadline=None)
@given(LOGS)
def test_answers_keep_their_order_and_their_words(log: list[Message]) -> None:
    expected = [
        m.text if m.state == "complete" else m.text + STOPPED_MARK
        for m in log
        if isinstance(m, AssistantMessage)
        and ((m.state == "complete" and m.parts) or (m.state == "interrupted" and m.text))
    ]
    assert [m.text for m in prepare_history(log) if isinstance(m, AssistantMessage)] == expected


def test_the_first_result_wins_and_a_missing_one_says_so() -> None:
    call, other = ToolCall("a", "look", {}), ToolCall("b", "look", {})
    log = [
        AssistantMessage((call, other)),
        ToolResult("a", "look", "first"),
        UserMessage("still there?"),
        ToolResult("a", "look", "second"),
    ]
    assert prepare_history(log) == [
        AssistantMessage((call, other)),
        ToolResult("a", "look", "first"),
        ToolResult("b", "look", NO_RESULT, is_error=True),
        UserMessage("still there?"),
    ]


def test_calls_of_one_message_that_share_an_id_get_a_result_each() -> None:
    twin = ToolCall("a", "look", {})
    log = [AssistantMessage((twin, twin)), ToolResult("a", "look", "one"), ToolResult("a", "look", "two")]
    history = prepare_history(log)
    assert_valid(history)
    assert [m.content for m in history if isinstance(m, ToolResult)] == ["one", "two"]


def test_an_id_that_comes_again_is_renamed_together_with_its_result() -> None:
    turn = [AssistantMessage((ToolCall("a", "look", {}),)), ToolResult("a", "look", "x")]
    ids = [m.call_id for m in prepare_history([*turn, *turn, *turn]) if isinstance(m, ToolResult)]
    assert ids == ["a", "a-2", "a-3"]


def test_a_result_that_came_after_the_next_answer_belongs_to_nobody() -> None:
    log = [
        AssistantMessage((ToolCall("a", "look", {}),)),
        AssistantMessage((Text("so"),)),
        ToolResult("a", "look", "x"),
    ]
    history = prepare_history(log)
    assert isinstance(history[1], ToolResult)
    assert history[1].content == NO_RESULT


def test_of_a_stopped_answer_the_text_stays_and_of_a_broken_one_nothing() -> None:
    parts = (Text("half"), ToolCall("a", "look", {}))
    history = prepare_history([AssistantMessage(parts, "interrupted"), AssistantMessage(parts, "failed")])
    assert history == [AssistantMessage((Text("half" + STOPPED_MARK),))]
