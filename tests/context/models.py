"""Models for long conversations: they answer by what they are asked, and keep what they were sent."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.context.summary import INSTRUCTIONS
from harness.errors import ProviderError
from harness.messages import AssistantMessage, Text, ToolCall, ToolResult, Usage
from harness.providers.base import ModelRequest

Answer = Callable[[ModelRequest], AssistantMessage]


def is_summary(request: ModelRequest) -> bool:
    """True for a request that asks for notes on a conversation."""
    return request.system.splitlines()[:1] == INSTRUCTIONS.splitlines()[:1]


def text_of(request: ModelRequest) -> str:
    """All text of a request, in order."""
    return "\n".join(
        message.content if isinstance(message, ToolResult) else message.text for message in request.messages
    )


def says(text: str, usage: Usage | None = None) -> AssistantMessage:
    return AssistantMessage((Text(text),), finish_reason="stop", usage=usage or Usage())


def calls(name: str, usage: Usage | None = None) -> AssistantMessage:
    return AssistantMessage((ToolCall("", name, {}),), finish_reason="tool_calls", usage=usage or Usage())


@dataclass
class Model:
    """A model without streaming. `answer` and `notes` say what it answers; `limit`: tokens above which it refuses."""

    answer: Answer
    notes: Answer
    limit: float = float("inf")
    model: str = "small-1"
    turns: list[ModelRequest] = field(default_factory=list[ModelRequest])
    summaries: list[ModelRequest] = field(default_factory=list[ModelRequest])
    refusals: int = 0
    made: int = 0

    async def generate(self, request: ModelRequest) -> AssistantMessage:
        await asyncio.sleep(0)
        if request.estimated_tokens > self.limit:
            self.refusals += 1
            raise ProviderError("context_length", "The request is too long.", status=400)
        if is_summary(request):
            self.summaries.append(request)
            return self.notes(request)
        self.turns.append(request)
        message = self.answer(request)
        self.made += 1
        parts = tuple(
            ToolCall(f"call-{self.made}-{number}", part.name, part.arguments) if isinstance(part, ToolCall) else part
            for number, part in enumerate(message.parts)
        )
        return AssistantMessage(parts, message.state, message.finish_reason, message.usage)

    async def aclose(self) -> None:
        pass
