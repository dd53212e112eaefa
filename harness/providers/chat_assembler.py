"""Folds the chunks of one chat-completions response into stream items and one final message. Pure.

The rules are about what a chunk says, not about who sent it; what truly differs per server is in the profile.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from harness.errors import ProviderError
from harness.messages import AssistantMessage, JsonObject, Usage
from harness.providers.answer import AnswerText
from harness.providers.base import StreamItem, ToolSpec, UsageReport
from harness.providers.failures import bad_reason, error_in_chunk
from harness.providers.profiles import ProviderProfile
from harness.providers.text_calls import TextToolParser
from harness.providers.tool_calls import ToolCallCollector
from harness.providers.wire import as_count, as_list, as_object, as_text

_DETAILS_FIELD: Final = "reasoning_details"


class ChatAssembler:
    """One response in the making; an `Assembler`.

    `new_id` makes our own tool call ids. `input_estimate`: tokens of the request, used only when the server names no
    figures. `tools`: what is on offer, for calls in the text.
    """

    is_over = False
    """The end mark of this protocol is none of its chunks."""

    def __init__(
        self,
        profile: ProviderProfile,
        new_id: Callable[[], str],
        *,
        input_estimate: int = 0,
        tools: Sequence[ToolSpec] = (),
    ) -> None:
        self.error: ProviderError | None = None
        self._profile = profile
        self._cumulative = profile.cumulative
        self._input_estimate = input_estimate
        parses = profile.text_tool_markup == "parse"
        self._answer = AnswerText(profile, text_calls=TextToolParser(tools, new_id) if parses else None)
        self._calls = ToolCallCollector(new_id)
        self._seen_content = ""
        self._seen_reasoning = ""
        self._usage: Usage | None = None
        self._finish_reason = ""
        self._chunks = 0

    def feed(self, chunk: JsonObject) -> list[StreamItem]:
        """What this chunk adds for the reader. A failure that it reports is kept in `error`."""
        if self._answer.plain and not self._cumulative and (text := _only_content(chunk)):
            self._chunks += 1
            return self._answer.plain_text(text)
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
        """See `Assembler`."""
        self._answer.expect_surrogates()

    def flush(self) -> list[StreamItem]:
        """See `Assembler`."""
        return self._answer.flush()

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
        calls = self._calls.finish()
        return self._answer.message(calls, reason, self._usage, input_estimate=self._input_estimate)

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
                self._answer.refusal(refusal, items)
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
        details = as_list(delta.get(_DETAILS_FIELD))
        self._answer.details((detail for value in details if (detail := as_object(value))), _DETAILS_FIELD)
        for name in self._profile.reasoning_fields:
            text = delta.get(name)
            if text and isinstance(text, str):
                if self._cumulative:
                    text, self._seen_reasoning = _news(text, self._seen_reasoning)
                self._answer.reasoning(text, name, items)
                return
        for detail in details:
            entry = as_object(detail) or {}
            self._answer.reasoning(as_text(entry.get("text")) or as_text(entry.get("summary")), _DETAILS_FIELD, items)

    def _content_parts(self, parts: Sequence[object], items: list[StreamItem]) -> None:
        """Content as a list of typed parts, as Mistral and some gateways write it."""
        for value in parts:
            part = as_object(value) or {}
            if part.get("type") == "thinking":
                for piece in as_list(part.get("thinking")):
                    self._answer.reasoning(as_text((as_object(piece) or {}).get("text")), "thinking", items)
            else:
                self._content(as_text(part.get("text")), items)

    def _content(self, text: str, items: list[StreamItem]) -> None:
        if self._cumulative:
            text, self._seen_content = _news(text, self._seen_content)
        self._answer.text(text, items)

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
