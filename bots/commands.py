"""The words that are not for the model. Pure.

A stop word counts only as the whole message: "stop the music" is a request like any other. The answer to a question for
permission is the one command with something behind it.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

Command = Literal["stop", "new", "status", "help", "retry"]

STOP_WORDS: Final = frozenset({"stop", "/stop", "!stop", "停止", "取消"})
_ANSWER: Final = re.compile(r"[/!](approve|deny)(?:\s+`?([^\s`]+)`?)?(?:\s+(.*))?", re.IGNORECASE | re.DOTALL)
_REASON_CHARS: Final = 300
_NAMED: Final[dict[str, Command]] = {"new": "new", "status": "status", "help": "help", "retry": "retry"}


def parse_command(text: str) -> Command | None:
    """The command that a message is, with the bot's mention removed; None when it is for the model."""
    word = text.strip().rstrip("。.!！").lower() or text.strip().lower()
    if word in STOP_WORDS:
        return "stop"
    if word[:1] in ("/", "!"):
        return _NAMED.get(word[1:])
    return None


@dataclass(frozen=True, slots=True)
class TypedAnswer:
    """`/approve CODE` or `/deny CODE reason`. `code` is "" when it was left out; `reason` is one line."""

    decision: Literal["once", "deny"]
    code: str
    reason: str = ""


def parse_answer(text: str) -> TypedAnswer | None:
    """The answer to a question for permission that a message is; None when it is something else."""
    found = _ANSWER.fullmatch(text.strip())
    if found is None:
        return None
    code = (found[2] or "").upper()
    if found[1].lower() == "approve":
        return TypedAnswer("once", code)
    return TypedAnswer("deny", code, " ".join((found[3] or "").split())[:_REASON_CHARS])
