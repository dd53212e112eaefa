"""What the engine asks of a model, and nothing more.

`generate` is the whole required interface. Streaming is an optional capability of its own, tested with isinstance:
the engine uses it when the provider has it and falls back to `generate` when not.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from harness.messages import (
    AssistantMessage,
    JsonObject,
    Message,
    Reasoning,
    ToolCall,
    ToolResult,
    Usage,
    estimated_tokens,
)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to the model: the system prompt, a valid history, and the tools on offer."""

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()

    @property
    def estimated_tokens(self) -> int:
        """How many tokens the request takes, roughly: for where a server names no figures."""
        return estimated_tokens(len(self.system) + sum(_characters(message) for message in self.messages))


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Answer text that just arrived, never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Thinking text that just arrived, never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A call is being written: for display only. `name` is set once, with the first delta of the call."""

    index: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Token figures so far; the last one wins."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Completed:
    """The end of a good stream, and the only carrier of the final message. Comes exactly once, last."""

    message: AssistantMessage


StreamItem = TextDelta | ReasoningDelta | ToolCallDelta | UsageReport | Completed


class ModelProvider(Protocol):
    """A model.

    Contract: raises `ProviderError` and nothing else for anything that goes wrong on the way to the model or back;
    never retries by itself; may be used by many runs at once. When the awaiting task is canceled, the HTTP exchange
    is really closed before the cancellation leaves the call.
    """

    @property
    def model(self) -> str:
        """The model's name, for people."""
        ...

    async def generate(self, request: ModelRequest) -> AssistantMessage:
        """The whole answer at once."""
        ...

    async def aclose(self) -> None:
        """Release the connections. May be called twice."""
        ...


@runtime_checkable
class StreamingProvider(Protocol):
    """A model that can show its answer while it is written.

    Contract: leaving the context closes the HTTP exchange, whether the iterator was exhausted or not. The iterator
    ends with `Completed` or raises `ProviderError`; text that was already yielded stays with the caller.
    """

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[AsyncIterator[StreamItem]]:
        """Open the stream; waits for nothing until entered."""
        ...


def _characters(message: Message) -> int:
    match message:
        case AssistantMessage(parts=parts):
            return sum(
                len(part.raw_arguments) if isinstance(part, ToolCall) else len(part.text)
                for part in parts
                if not isinstance(part, Reasoning)
            )
        case ToolResult(content=content):
            return len(content)
        case _:
            return len(message.text)
