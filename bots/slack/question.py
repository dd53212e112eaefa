"""A question for permission as one Slack message. Pure: the same view gives the same message.

What the model wrote stands in `rich_text` blocks: their text is shown as it is, so nothing in it is a mention, a link
or formatting. Everything else is ours, but for the reason that a person gave, which is escaped.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from bots.cards.approval import Argument, QuestionState, QuestionView
from bots.cards.strings import Strings
from bots.errors import QuestionTooLong
from bots.slack.limits import BUTTON_TEXT, CONTEXT_TEXT, NOTIFICATION_TEXT, QUESTION_ARGUMENTS, RICH_TEXT_PIECE
from bots.slack.render import Block, SlackMessage
from bots.slack.sanitise import clip, size

_TOOL_SIZE: Final = 150
_USER: Final = re.compile(r"slack:([UW][A-Z0-9]{2,30})")
_LAST_TIME: Final = 253_402_300_799
"""The last second of the year 9999: beyond it a time has no date."""
_ICONS: Final = {
    QuestionState.PENDING: "✋",
    QuestionState.ONCE: "✅",
    QuestionState.SESSION: "✅",
    QuestionState.ALWAYS: "✅",
    QuestionState.DENIED: "⛔",
    QuestionState.EXPIRED: "⌛",
    QuestionState.VOID: "⏹️",
}


def render_question(question: QuestionView, strings: Strings) -> SlackMessage:
    """The message that shows this question; `QuestionTooLong` when that cannot be done whole."""
    state = strings.question[question.state]
    # A back quote would end the code; the modifier letter looks the same.
    tool = clip(question.tool.replace("`", "ˋ"), _TOOL_SIZE)
    title = f"{_ICONS[question.state]} *{state.format(person=_person(question.decided_by))}*: `{tool}`"
    blocks = [
        _section(title),
        *_argument_blocks(question.arguments, strings),
        *(_context(line) for line in _small_print(question, strings)),
        *([_buttons(question, strings)] if question.is_open else []),
    ]
    plain = state.format(person=_plain(question.decided_by))
    return SlackMessage(blocks, clip(f"{plain}: {question.tool}", NOTIFICATION_TEXT))


def _argument_blocks(arguments: tuple[Argument, ...], strings: Strings) -> list[Block]:
    if sum(size(argument.name) + size(argument.value) for argument in arguments) > QUESTION_ARGUMENTS:
        raise QuestionTooLong("the arguments do not fit into one message", code="too_long")
    if not arguments:
        return [_context(strings.question_no_arguments)]
    blocks: list[Block] = []
    for argument in arguments:
        if argument.name:
            # In pieces as well: the model chooses the names, too.
            blocks += [_rich("rich_text_section", piece, bold=True) for piece in _pieces(argument.name)]
        blocks += [_rich("rich_text_preformatted", piece) for piece in _pieces(argument.value)]
    return blocks


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces that fit, cut behind a line's end where there is one."""
    while size(text) > RICH_TEXT_PIECE:
        end = _fitting(text)
        line_end = text.rfind("\n", end // 2, end) + 1
        end = line_end or end
        yield text[:end]
        text = text[end:]
    if text:
        yield text


def _fitting(text: str) -> int:
    """How many characters at the beginning fit into one piece; at least one."""
    room = RICH_TEXT_PIECE
    for index, char in enumerate(text):
        room -= size(char)
        if room < 0:
            return max(index, 1)
    return len(text)


def _small_print(question: QuestionView, strings: Strings) -> Iterator[str]:
    facts = [strings.question_asked.format(person=_person(question.requester))] if question.requester else []
    if question.is_open:
        facts.append(strings.question_until.format(time=_time(question.expires_at)))
    if facts:
        yield strings.sentence_gap.join(facts)
    if question.is_open:
        yield strings.question_codes.format(code=question.code)
    elif question.reason:
        yield strings.question_reason.format(reason=clip(question.reason, CONTEXT_TEXT // 2))


def _buttons(question: QuestionView, strings: Strings) -> Block:
    labels = {
        "allow_once": strings.allow_once,
        "allow_session": strings.allow_session,
        "allow_always": strings.allow_always,
        "deny": strings.deny,
    }
    styles = {"allow_once": "primary", "deny": "danger"}
    return {
        "type": "actions",
        "elements": [
            {
                "type": "button",
                "action_id": action,
                "text": {"type": "plain_text", "text": label[:BUTTON_TEXT], "emoji": False},
                "value": question.id,
                **({"style": styles[action]} if action in styles else {}),
            }
            for action, label in labels.items()
        ],
    }


def _person(user: str) -> str:
    """A mention of a Slack user; the id as text for anybody else."""
    found = _USER.fullmatch(user)
    return f"<@{found[1]}>" if found else _plain(user)


def _plain(user: str) -> str:
    return clip(user, _TOOL_SIZE)


def _time(seconds: float) -> str:
    """A time in each reader's own time zone, in UTC where Slack cannot say it."""
    at = int(min(max(seconds, 0), _LAST_TIME))
    fallback = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"<!date^{at}^{{date_short_pretty}} {{time}}|{fallback}>"


def _section(text: str) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _context(text: str) -> Block:
    # verbatim: Slack makes no links out of what looks like an address or a channel.
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True}]}


def _rich(kind: str, text: str, *, bold: bool = False) -> Block:
    element: dict[str, object] = {"type": "text", "text": text}
    if bold:
        element["style"] = {"bold": True}
    return {"type": "rich_text", "elements": [{"type": kind, "elements": [element]}]}
