"""Every word that people read, in each language. One value per language, so a missing text is a type error."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bots.cards.approval import QuestionState
from bots.cards.view import Phase
from harness.errors import ErrorKind

Language = Literal["en", "zh"]


@dataclass(frozen=True, slots=True)
class Strings:
    """The texts of one language. Names in braces are filled in by `str.format`; `sentence_gap` joins two sentences.

    `question` says where a question for permission stands.
    """

    phase: Mapping[Phase, str]
    queued: str
    outcome_unknown: str
    tool_seconds: str
    footer_tokens: str
    footer_seconds: str
    retrying: str
    continued: str
    partial: str
    sentence_gap: str
    interrupted: str
    interrupted_early: str
    expired: str
    errors: Mapping[ErrorKind, str]
    stop: str
    retry: str
    help: str
    unsupported: str
    too_old: str
    too_long: str
    queue_full: str
    busy: str
    closed: str
    not_yours: str
    nothing_to_stop: str
    nothing_to_retry: str
    queue_cleared: str
    conversation_cleared: str
    status_idle: str
    status_running: str
    unavailable: str
    no_access: str
    allow_once: str
    allow_session: str
    allow_always: str
    deny: str
    question: Mapping[QuestionState, str]
    question_asked: str
    question_until: str
    question_codes: str
    question_no_arguments: str
    question_reason: str
    question_too_long: str
    approval_unknown: str
    approval_elsewhere: str
    approval_not_yours: str
    approval_decided: str
    approval_expired: str
    approval_void: str
