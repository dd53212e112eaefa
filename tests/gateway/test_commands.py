"""The words that are not for the model, and the many sentences that are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.commands import STOP_WORDS, Command, TypedAnswer, parse_answer, parse_command

COMMANDS: dict[str, Command] = {
    **dict.fromkeys(sorted(STOP_WORDS), "stop"),
    "Stop": "stop",
    "STOP!": "stop",
    "  stop.\n": "stop",
    "/Stop": "stop",
    "停止。": "stop",
    "取消！": "stop",
    "stop!!!": "stop",
    "/new": "new",
    "!new": "new",
    "/NEW": "new",
    "/status": "status",
    "!status": "status",
    "/help": "help",
    "!help": "help",
}
FOR_THE_MODEL = [
    "",
    " ",
    "!",
    "/",
    "。",
    "!!!",
    "new",
    "status",
    "help",
    "stop it",
    "stop the music",
    "please stop",
    "don't stop",
    "stops",
    "stop?",
    "停止播放",
    "请停止",
    "取消订单",
    "/stop now",
    "/new idea",
    "//new",
    "/!new",
    "! new",
    "/unknown",
    "-stop",
    "st op",
]


@pytest.mark.parametrize("text", COMMANDS)
def test_commands(text: str) -> None:
    assert parse_command(text) == COMMANDS[text]


@pytest.mark.parametrize("text", FOR_THE_MODEL)
def test_everything_else_is_for_the_model(text: str) -> None:
    assert parse_command(text) is None


def test_the_public_stop_words() -> None:
    assert set(STOP_WORDS) == {"stop", "/stop", "!stop", "停止", "取消"}


ANSWERS: dict[str, TypedAnswer] = {
    "/approve ABC123": TypedAnswer("once", "ABC123"),
    "!approve abc123": TypedAnswer("once", "ABC123"),
    "  /Approve\t`ABC123`  ": TypedAnswer("once", "ABC123"),
    "/approve ABC123 thanks": TypedAnswer("once", "ABC123"),
    "/approve": TypedAnswer("once", ""),
    "/deny ABC123": TypedAnswer("deny", "ABC123"),
    "!deny abc123 not  that\nfile": TypedAnswer("deny", "ABC123", "not that file"),
    "!deny": TypedAnswer("deny", ""),
}
NO_ANSWERS = [
    "",
    "approve ABC123",
    "please /approve ABC123",
    "/approved ABC123",
    "//approve ABC123",
    "/ approve ABC123",
    "/denyABC123",
    "stop",
]


@pytest.mark.parametrize("text", ANSWERS)
def test_answers(text: str) -> None:
    assert parse_answer(text) == ANSWERS[text]
    assert parse_command(text) is None


@pytest.mark.parametrize("text", NO_ANSWERS)
def test_what_is_no_answer(text: str) -> None:
    assert parse_answer(text) is None


@given(st.sampled_from(["/", "!"]), st.text())
def test_any_reason_is_one_line_of_bounded_length(mark: str, reason: str) -> None:
    answer = parse_answer(f"{mark}deny ABC123 {reason}")
    assert answer is not None
    assert answer.code == "ABC123"
    assert len(answer.reason) <= 300
    assert answer.reason == " ".join(reason.split())[:300]
