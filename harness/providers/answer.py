"""What the model says and thinks, on its way from the wire to the reader and into the message.

The same for every wire protocol: halves of characters are joined, a `<think>` block becomes thinking, a tool call that
was written into the text is noticed, and all of it is kept for the message.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from harness.errors import ProviderError
from harness.messages import AssistantMessage, JsonObject, Part, Text, ToolCall, Usage, estimated_tokens
from harness.providers.base import ReasoningDelta, StreamItem, TextDelta
from harness.providers.profiles import ProviderProfile
from harness.providers.surrogates import SurrogateJoiner
from harness.providers.text_filters import MarkupGuard, ThinkTags
from harness.providers.transcript import Transcript

THINK_TAG_FIELD: Final = "<think>"
"""`Reasoning.field` of thinking that came as a tagged block inside the content."""


class AnswerText:
    """The text of one response in the making. Each method adds what can be shown by now to `items`.

    `text_calls` makes calls of markup in the text, where the profile wants that.
    `plain`: nothing but the guard has to look at text any more, so `plain_text` may be used for it.
    """

    __slots__ = ("_guard", "_surrogates", "_text_calls", "_think", "_transcript", "plain")

    def __init__(
        self, profile: ProviderProfile, *, text_calls: Callable[[str], Sequence[ToolCall]] | None = None
    ) -> None:
        self._text_calls = text_calls
        self._think = None if profile.think_tags == "off" else ThinkTags(thinking=profile.think_tags == "open")
        self._guard = MarkupGuard() if profile.text_tool_markup != "pass" else None
        self._surrogates: SurrogateJoiner | None = None
        self._transcript = Transcript()
        self.plain = self._think is None

    def expect_surrogates(self) -> None:
        """From here on strings may hold halves of surrogate pairs: put them together before they are shown."""
        if self._surrogates is None:
            self._surrogates = SurrogateJoiner()
            self.plain = False

    def plain_text(self, text: str) -> list[StreamItem]:
        """More answer text, the short way: for nearly all pieces of nearly all answers."""
        if self._guard is not None:
            text = self._guard.feed(text)
            if not text:
                return []
        self._transcript.add_text(text)
        return [TextDelta(text)]

    def text(self, text: str, items: list[StreamItem]) -> None:
        """More answer text."""
        if self._surrogates is not None:
            text = self._surrogates.feed(text)
        if text:
            self._whole_text(text, items)

    def refusal(self, text: str, items: list[StreamItem]) -> None:
        """More of what the model says when it declines."""
        self._append(text, items, refusal=True)

    def reasoning(self, text: str, source: str, items: list[StreamItem]) -> None:
        """More thinking; `source` is the wire field it came in."""
        if not text:
            return
        if self._surrogates is not None:
            text = self._surrogates.clean(text)
        self._transcript.add_reasoning(text, source)
        items.append(ReasoningDelta(text))

    def details(self, details: Iterable[JsonObject], source: str) -> None:
        """Opaque thinking that the server wants back as it is; `source` is the wire field it came in."""
        self._transcript.add_details(details, source)

    def flush(self) -> list[StreamItem]:
        """What was held back because it might have been the beginning of a tag. To be called once, at the end."""
        items: list[StreamItem] = []
        if self._surrogates is not None:
            self._whole_text(self._surrogates.close(), items)
        if self._think is not None:
            reasoning, text = self._think.close()
            self.reasoning(reasoning, THINK_TAG_FIELD, items)
            self._shown(text, items)
        if self._guard is not None:
            self._append(self._guard.close(), items)
        return items

    def message(
        self, calls: Sequence[ToolCall], reason: str, usage: Usage | None, *, input_estimate: int
    ) -> AssistantMessage:
        """The whole message. Raises `ProviderError`: `tool_markup`, or `empty` when there is nothing in it.

        `usage` None: the server named no figures, so they are estimated, the request as `input_estimate` tokens.
        """
        if self._guard is not None and self._guard.found:
            # Beside real calls it is no more than markup that went astray.
            calls = self._text_calls(self._guard.hidden) if self._text_calls is not None and not calls else ()
            if not calls:
                raise ProviderError(
                    "tool_markup",
                    f"The model wrote a tool call into its text ({self._guard.found}) instead of making it. The model "
                    "server lacks a tool parser for this model.",
                )
        parts = self._transcript.parts(calls)
        if not calls and not any(isinstance(part, Text) and part.text.strip() for part in parts):
            used_up = reason == "length" and bool(parts)
            why = "used up its tokens on thinking" if used_up else "ended its turn without text or a tool call"
            raise ProviderError("empty", f"The model {why}.")
        return AssistantMessage(parts, "complete", reason, usage or _estimated(parts, input_estimate))

    def _whole_text(self, text: str, items: list[StreamItem]) -> None:
        if self._think is not None and not self._think.passes_all:
            reasoning, text = self._think.feed(text)
            self.reasoning(reasoning, THINK_TAG_FIELD, items)
            self.plain = self._think.passes_all and self._surrogates is None
        self._shown(text, items)

    def _shown(self, text: str, items: list[StreamItem]) -> None:
        if self._guard is not None and text:
            text = self._guard.feed(text)
        self._append(text, items)

    def _append(self, text: str, items: list[StreamItem], *, refusal: bool = False) -> None:
        if text:
            self._transcript.add_text(text, refusal=refusal)
            items.append(TextDelta(text))


def _estimated(parts: Sequence[Part], input_estimate: int) -> Usage:
    chars = sum(len(part.raw_arguments if isinstance(part, ToolCall) else part.text) for part in parts)
    return Usage(input_estimate, estimated_tokens(chars), estimated=True)
