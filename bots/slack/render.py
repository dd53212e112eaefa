"""A card's view as Slack messages. Pure: the same view gives the same messages.

The first message carries the state and the tools, every one a share of the answer, the last one notice, footer and
the button. Blocks are built from our own state each time, never from what Slack sends back: that is escaped.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bots.cards.split import Part, split
from bots.cards.strings import Strings
from bots.cards.text import footer_line, notice_line, state_line, tool_line
from bots.cards.view import CardView, ToolRow
from bots.slack.limits import BUTTON_TEXT, BUTTON_VALUE, CONTEXT_TEXT, MARKDOWN_BUDGET, NOTIFICATION_TEXT
from bots.slack.sanitise import clip, harmless, size

Block = Mapping[str, object]

STOP_ACTION: Final = "stop"
RETRY_ACTION: Final = "retry"
_ROWS_SHOWN: Final = 10
"""Calls of tools with a line of their own; older ones are counted in one line."""
_ROW_SIZE: Final = 250
_MARKS: Final = (("done", "✓"), ("failed", "✗"), ("unknown", "?"), ("running", "⋯"))


@dataclass(frozen=True, slots=True)
class SlackMessage:
    """One message: its blocks, and the short text that notifications and old clients show instead of them."""

    blocks: Sequence[Block]
    text: str


def render(view: CardView, *, model: str, strings: Strings, value: str = "") -> list[SlackMessage]:
    """The messages that show this view, at least one. `value` is what its button carries, Stop or Retry."""
    parts = [part for part in split(view.text, MARKDOWN_BUDGET, size) if part.text.strip()]
    texts: list[Part | None] = [*parts] or [None]
    state = state_line(view, strings)
    last = len(texts) - 1
    messages: list[SlackMessage] = []
    for index, part in enumerate(texts):
        blocks: list[Block] = []
        if index == 0:
            blocks += [_context(clip(state, CONTEXT_TEXT)), *_tool_blocks(view.tools, strings)]
        else:
            blocks.append(_context(clip(f"↳ {strings.continued}", CONTEXT_TEXT)))
        if part is not None:
            blocks.append({"type": "markdown", "text": harmless(part.text)})
        if index == last:
            blocks += _closing_blocks(view, model=model, strings=strings, value=value or view.task_id)
        messages.append(SlackMessage(blocks, _notification(part, state)))
    return messages


def _closing_blocks(view: CardView, *, model: str, strings: Strings, value: str) -> list[Block]:
    lines = (notice_line(view, strings), footer_line(view, model, strings))
    blocks: list[Block] = [_context(clip(line, CONTEXT_TEXT)) for line in lines if line]
    if 0 < len(value) <= BUTTON_VALUE:
        if not view.phase.is_final:
            blocks.append(_button(STOP_ACTION, strings.stop, value))
        elif view.can_retry:
            blocks.append(_button(RETRY_ACTION, strings.retry, value))
    return blocks


def _button(action: str, label: str, value: str) -> Block:
    text = {"type": "plain_text", "text": label[:BUTTON_TEXT], "emoji": False}
    return {"type": "actions", "elements": [{"type": "button", "action_id": action, "text": text, "value": value}]}


def _tool_blocks(rows: Sequence[ToolRow], strings: Strings) -> list[Block]:
    """One block for all calls, whatever their number: a message has room for 50 blocks, a run for 100 calls."""
    if not rows:
        return []
    hidden, shown = (rows[: 1 - _ROWS_SHOWN], rows[1 - _ROWS_SHOWN :]) if len(rows) > _ROWS_SHOWN else ((), rows)
    lines = [_counted(hidden)] if hidden else []
    lines += [_row(row, strings) for row in shown]
    return [_context("\n".join(lines))]


def _counted(rows: Sequence[ToolRow]) -> str:
    counts = Counter(row.status for row in rows)
    return "… " + " · ".join(f"{mark} ×{counts[status]}" for status, mark in _MARKS if counts[status])


def _row(row: ToolRow, strings: Strings) -> str:
    """A call's line with the call itself as code: `*` and `_` in arguments are no formatting."""
    mark, _, rest = tool_line(row, strings).partition(" ")
    # The arguments may hold the separator too, so the result is what follows the last one, once there is a result.
    call, separator, result = ("", "", "") if row.status == "running" else rest.rpartition(" · ")
    if not separator:
        call = rest
    # A back quote would end the code; the modifier letter looks the same.
    code = clip(call.replace("`", "ˋ"), _ROW_SIZE)
    return f"{mark} `{code}`{separator}{clip(result, _ROW_SIZE)}"


def _context(text: str) -> Block:
    # verbatim: Slack makes no links out of what looks like an address or a channel.
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True}]}


def _notification(part: Part | None, state: str) -> str:
    words = " ".join(part.source[: 4 * NOTIFICATION_TEXT].split()) if part is not None else ""
    return clip(words or state, NOTIFICATION_TEXT)
