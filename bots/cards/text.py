"""The lines of a card as plain text, the same on every platform. Pure."""

import json
import re
from collections.abc import Mapping
from typing import Final

from bots.cards.strings import Language, Strings
from bots.cards.strings.en import EN
from bots.cards.strings.zh import ZH
from bots.cards.view import CardView, Phase, ToolRow
from harness.runtime import EXPIRED, STOPPING

_STRINGS: Final[Mapping[Language, Strings]] = {"en": EN, "zh": ZH}
_ICONS: Final[Mapping[Phase, str]] = {
    Phase.THINKING: "💭",
    Phase.RUNNING: "✍️",
    Phase.WAITING: "✋",
    Phase.QUEUED: "⏳",
    Phase.DONE: "✅",
    Phase.CANCELED: "⏹️",
    Phase.FAILED: "⚠️",
    Phase.TIMED_OUT: "⌛",
    Phase.INTERRUPTED: "⚡",
}
# Unified ideographs with extension A, the compatibility block, and the planes of the later extensions.
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA_OR_HANGUL: Final = re.compile("[\u3041-\u3096\u30a1-\u30fa\u1100-\u11ff\uac00-\ud7af]")
_ARGUMENTS_SHOWN = 80
"""Characters of a call's arguments in its row; the row is a hint, not the record."""


def strings_for(language: str) -> Strings:
    """The texts of a language; English for one that is not known."""
    return _STRINGS["zh"] if language == "zh" else _STRINGS["en"]


def language_of(text: str, default: str) -> str:
    """The language to answer a request in: `zh` when it is written in Chinese, else `default`.

    A single Chinese word among others is enough: somebody who writes it reads it. Kana and Hangul tell other languages
    that use the same characters.
    """
    if _KANA_OR_HANGUL.search(text):
        return default
    return "zh" if _HAN.search(text) else default


def state_line(view: CardView, strings: Strings) -> str:
    """The first line: an icon and the state word, `Queued (n)` with the position."""
    word = strings.phase[view.phase]
    if view.phase is Phase.QUEUED and view.position:
        word = strings.queued.format(position=view.position)
    return f"{_ICONS[view.phase]} {word}"


def tool_line(row: ToolRow, strings: Strings) -> str:
    """One call: `✓ calculator(2*(3+4)) · 0.1 s`."""
    mark = {"running": "⋯", "done": "✓", "failed": "✗", "unknown": "?"}[row.status]
    line = f"{mark} {row.name}({_arguments(row)})"
    if row.status == "unknown":
        return f"{line} · {strings.outcome_unknown}"
    if row.duration_ms is not None:
        line += " · " + strings.tool_seconds.format(seconds=f"{row.duration_ms / 1000:.1f}")
    return line


def notice_line(view: CardView, strings: Strings) -> str:
    """What a person should know beside the state, or ""."""
    if view.retry_attempt:
        return strings.retrying.format(attempt=view.retry_attempt)
    if view.phase is Phase.INTERRUPTED:
        return strings.interrupted_early if _never_began(view) else strings.interrupted
    if view.phase is Phase.CANCELED and view.reason == EXPIRED:
        return strings.expired
    if view.error is not None:
        reason = strings.errors[view.error]
        return strings.sentence_gap.join((reason, strings.partial)) if view.text.strip() else reason
    return ""


def footer_line(view: CardView, model: str, strings: Strings) -> str:
    """Model, tokens and time of a finished run; "" before that."""
    if not view.phase.is_final or not view.ended_at:
        return ""
    parts = [model] if model else []
    if tokens := view.input_tokens + view.output_tokens:
        parts.append(strings.footer_tokens.format(count=f"{tokens:,}"))
    parts.append(strings.footer_seconds.format(seconds=f"{view.seconds:.1f}"))
    return " · ".join(parts)


def _never_began(view: CardView) -> bool:
    # A run that was taken over from another process has nothing to show either, but its reason is another one.
    nothing_shown = not view.text.strip() and not view.tools and not view.seconds
    return nothing_shown and view.reason in ("", STOPPING)


def _arguments(row: ToolRow) -> str:
    if isinstance(row.arguments, str):
        text = row.arguments
    elif len(row.arguments) == 1 and isinstance(only := next(iter(row.arguments.values())), str):
        text = only
    else:
        # Not orjson: whole numbers may be of any length, and a row that cannot be drawn would stop the card.
        text = json.dumps(dict(row.arguments), ensure_ascii=False, separators=(",", ":")) if row.arguments else ""
    text = " ".join(text.split())
    return text if len(text) <= _ARGUMENTS_SHOWN else text[: _ARGUMENTS_SHOWN - 1] + "…"
