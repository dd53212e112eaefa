"""Folds the events of one Messages API response into stream items and one final message. Pure.

An answer is a list of blocks: text, thinking, tool calls. An event names the block it is about by its index; what an
event says decides how it is read, not the order in which a tidy server would send it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from harness.errors import ProviderError
from harness.messages import AssistantMessage, JsonObject, ToolCall, Usage
from harness.providers.answer import AnswerText
from harness.providers.base import StreamItem, ToolCallDelta, ToolSpec, UsageReport
from harness.providers.failures import bad_reason, clean, error_in_chunk, in_stream
from harness.providers.profiles import ProviderProfile
from harness.providers.request_parts import ANTHROPIC_THINKING, whole
from harness.providers.text_calls import TextToolParser
from harness.providers.wire import as_count, as_list, as_object, as_text, parse_arguments

_LENGTH_REASONS: Final = frozenset({"max_tokens", "model_context_window_exceeded"})
_INPUT_FIGURES: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_OUTPUT_FIGURE: Final = "output_tokens"


@dataclass(slots=True)
class _Thought:
    """A thinking block; `fields` is how it began. It goes back as it came, signature and all."""

    fields: JsonObject
    pieces: list[str] = field(default_factory=list[str])
    signature: str = ""

    def block(self) -> JsonObject | None:
        """The whole block; None when nothing was in it."""
        if self.fields.get("type") == "redacted_thinking":
            return self.fields
        thinking = whole(as_text(self.fields.get("thinking")) + "".join(self.pieces))
        signature = self.signature or as_text(self.fields.get("signature"))
        if not thinking and not signature:
            return None
        signed = {"signature": signature} if signature or "signature" in self.fields else {}
        return {**self.fields, "thinking": thinking, **signed}


@dataclass(slots=True)
class _Call:
    """A tool call; `given` is the input that it began with, which counts if no other follows."""

    position: int
    id: str = ""
    name: str = ""
    given: str = ""
    pieces: list[str] = field(default_factory=list[str])

    @property
    def raw_arguments(self) -> str:
        return whole("".join(self.pieces)).strip() or self.given


class AnthropicAssembler:
    """One response in the making; an `Assembler`.

    `new_id` makes our own tool call ids. `input_estimate`: tokens of the request, used only when the server names no
    figures. `tools`: what is on offer, for calls in the text.
    """

    def __init__(
        self,
        profile: ProviderProfile,
        new_id: Callable[[], str],
        *,
        input_estimate: int = 0,
        tools: Sequence[ToolSpec] = (),
    ) -> None:
        self.error: ProviderError | None = None
        self.is_over = False
        self._profile = profile
        self._new_id = new_id
        self._input_estimate = input_estimate
        parses = profile.text_tool_markup == "parse"
        self._answer = AnswerText(profile, text_calls=TextToolParser(tools, new_id) if parses else None)
        self._begun = False
        self._blocks = 0
        self._index = 0
        self._thoughts: list[_Thought] = []
        self._calls: list[_Call] = []
        self._thought_at: dict[int, _Thought] = {}
        self._call_at: dict[int, _Call] = {}
        self._ignored_at: list[int] = []
        self._figures: dict[str, int] = {}
        self._usage: Usage | None = None
        self._stop_reason = ""
        self._refusal = ""

    def feed(self, chunk: JsonObject) -> list[StreamItem]:
        """What this event adds for the reader. A failure that it reports is kept in `error`."""
        if self.is_over:
            return []  # it came in one read with the end, which is chance
        if self._answer.plain and (text := self._only_text(chunk)):
            self._begun = True
            return self._answer.plain_text(text)
        items: list[StreamItem] = []
        self._read(chunk, items)
        return items

    def expect_surrogates(self) -> None:
        """See `Assembler`."""
        self._answer.expect_surrogates()

    def flush(self) -> list[StreamItem]:
        """See `Assembler`."""
        return self._answer.flush()

    def finish(self, *, done: bool) -> AssistantMessage:
        """The message, once the stream has ended. `done` says nothing here: the end mark is `message_stop`.

        Raises `ProviderError`: what the server reported, `empty`, `truncated`, a bad stop reason, `tool_markup`.
        """
        del done
        if self.error is not None:
            raise self.error
        if not self._begun:
            raise ProviderError("empty", "The model server answered with nothing that is an answer.")
        if not self.is_over:
            raise ProviderError("truncated", "The model's answer broke off: the stream ended without message_stop.")
        reason = self._profile.finish_reason_map.get(self._stop_reason, self._stop_reason)
        if reason == "refusal":
            raise ProviderError("content_filter", clean(f"The model declined to answer. {self._refusal}".rstrip()))
        kind = bad_reason(reason)
        if kind is not None:
            raise ProviderError(kind, f"The model server ended the answer with {reason!r}.")
        calls = [self._finished(call) for call in self._calls]
        blocks = [thought.block() for thought in self._thoughts]
        self._answer.details((block for block in blocks if block is not None), ANTHROPIC_THINKING)
        common_reason = "length" if reason in _LENGTH_REASONS else reason
        return self._answer.message(calls, common_reason, self._usage, input_estimate=self._input_estimate)

    def _only_text(self, event: JsonObject) -> str:
        """The text of an event that brings a piece of it, as nearly all events of an answer do; "" for any other."""
        # The types say no more than the checks behind them: `as_object`, `as_text` or a cast would cost a call each.
        if event.get("type") != "content_block_delta":
            return ""
        delta: dict[str, Any] | None = event.get("delta")
        if not isinstance(delta, dict) or delta.get("type") != "text_delta":
            return ""
        if self._ignored_at and event.get("index") in self._ignored_at:
            return ""
        text = delta.get("text")
        return text if isinstance(text, str) else ""

    def _read(self, event: JsonObject, items: list[StreamItem]) -> None:
        if "error" in event or "base_resp" in event:
            self.error = error_in_chunk(event)
        match event.get("type"):
            case "content_block_delta":
                self._begun = True
                self._delta(event.get("index"), as_object(event.get("delta")) or {}, items)
            case "content_block_start":
                self._begun = True
                self._begin(event.get("index"), as_object(event.get("content_block")) or {}, items)
            case "message_start":
                self._begun = True
                self._take_end(as_object(event.get("message")) or {}, items)
            case "message_delta":
                self._begun = True
                # The figures stand beside the delta, the reason inside.
                delta = as_object(event.get("delta")) or {}
                self._take_end({**delta, "usage": event.get("usage")}, items)
            case "message_stop":
                self._begun = self.is_over = True
            case "message":
                self._take_whole(event, items)
            case "error":
                self.error = self.error or in_stream(event)
            case str():
                pass  # pings, the end of a block, and whatever the API may add
            case _:
                self.error = self.error or error_in_chunk(event)

    def _take_whole(self, message: JsonObject, items: list[StreamItem]) -> None:
        """The answer to a request without streaming, which some servers give in any case."""
        self._begun = self.is_over = True
        for block in as_list(message.get("content")):
            self._begin(None, as_object(block) or {}, items)
        self._take_end(message, items)

    def _begin(self, index: object, block: JsonObject, items: list[StreamItem]) -> None:
        self._blocks += 1
        # Below zero no server counts: a block without index can be meant only by events without one.
        self._index = at = index if isinstance(index, int) else -self._blocks
        self._thought_at.pop(at, None)
        self._call_at.pop(at, None)
        self._ignored_at = [ignored for ignored in self._ignored_at if ignored != at]
        match block.get("type"):
            case "text":
                self._answer.text(as_text(block.get("text")), items)
            case "thinking" | "redacted_thinking":
                self._think(_Thought(block), at)
                self._answer.reasoning(as_text(block.get("thinking")), ANTHROPIC_THINKING, items)
            case "tool_use":
                self._call(at, as_text(block.get("id")), as_text(block.get("name")), block.get("input"), items)
            case str():
                self._ignored_at.append(at)  # what the server's own tools do, and block types yet to come
            case _:
                pass

    def _delta(self, index: object, delta: JsonObject, items: list[StreamItem]) -> None:
        at = index if isinstance(index, int) else self._index
        if at in self._ignored_at:
            return
        match delta.get("type"):
            case "text_delta":
                self._answer.text(as_text(delta.get("text")), items)
            case "thinking_delta":
                text = as_text(delta.get("thinking"))
                self._thought(at).pieces.append(text)
                self._answer.reasoning(text, ANTHROPIC_THINKING, items)
            case "signature_delta":
                self._thought(at).signature = as_text(delta.get("signature"))
            case "input_json_delta":
                self._arguments(at, _json_text(delta.get("partial_json")), items)
            case _:
                pass

    def _thought(self, at: int) -> _Thought:
        return self._thought_at.get(at) or self._think(_Thought({"type": "thinking"}), at)

    def _think(self, thought: _Thought, at: int) -> _Thought:
        self._thoughts.append(thought)
        self._thought_at[at] = thought
        return thought

    def _call(self, at: int, call_id: str, name: str, value: object, items: list[StreamItem]) -> _Call:
        # The empty object is what every streamed call begins with.
        given = _json_text(value) if value != {} else ""
        call = _Call(len(self._calls), call_id, name, given)
        self._calls.append(call)
        self._call_at[at] = call
        if name:
            items.append(ToolCallDelta(call.position, name, given))
        return call

    def _arguments(self, at: int, text: str, items: list[StreamItem]) -> None:
        if not text:
            return
        # Arguments of a call that never began: nobody knows the tool, and the end of the stream will say so.
        call = self._call_at.get(at) or self._call(at, "", "", None, items)
        call.pieces.append(text)
        if call.name:
            items.append(ToolCallDelta(call.position, "", text))

    def _finished(self, call: _Call) -> ToolCall:
        if not call.name:
            raise ProviderError("protocol", "The model asked for a tool call without naming the tool.")
        raw = call.raw_arguments
        arguments = parse_arguments(raw)
        return ToolCall(
            id=self._new_id(),
            name=call.name,
            arguments=arguments,
            raw_arguments=raw if arguments or arguments is None else "{}",
            provider_id=call.id,
        )

    def _take_end(self, message: JsonObject, items: list[StreamItem]) -> None:
        """Reason and figures of a message, whole or so far; the last ones count."""
        self._stop_reason = as_text(message.get("stop_reason")) or self._stop_reason
        details = as_object(message.get("stop_details")) or {}
        self._refusal = as_text(details.get("explanation")) or self._refusal
        fields = as_object(message.get("usage"))
        if fields is None:
            return
        for name in (*_INPUT_FIGURES, _OUTPUT_FIGURE):
            # The figures are cumulative, so that null or 0 says nothing new; a delta may leave the input's out.
            self._figures[name] = as_count(fields.get(name)) or self._figures.get(name, 0)
        usage = Usage(sum(self._figures[name] for name in _INPUT_FIGURES), self._figures[_OUTPUT_FIGURE])
        if usage != self._usage and (usage.input_tokens or usage.output_tokens):
            self._usage = usage
            items.append(UsageReport(usage))


def _json_text(value: object) -> str:
    """Arguments as JSON text, also where a server sends the object itself."""
    if value is None or isinstance(value, str):
        return value or ""
    return whole(json.dumps(value, ensure_ascii=False))
