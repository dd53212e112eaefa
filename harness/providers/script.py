"""What the scripted model says: pure decisions, played in process and over HTTP by others.

The scripted model lets people try the product, and tests and benchmarks drive it, without a key. It answers by words
in the last user message and is deterministic: the same conversation always gets the same steps.
"""

import json
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from harness.errors import ErrorKind
from harness.providers import script_texts as texts

ANSWER_WORDS_PER_S: Final = 12.0
"""Slow enough that a person sees the card grow, quick enough that nobody waits."""

LONG_WORDS_PER_S: Final = 30.0
FIRST_TOKEN_S: Final = 0.4
SLOW_FIRST_TOKEN_S: Final = 8.0


@dataclass(frozen=True, slots=True)
class Say:
    """One piece of answer text, `delay_s` seconds after the step before."""

    text: str
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Think:
    """One piece of reasoning."""

    text: str
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call; `arguments` is its JSON text, which a test may leave broken."""

    name: str
    arguments: str = "{}"
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Fail:
    """The request fails: before the first piece as an HTTP error, later as an error inside the stream."""

    kind: ErrorKind = "overloaded"
    status: int = 500
    message: str = "The scripted model was asked to fail."
    retry_after: float | None = None
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection ends here, without a finish reason."""

    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Hang:
    """Silence for ever."""

    delay_s: float = 0.0


Step = Say | Think | Call | Fail | Cut | Hang
Script = Sequence[Step]


@dataclass(frozen=True, slots=True)
class Heard:
    """The conversation as far as the scripted model minds it.

    `user_texts`: all user messages, oldest first. `results`: (tool name, content) of the calls made since the last of
    them. `tools`: the names on offer.
    """

    user_texts: Sequence[str]
    results: Sequence[tuple[str, str]] = ()
    tools: AbstractSet[str] = frozenset()


# A command stands alone: "belong" is not `long`. ASCII only, so that a command may touch Chinese text.
_COMMAND = re.compile(
    r"(?<![\w-])(?:(?P<fail>fail\s+(?P<status>[45]\d\d))|(?P<calc>calc(?:ulate)?\s+(?P<expression>[^\n]+))"
    r"|(?P<write>write\s+(?P<file>[\w./-]+\.\w+|[\w./-]+(?=\s*$)))|(?P<word>long|table|code|cut|hang))(?![\w-])",
    re.ASCII | re.IGNORECASE,
)
_SLOW = re.compile(r"(?<![\w-])slow(?![\w-])", re.ASCII | re.IGNORECASE)
_ABOUT_THE_PAST = re.compile(
    r"what did i (?:say|ask|write)|(?<![\w-])remember(?![\w-])|first (?:message|question|thing)"
    r"|前面|刚才|之前|记得|第一句",
    re.IGNORECASE,
)
_CJK_CLASS = r"\u2e80-\u9fff\uff00-\uffef\u201c\u201d"
_CJK = re.compile(r"[\u3400-\u9fff]")
_PIECE = re.compile(rf"\s*(?:[{_CJK_CLASS}]{{1,2}}|[^\s{_CJK_CLASS}]+)|\s+\Z")
_SPEAKER = re.compile(r"^[^\s:：][^:：\n]{0,40}: (?=\S)")
_QUOTE_CHARS: Final = 120


def pieces(text: str) -> list[str]:
    """Cut into words (Chinese: pairs of characters), losing nothing: joined they are the text again."""
    return _PIECE.findall(text)


def speech(text: str, *, words_per_s: float = ANSWER_WORDS_PER_S, first_s: float = FIRST_TOKEN_S) -> list[Step]:
    """Say the text piece by piece at a steady pace; the first piece comes after `first_s` seconds."""
    return [Say(piece, 1 / words_per_s if number else first_s) for number, piece in enumerate(pieces(text))]


def decide(heard: Heard) -> list[Step]:
    """The one answer to this conversation."""
    if not heard.user_texts:
        return speech(texts.NOTHING_SAID)
    asked = heard.user_texts[-1]
    chinese = _CJK.search(asked) is not None
    if heard.results:
        return speech(_after_tool(asked, *heard.results[-1], chinese=chinese))
    steps = _commanded(heard, asked, chinese=chinese)
    if _SLOW.search(asked) and isinstance(steps[0], Say):
        steps[0] = Say(steps[0].text, SLOW_FIRST_TOKEN_S)
    return steps


def _commanded(heard: Heard, asked: str, *, chinese: bool) -> list[Step]:
    command = _COMMAND.search(asked)
    if command is None:
        return speech(_friendly(heard, chinese=chinese))
    if command["fail"]:
        return [_failure(int(command["status"]))]
    if command["calc"]:
        expression = command["expression"].strip().rstrip("?=？。. ")
        return _call(heard, "calculator", {"expression": expression}, chinese=chinese)
    if command["write"]:
        content = texts.FILE_CONTENT.format(name=command["file"])
        return _call(heard, "write_file", {"path": command["file"], "content": content}, chinese=chinese)
    word = command["word"].lower()
    if word == "long":
        return speech(texts.LONG, words_per_s=LONG_WORDS_PER_S)
    if word == "cut":
        return [*speech(texts.BEFORE_CUT), Cut(1 / ANSWER_WORDS_PER_S)]
    if word == "hang":
        return [*speech(texts.BEFORE_HANG), Hang(1 / ANSWER_WORDS_PER_S)]
    return speech({"table": texts.TABLE, "code": texts.CODE}[word])


def _call(heard: Heard, name: str, arguments: dict[str, str], *, chinese: bool) -> list[Step]:
    if name not in heard.tools:
        return speech((texts.NO_TOOL_ZH if chinese else texts.NO_TOOL).format(name=name))
    return [Call(name, json.dumps(arguments, ensure_ascii=False), FIRST_TOKEN_S)]


def _failure(status: int) -> Fail:
    if status == 429:
        # The wait is short on purpose: whoever tries it sees the retries, then the failure, within seconds.
        return Fail("rate_limit", 429, "Rate limit reached (asked for by `fail 429`).", retry_after=1.0)
    if status in {401, 403}:
        return Fail("auth", status, f"Access refused (asked for by `fail {status}`).")
    if status >= 500:
        return Fail("overloaded", status, f"The server had an error (asked for by `fail {status}`).")
    return Fail("bad_request", status, f"Bad request (asked for by `fail {status}`).")


def _after_tool(asked: str, name: str, content: str, *, chinese: bool) -> str:
    result = content.strip()
    command = _COMMAND.search(asked)
    if name == "calculator" and command is not None and command["calc"] and _is_number(result):
        expression = command["expression"].strip().rstrip("?=？。. ")
        return (texts.CALCULATED_ZH if chinese else texts.CALCULATED).format(expression=expression, result=result)
    return (texts.TOOL_SAID_ZH if chinese else texts.TOOL_SAID).format(name=name, result=result)


def _is_number(text: str) -> bool:
    try:
        complex(text.replace(",", ""))
    except ValueError:
        return False
    return True


def _friendly(heard: Heard, *, chinese: bool) -> str:
    asked, first = heard.user_texts[-1], _quoted(heard.user_texts[0])
    turn = len(heard.user_texts)
    if _ABOUT_THE_PAST.search(asked):
        if turn == 1:
            return texts.REMEMBER_NOTHING_ZH if chinese else texts.REMEMBER_NOTHING
        return (texts.REMEMBER_ZH if chinese else texts.REMEMBER).format(first=first, count=turn - 1)
    greeting = (texts.HELLO_ZH if chinese else texts.HELLO).format(asked=_quoted(asked))
    if turn == 1:
        return greeting + (texts.TRY_ZH if chinese else texts.TRY)
    again = (texts.AGAIN_ZH if chinese else texts.AGAIN).format(turn=turn, nth=_ordinal(turn), first=first)
    return greeting + again + (texts.TRY_SHORT_ZH if chinese else texts.TRY_SHORT)


def _quoted(text: str) -> str:
    # In a chat with several people each message names its speaker first; people do not quote that.
    line = _SPEAKER.sub("", " ".join(text.split()))
    return line if len(line) <= _QUOTE_CHARS else line[:_QUOTE_CHARS].rstrip() + "…"


def _ordinal(number: int) -> str:
    if 10 <= number % 100 <= 20:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
