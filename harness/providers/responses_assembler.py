"""Folds the events of one response of the Responses API into stream items and one final message. Pure.

What was written piece by piece comes again in whole: when an item is finished, and once more in the event that ends the
response. Either may be left out by a server, so each of them adds what is missing, and only that.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from harness.errors import ProviderError
from harness.messages import AssistantMessage, JsonObject, Usage
from harness.providers.answer import AnswerText
from harness.providers.base import StreamItem, ToolSpec, UsageReport
from harness.providers.failures import bad_reason, error_in_chunk, in_stream
from harness.providers.profiles import ProviderProfile
from harness.providers.request_parts import RESPONSES_REASONING
from harness.providers.responses_calls import ResponseCalls
from harness.providers.text_calls import TextToolParser
from harness.providers.wire import as_count, as_list, as_object, as_text

_TEXT_DELTA: Final = "response.output_text.delta"
_ENDS: Final[Mapping[str, str]] = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
"""The events that end a response, and the status that each stands for where the response does not name one."""
_LENGTH_REASONS: Final = frozenset({"max_output_tokens", "max_tokens"})
_PARAGRAPH: Final = "\n\n"


class _Shown:
    """Text of one kind as far as it was shown: what repeats it adds only what is missing.

    `apart`: what comes next is a text of its own, a paragraph apart from what is there.
    """

    __slots__ = ("apart", "pieces")

    def __init__(self) -> None:
        self.apart = False
        self.pieces: list[str] = []

    def part(self) -> None:
        self.apart = bool(self.pieces)

    def take(self, text: str) -> str:
        """The text as it is shown."""
        if self.apart and text:
            self.apart = False
            text = _PARAGRAPH + text
        self.pieces.append(text)
        return text

    def complete(self, texts: Iterable[str]) -> str:
        """What these whole texts add: nothing where they differ from what was shown, which cannot be taken back."""
        whole, shown = _PARAGRAPH.join(filter(None, texts)), "".join(self.pieces)
        if not whole.startswith(shown) or len(whole) == len(shown):
            return ""
        self.apart = False
        self.pieces = [whole]
        return whole[len(shown) :]


class ResponsesAssembler:
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
        self._input_estimate = input_estimate
        parses = profile.text_tool_markup == "parse"
        self._answer = AnswerText(profile, text_calls=TextToolParser(tools, new_id) if parses else None)
        self._calls = ResponseCalls(new_id)
        self._said, self._refused, self._thought = _Shown(), _Shown(), _Shown()
        self._thinks_in = ""
        self._message: object = None
        self._finished: list[JsonObject] = []
        self._usage: Usage | None = None
        self._reason = ""
        self._begun = False

    def feed(self, chunk: JsonObject) -> list[StreamItem]:
        """What this event adds for the reader. A failure that it reports is kept in `error`."""
        if self.is_over:
            return []  # what follows the end may have come with it, or may not
        kind = chunk.get("type")
        if kind == _TEXT_DELTA and self._answer.plain and not self._said.apart:
            text = chunk.get("delta")
            if text and isinstance(text, str):
                self._said.pieces.append(text)
                return self._answer.plain_text(text)
        items: list[StreamItem] = []
        name = as_text(kind)
        if name.startswith("response.") and name != "response.error":
            self._begun = True
            self._read(name, chunk, items)
        else:
            self._other(name, chunk, items)
        return items

    def expect_surrogates(self) -> None:
        """See `Assembler`."""
        self._answer.expect_surrogates()

    def flush(self) -> list[StreamItem]:
        """See `Assembler`."""
        return self._answer.flush()

    def finish(self, *, done: bool) -> AssistantMessage:
        """The message, once the stream has ended. `done` says nothing here: only the API's own last event is an end.

        Raises `ProviderError`: what the server reported, `empty`, `truncated`, a bad reason, `tool_markup`.
        """
        del done
        if self.error is not None:
            raise self.error
        if not self._begun and not self._said.pieces:
            raise ProviderError("empty", "The model server answered with nothing that is an answer.")
        if not self.is_over:
            raise ProviderError("truncated", "The model's answer broke off: the response was never completed.")
        kind = bad_reason(self._reason)
        if kind is not None:
            raise ProviderError(kind, f"The model server ended the answer with {self._reason!r}.")
        calls = self._calls.finish(cut=self._reason != "stop")
        reason = "tool_calls" if calls and self._reason == "stop" else self._reason
        return self._answer.message(calls, reason, self._usage, input_estimate=self._input_estimate)

    def _read(self, kind: str, event: JsonObject, items: list[StreamItem]) -> None:
        match kind:
            case "response.output_text.delta":
                self._say(as_text(event.get("delta")), items)
            case "response.function_call_arguments.delta":
                self._show(items, self._calls.more(event))
            case "response.reasoning_summary_text.delta":
                self._think(as_text(event.get("delta")), "summary", items)
            case "response.reasoning_text.delta":
                self._think(as_text(event.get("delta")), "content", items)
            case "response.refusal.delta":
                self._refuse(as_text(event.get("delta")), items)
            case "response.function_call_arguments.done":
                self._show(items, self._calls.end(event, event))
            case "response.output_item.added":
                self._added(as_object(event.get("item")) or {}, event, items)
            case "response.output_item.done":
                self._done(as_object(event.get("item")) or {}, event, items)
            case "response.reasoning_summary_part.added":
                if self._thinks_in != "content":
                    self._thought.part()
            # Text without any piece before it: the first of its kind is shown at once, others when their item is done.
            case "response.output_text.done":
                if not self._said.pieces:
                    self._say(as_text(event.get("text")), items)
            case "response.refusal.done":
                if not self._refused.pieces:
                    self._refuse(as_text(event.get("refusal")), items)
            case _:
                self._of_response(kind, as_object(event.get("response")) or {}, items)

    def _other(self, kind: str, event: JsonObject, items: list[StreamItem]) -> None:
        """An event that is not one of a response: a failure, a whole response, or nothing that we know."""
        if kind in {"error", "response.error"}:
            self.error = _reported(event)
        elif event.get("object") == "response" or isinstance(event.get("output"), list):
            self._begun = True
            self._take_usage(event.get("usage"), items)
            status = as_text(event.get("status")) or "completed"
            if status in _ENDS.values():
                self._over(status, event, items)
        elif event.get("error"):
            self.error = _reported(event["error"])
        elif not kind:
            self.error = error_in_chunk(event)

    def _of_response(self, kind: str, response: JsonObject, items: list[StreamItem]) -> None:
        """An event about the response as a whole; any other is of no interest."""
        self._take_usage(response.get("usage"), items)
        if kind in _ENDS:
            status = as_text(response.get("status"))
            self._over(status if status in _ENDS.values() else _ENDS[kind], response, items)

    def _over(self, status: str, response: JsonObject, items: list[StreamItem]) -> None:
        self.is_over = True
        output = _objects(response.get("output"))
        self._complete(output, items)
        self._show(items, *self._calls.settle([item for item in output if item.get("type") == "function_call"]))
        thoughts = [item for item in self._finished if item.get("type") == "reasoning"]
        thoughts = thoughts or [item for item in output if item.get("type") == "reasoning"]
        self._answer.details(thoughts, RESPONSES_REASONING)
        error = response.get("error")
        if error:
            self.error = _reported(error)
        elif status == "failed":
            self.error = ProviderError("overloaded", "The model server failed without saying why.")
        elif status == "cancelled":
            self.error = ProviderError("overloaded", "The model server canceled the response.")
        elif status == "incomplete":
            reason = as_text((as_object(response.get("incomplete_details")) or {}).get("reason")) or status
            reason = self._profile.finish_reason_map.get(reason, reason)
            self._reason = "length" if reason in _LENGTH_REASONS else reason
        else:
            self._reason = "stop"

    def _added(self, item: JsonObject, event: JsonObject, items: list[StreamItem]) -> None:
        match item.get("type"):
            case "function_call":
                self._show(items, self._calls.begin(item, event))
            case "message":
                message = (event.get("output_index"), item.get("id"))
                if message != self._message:
                    self._message = message
                    self._said.part()
            case "reasoning":
                self._thought.part()
            case _:
                pass

    def _done(self, item: JsonObject, event: JsonObject, items: list[StreamItem]) -> None:
        match item.get("type"):
            case "function_call":
                self._show(items, self._calls.end(item, event))
            case "message" | "reasoning":
                self._message = None
                if item not in self._finished:
                    self._finished.append(item)
                    self._complete(self._finished, items)
            case _:
                pass

    def _complete(self, output: Sequence[JsonObject], items: list[StreamItem]) -> None:
        """Show what these items hold and no event before them brought."""
        thoughts = [item for item in output if item.get("type") == "reasoning"]
        for source in ("content", "summary"):
            if self._thinks_in in {"", source} and any(_texts(item, source) for item in thoughts):
                self._thinks_in = source
                missing = self._thought.complete(_texts(item, source, _PARAGRAPH) for item in thoughts)
                self._answer.reasoning(missing, RESPONSES_REASONING, items)
        messages = [item for item in output if item.get("type") == "message"]
        self._answer.text(self._said.complete(_texts(item, "content") for item in messages), items)
        refusals = (_texts(item, "content", field="refusal") for item in messages)
        self._answer.refusal(self._refused.complete(refusals), items)

    def _say(self, text: str, items: list[StreamItem]) -> None:
        if text:
            self._answer.text(self._said.take(text), items)

    def _refuse(self, text: str, items: list[StreamItem]) -> None:
        if text:
            self._answer.refusal(self._refused.take(text), items)

    def _think(self, text: str, source: str, items: list[StreamItem]) -> None:
        # Some servers send the same thoughts in both forms.
        if text and self._thinks_in in {"", source}:
            self._thinks_in = source
            self._answer.reasoning(self._thought.take(text), RESPONSES_REASONING, items)

    def _show(self, items: list[StreamItem], *shown: StreamItem | None) -> None:
        items.extend(item for item in shown if item is not None)

    def _take_usage(self, value: object, items: list[StreamItem]) -> None:
        fields = as_object(value)
        if fields is None:
            return
        usage = Usage(
            as_count(fields.get("input_tokens")) or as_count(fields.get("prompt_tokens")),
            as_count(fields.get("output_tokens")) or as_count(fields.get("completion_tokens")),
        )
        if usage != self._usage and (usage.input_tokens or usage.output_tokens):
            self._usage = usage
            items.append(UsageReport(usage))


def _objects(value: object) -> list[JsonObject]:
    return [item for entry in as_list(value) if (item := as_object(entry)) is not None]


def _texts(item: JsonObject, where: str, between: str = "", *, field: str = "text") -> str:
    """The texts of an item's parts."""
    if field == "text" and isinstance(item.get(where), str):
        return as_text(item[where])
    return between.join(filter(None, (as_text(part.get(field)) for part in _objects(item.get(where)))))


def _reported(value: object) -> ProviderError:
    error = as_object(value)
    if error is not None and error.get("type") == "error":
        # The type says which event it is, not what went wrong.
        value = {name: field for name, field in error.items() if name != "type"}
    return in_stream(value)
