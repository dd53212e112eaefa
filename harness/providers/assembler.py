"""Folds the chunks of one chat-completions response into stream items and one final message. Pure.

The rules are about what a chunk says, not about who sent it; what truly differs per server is in the profile.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.errors import ProviderError
from harness.messages import AssistantMessage, JsonObject, Part, Text, ToolCall, Usage
from harness.providers.base import ReasoningDelta, StreamItem, TextDelta, UsageReport
from harness.providers.failures import bad_reason, error_in_chunk
from harness.providers.profiles import ProviderProfile
from harness.providers.surrogates import SurrogateJoiner
from harness.providers.text_filters import MarkupGuard, ThinkTags
from harness.providers.tool_calls import ToolCallCollector
from harness.providers.transcript import Transcript
from harness.providers.wire import as_count, as_list, as_object, as_text

THINK_TAG_FIELD = "<think>"
"""`Reasoning.field` of thinking that came as a tagged block inside the content."""

_CHARS_PER_TOKEN = 4


class ChatAssembler:
    """One response in the making.

    Feed it each parsed chunk, show what `feed` returns, and stop when `error` is set; at the end of the stream call
    `finish`. `new_id` makes our own tool call ids. `input_estimate`: tokens of the request, used only when the server
    names no figures.
    """

    def __init__(self, profile: ProviderProfile, new_id: Callable[[], str], *, input_estimate: int = 0) -> None:
        self.error: ProviderError | None = None
        self._profile = profile
        self._input_estimate = input_estimate
        self._think = None if profile.think_tags == "off" else ThinkTags(thinking=profile.think_tags == "open")
        self._guard = MarkupGuard() if profile.text_tool_markup == "fail" else None
        self._calls = ToolCallCollector(new_id)
        self._surrogates: SurrogateJoiner | None = None
        # Nothing has to look at content any more, but the guard: the short way of `feed` may be taken.
        self._plain = self._think is None and not profile.cumulative
        self._transcript = Transcript()
        self._seen_content = ""
        self._seen_reasoning = ""
        self._usage: Usage | None = None
        self._finish_reason = ""
        self._chunks = 0

    def feed(self, chunk: JsonObject) -> list[StreamItem]:
        """What this chunk adds for the reader. A failure that it reports is kept in `error`."""
        if self._plain and (text := _only_content(chunk)):
            return self._plain_text(text)
        items: list[StreamItem] = []
        choices = chunk.get("choices")
        if choices:
            for choice in as_list(choices):
                self._choice(choice, items)
        if self.error is None and ("error" in chunk or "base_resp" in chunk or not choices):
            self.error = error_in_chunk(chunk)
        usage = chunk.get("usage") or (as_object(chunk.get("x_groq")) or {}).get("usage")
        if usage:
            self._take_usage(usage, items)
        return items

    def expect_surrogates(self) -> None:
        """From here on strings may hold halves of surrogate pairs: put them together before they are shown."""
        if self._surrogates is None:
            self._surrogates = SurrogateJoiner()
            self._plain = False

    def flush(self) -> list[StreamItem]:
        """What was held back because it might have been the beginning of a tag. To be called once, before `finish`."""
        items: list[StreamItem] = []
        if self._surrogates is not None:
            self._emit_text(self._surrogates.close(), items)
        if self._think is not None:
            reasoning, text = self._think.close()
            self._emit_reasoning(reasoning, THINK_TAG_FIELD, items)
            self._emit_shown(text, items)
        if self._guard is not None:
            self._append(self._guard.close(), items)
        return items

    def finish(self, *, done: bool) -> AssistantMessage:
        """The message, once the stream has ended. `done`: the end mark was seen.

        Raises `ProviderError`: what the server reported, `empty`, `truncated`, a bad finish reason, `tool_markup`.
        """
        if self.error is not None:
            raise self.error
        if not self._chunks and not done:
            raise ProviderError("empty", "The model server answered with nothing that is an answer.")
        reason = self._profile.finish_reason_map.get(self._finish_reason, self._finish_reason)
        if not reason and not done:
            raise ProviderError("truncated", "The model's answer broke off: the stream ended without a finish reason.")
        kind = bad_reason(reason)
        if kind is not None:
            raise ProviderError(kind, f"The model server ended the answer with {reason!r}.")
        if self._guard is not None and self._guard.found:
            raise ProviderError(
                "tool_markup",
                f"The model wrote a tool call into its text ({self._guard.found}) instead of making it. The model "
                "server lacks a tool parser for this model.",
            )
        calls = self._calls.finish()
        parts = self._transcript.parts(calls)
        if not calls and not any(isinstance(part, Text) and part.text.strip() for part in parts):
            used_up = reason == "length" and bool(parts)
            why = "used up its tokens on thinking" if used_up else "ended its turn without text or a tool call"
            raise ProviderError("empty", f"The model {why}.")
        return AssistantMessage(parts, "complete", reason, self._final_usage(parts))

    def _choice(self, value: object, items: list[StreamItem]) -> None:
        choice = as_object(value)
        if choice is None or choice.get("index"):
            return  # one answer was asked for: it is choice 0, or the choice without an index
        self._chunks += 1
        # A gateway may send the form of a whole response, `message`, inside a stream.
        delta = choice.get("delta") or choice.get("message")
        if delta:
            self._delta(delta, items)
        reason = choice.get("finish_reason")
        if reason and isinstance(reason, str) and (not self._finish_reason or bad_reason(reason)):
            self._finish_reason = reason
        if "usage" in choice:
            self._take_usage(choice["usage"], items)

    def _delta(self, value: object, items: list[StreamItem]) -> None:
        delta = as_object(value)
        if delta is None:
            return
        content = delta.get("content")
        if len(delta) > (content is not None):
            self._reasoning(delta, items)
        if content:
            if isinstance(content, str):
                self._content(content, items)
            else:
                self._content_parts(as_list(content), items)
        if len(delta) > 1 or not content:
            refusal = as_text(delta.get("refusal"))
            if refusal:
                self._append(refusal, items, refusal=True)
            self._tool_calls(delta, items)

    def _tool_calls(self, delta: JsonObject, items: list[StreamItem]) -> None:
        entries = as_list(delta.get("tool_calls"))
        legacy = delta.get("function_call")
        if legacy:
            entries = [*entries, {"function": legacy}]
        for entry in entries:
            shown = self._calls.feed(entry)
            if shown is not None:
                items.append(shown)

    def _reasoning(self, delta: JsonObject, items: list[StreamItem]) -> None:
        details = as_list(delta.get("reasoning_details"))
        self._transcript.add_details(detail for value in details if (detail := as_object(value)))
        for name in self._profile.reasoning_fields:
            text = delta.get(name)
            if text and isinstance(text, str):
                if self._profile.cumulative:
                    text, self._seen_reasoning = _news(text, self._seen_reasoning)
                self._emit_reasoning(text, name, items)
                return
        for detail in details:
            entry = as_object(detail) or {}
            self._emit_reasoning(
                as_text(entry.get("text")) or as_text(entry.get("summary")), "reasoning_details", items
            )

    def _content_parts(self, parts: Sequence[object], items: list[StreamItem]) -> None:
        """Content as a list of typed parts, as Mistral and some gateways write it."""
        for value in parts:
            part = as_object(value) or {}
            if part.get("type") == "thinking":
                for piece in as_list(part.get("thinking")):
                    self._emit_reasoning(as_text((as_object(piece) or {}).get("text")), "thinking", items)
            else:
                self._content(as_text(part.get("text")), items)

    def _content(self, text: str, items: list[StreamItem]) -> None:
        if self._profile.cumulative:
            text, self._seen_content = _news(text, self._seen_content)
        if self._surrogates is not None:
            text = self._surrogates.feed(text)
        if text:
            self._emit_text(text, items)

    def _emit_text(self, text: str, items: list[StreamItem]) -> None:
        if self._think is not None and not self._think.passes_all:
            reasoning, text = self._think.feed(text)
            self._emit_reasoning(reasoning, THINK_TAG_FIELD, items)
            self._plain = self._think.passes_all and self._surrogates is None and not self._profile.cumulative
        self._emit_shown(text, items)

    def _plain_text(self, text: str) -> list[StreamItem]:
        self._chunks += 1
        if self._guard is not None:
            text = self._guard.feed(text)
            if not text:
                return []
        self._transcript.add_text(text)
        return [TextDelta(text)]

    def _emit_shown(self, text: str, items: list[StreamItem]) -> None:
        if self._guard is not None and text:
            text = self._guard.feed(text)
        self._append(text, items)

    def _emit_reasoning(self, text: str, name: str, items: list[StreamItem]) -> None:
        if not text:
            return
        if self._surrogates is not None:
            text = self._surrogates.clean(text)
        self._transcript.add_reasoning(text, name)
        items.append(ReasoningDelta(text))

    def _append(self, text: str, items: list[StreamItem], *, refusal: bool = False) -> None:
        if text:
            self._transcript.add_text(text, refusal=refusal)
            items.append(TextDelta(text))

    def _take_usage(self, value: object, items: list[StreamItem]) -> None:
        fields = as_object(value)
        if fields is None:
            return
        usage = Usage(
            as_count(fields.get("prompt_tokens")) or as_count(fields.get("input_tokens")),
            as_count(fields.get("completion_tokens")) or as_count(fields.get("output_tokens")),
        )
        if usage != self._usage and (usage.input_tokens or usage.output_tokens):
            self._usage = usage
            items.append(UsageReport(usage))

    def _final_usage(self, parts: Sequence[Part]) -> Usage:
        if self._usage is not None:
            return self._usage
        chars = sum(len(part.raw_arguments if isinstance(part, ToolCall) else part.text) for part in parts)
        return Usage(self._input_estimate, max(1, chars // _CHARS_PER_TOKEN), estimated=True)


def _only_content(chunk: Mapping[str, Any]) -> str:
    """The text of a chunk that brings nothing else, as nearly all chunks of an answer do; "" for any other chunk."""
    # The types say no more than the checks behind them: `as_list`, `as_object` or a cast would cost a call each.
    choices: list[Any] | None = chunk.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        return ""
    choice: dict[str, Any] | None = choices[0]
    if not isinstance(choice, dict) or choice.get("index") or choice.get("finish_reason") or "usage" in choice:
        return ""
    delta: dict[str, object] | None = choice.get("delta")
    if not isinstance(delta, dict) or len(delta) != 1:
        return ""
    if chunk.get("usage") or "error" in chunk or "base_resp" in chunk or "x_groq" in chunk:
        return ""
    content = delta.get("content")
    return content if isinstance(content, str) else ""


def _news(text: str, seen: str) -> tuple[str, str]:
    """What a chunk that may repeat all text so far adds to it, and all text then."""
    if text.startswith(seen):
        return text[len(seen) :], text
    return text, seen + text
