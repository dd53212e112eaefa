"""What passes between the content of a stream and the reader's eye: `<think>` blocks and tool calls in disguise.

Both are small state machines with a carry, because a tag may be split at any character.
"""

import re
from enum import Enum, auto
from typing import Final

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


class _State(Enum):
    START = auto()
    THINKING = auto()
    AFTER = auto()
    TEXT = auto()


class ThinkTags:
    """Splits content that begins with a `<think>` block into (reasoning, text).

    Only at the start of the content: later in an answer the tag is text about tags. `thinking=True`: the opening tag
    is in the model's prompt template, so the content begins inside the block. A block that is never closed is
    reasoning to its end.
    """

    __slots__ = ("_carry", "_state")

    def __init__(self, *, thinking: bool = False) -> None:
        self._state = _State.THINKING if thinking else _State.START
        self._carry = ""

    @property
    def passes_all(self) -> bool:
        """From here on everything is text: the caller may skip `feed`."""
        return self._state is _State.TEXT

    def feed(self, text: str) -> tuple[str, str]:
        """(reasoning, text) of what can be told by now; either may be empty."""
        buffer = self._carry + text
        self._carry = ""
        reasoning = ""
        if self._state is _State.START:
            stripped = buffer.lstrip()
            if stripped.startswith(_OPEN):
                self._state = _State.THINKING
                buffer = stripped[len(_OPEN) :].lstrip("\r\n")
            elif _OPEN.startswith(stripped):
                self._carry = buffer
                return "", ""
            else:
                self._state = _State.TEXT
        if self._state is _State.THINKING:
            reasoning, closed, buffer = buffer.partition(_CLOSE)
            if not closed:
                kept = overlap(reasoning, _CLOSE)
                self._carry = reasoning[len(reasoning) - kept :]
                return reasoning[: len(reasoning) - kept], ""
            self._state = _State.AFTER
        if self._state is _State.AFTER:
            # The blank lines between the block and the answer belong to neither.
            buffer = buffer.lstrip()
            if buffer:
                self._state = _State.TEXT
        return reasoning, buffer

    def close(self) -> tuple[str, str]:
        """What was held back, now that nothing more comes."""
        carry, self._carry = self._carry, ""
        return (carry, "") if self._state is _State.THINKING else ("", carry)


SENTINELS: Final = (
    "<tool_call>",
    "<tool_calls>",
    "<function_calls>",
    "<function_call>",
    "<function=",
    "<invoke name=",
    "<minimax:tool_call>",
    "<｜DSML｜",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|python_tag|>",
    "<|tool_call|>",
    "[TOOL_CALLS]",
)
_CANDIDATE = re.compile(r"[<\[]")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)


class MarkupGuard:
    """Notices a tool call that a model wrote into its text, in the markup of its own training.

    `feed` returns the text that may be shown; from a sentinel on, which `found` holds, nothing is. Inside
    code (after a backtick, or in a fence) the same words are an explanation and pass.
    """

    __slots__ = ("_held", "_hidden", "_shown", "found")

    def __init__(self) -> None:
        self.found = ""
        self._hidden: list[str] = []
        self._held = ""
        self._shown: list[str] = []

    @property
    def hidden(self) -> str:
        """Everything from the sentinel on."""
        return "".join(self._hidden)

    def feed(self, text: str) -> str:
        """The text that may be shown by now."""
        if self.found:
            self._hidden.append(text)
            return ""
        if self._held or "<" in text or "[" in text:
            text = self._inspect(text)
        if text:
            self._shown.append(text)
        return text

    def close(self) -> str:
        """What was held back, now that nothing more comes."""
        held, self._held = self._held, ""
        return "" if self.found else held

    def _inspect(self, text: str) -> str:
        buffer = self._held + text
        self._held = ""
        for candidate in _CANDIDATE.finditer(buffer):
            start = candidate.start()
            rest = buffer[start : start + _LONGEST]
            sentinel = next((s for s in SENTINELS if rest.startswith(s)), "")
            unsure = not sentinel and len(rest) < _LONGEST and any(s.startswith(rest) for s in SENTINELS)
            if (sentinel or unsure) and not self._in_code(buffer[:start]):
                self.found = sentinel
                if sentinel:
                    self._hidden.append(buffer[start:])
                else:
                    self._held = buffer[start:]
                return buffer[:start]
        return buffer

    def _in_code(self, before: str) -> bool:
        # Looked up only at a sentinel, so an ordinary delta pays nothing for it.
        self._shown = ["".join(self._shown)]
        shown = self._shown[0] + before
        return shown.endswith("`") or len(_FENCE.findall(shown)) % 2 == 1


_LONGEST: Final = max(map(len, SENTINELS))


def overlap(text: str, tag: str) -> int:
    """How many characters at the end of the text may be the beginning of the tag."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:size])), 0)
