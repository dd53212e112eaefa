"""The words that are not for the model, and the many sentences that are."""

import pytest

from bots.commands import STOP_WORDS, Command, parse_command

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
