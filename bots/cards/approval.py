"""The question for permission as data: what people are shown of a call that waits for them. Pure.

Whatever the model wrote is shown whole and literally. What hides or reorders other characters (controls, bidi, zero
width) stands there as its escape, so that the text which people allow is the text which runs.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from harness.approval import Approval
from harness.messages import JsonObject

_FIELDS_SHOWN: Final = 10
"""Arguments with a heading of their own; more than that are shown as one JSON object."""
_KEPT: Final = frozenset("\n\t\N{IDEOGRAPHIC SPACE}")
_REASON_MARK: Final = ": "


class QuestionState(StrEnum):
    """Where a question stands; each value but the first is how it ended."""

    PENDING = "pending"
    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    DENIED = "denied"
    EXPIRED = "expired"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the call. `name` is one line, "" where `value` is the object of all arguments."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class QuestionView:
    """Everything that the message of a question shows.

    `requester` and `decided_by` are ids such as `slack:U123`; `expires_at` is in Unix seconds; `reason` is what the
    person who denied has given as one.
    """

    id: str
    code: str
    tool: str
    arguments: tuple[Argument, ...]
    requester: str
    expires_at: float
    state: QuestionState = QuestionState.PENDING
    decided_by: str = ""
    reason: str = ""

    @property
    def is_open(self) -> bool:
        """True while somebody may answer."""
        return self.state is QuestionState.PENDING


def question_view(approval: Approval) -> QuestionView:
    """What is shown of an approval as it stands."""
    decided_by, reason = split_decider(approval.decided_by)
    return QuestionView(
        approval.id,
        approval.code,
        _visible(approval.tool, kept=frozenset()),
        tuple(_arguments(approval.arguments)),
        approval.requester,
        approval.expires_at,
        _state(approval),
        decided_by,
        reason,
    )


def decider(user: str, reason: str) -> str:
    """Who decided, as the row keeps it and the model is told: `slack:U123`, or `slack:U123: reason`."""
    return f"{user}{_REASON_MARK}{reason}" if reason else user


def split_decider(decided_by: str) -> tuple[str, str]:
    """The inverse of `decider`: the user's id, which holds no blank, and the reason."""
    user, _, reason = decided_by.partition(_REASON_MARK)
    return (user, reason) if " " not in user else (decided_by, "")


def _state(approval: Approval) -> QuestionState:
    match approval.status:
        case "pending":
            return QuestionState.PENDING
        case "allowed":
            return QuestionState(approval.decision or "once")
        case "denied":
            return QuestionState.DENIED
        case "expired":
            return QuestionState.EXPIRED
        case "void":
            return QuestionState.VOID
        case _:
            assert_never(approval.status)


def _arguments(arguments: JsonObject) -> Iterator[Argument]:
    if len(arguments) > _FIELDS_SHOWN:
        whole = json.dumps(dict(arguments), ensure_ascii=False, indent=2)
        yield Argument("", _visible(whole))
        return
    for name, value in arguments.items():
        # Text as it is: escaped line breaks and quotes would make a file or a command hard to read.
        is_text = isinstance(value, str) and value.strip()
        text = value if isinstance(value, str) and is_text else json.dumps(value, ensure_ascii=False)
        yield Argument(_visible(name, kept=frozenset()) or '""', _visible(text))


def _visible(text: str, *, kept: frozenset[str] = _KEPT) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in kept else ascii(char)[1:-1] for char in text)
