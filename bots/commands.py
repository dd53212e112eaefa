"""The words that are not for the model. Pure.

A stop word counts only as the whole message: "stop the music" is a request like any other.
"""

from typing import Final, Literal

Command = Literal["stop", "new", "status", "help"]

STOP_WORDS: Final = frozenset({"stop", "/stop", "!stop", "停止", "取消"})
_NAMED: Final[dict[str, Command]] = {"new": "new", "status": "status", "help": "help"}


def parse_command(text: str) -> Command | None:
    """The command that a message is, with the bot's mention removed; None when it is for the model."""
    word = text.strip().rstrip("。.!！").lower() or text.strip().lower()
    if word in STOP_WORDS:
        return "stop"
    if word[:1] in ("/", "!"):
        return _NAMED.get(word[1:])
    return None
