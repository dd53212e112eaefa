"""Every word that people read, in each language. One value per language, so a missing text is a type error."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bots.cards.view import Phase
from harness.errors import ErrorKind

Language = Literal["en", "zh"]


@dataclass(frozen=True, slots=True)
class Strings:
    """The texts of one language. Names in braces are filled in by `str.format`; `sentence_gap` joins two sentences."""

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
    queue_cleared: str
    conversation_cleared: str
    status_idle: str
    status_running: str
    unavailable: str
    no_access: str
