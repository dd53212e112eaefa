"""The scripted model in this process: for trials without a key, for benchmarks, and for tests."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Never

from harness.errors import ProviderError
from harness.messages import AssistantMessage, Part, Reasoning, Text, ToolCall, ToolResult, Usage, UserMessage
from harness.providers.base import (
    Completed,
    ModelRequest,
    ReasoningDelta,
    StreamItem,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from harness.providers.script import Call, Cut, Fail, Hang, Heard, Say, Script, Step, Think, decide, pieces
from harness.providers.wire import new_call_id, parse_arguments


async def paced(script: Script, speed: Callable[[], float]) -> AsyncGenerator[Step]:
    """Yield each step when it is due. `speed` may change on the way; infinity means without any wait."""
    clock = asyncio.get_running_loop().time
    due = clock()
    for step in script:
        due += step.delay_s / speed()
        # Slept to a due time, not for a duration: the pace stays right when the reader is slow. Where nothing is
        # waited for, the loop still gets its turn, as it would between two reads of a socket.
        await asyncio.sleep(max(0.0, due - clock()))
        yield step


async def silence() -> Never:
    """Wait until canceled."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets the event")


class ScriptedProvider:
    """A model that plays a script: `harness.providers.script.decide`, or `answers` one after another.

    `answers`: what each request gets, first in first out; for tests, together with `requests` (what was asked, in
    order) and `assert_complete()`. `speed`: multiplies the pace, above 0, and may be changed at any time; `math.inf`
    for no waiting at all, which is also the default for given answers.
    """

    def __init__(
        self,
        answers: Iterable[Script] | None = None,
        *,
        model: str = "scripted",
        speed: float | None = None,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self.speed = speed if speed is not None else (1.0 if answers is None else math.inf)
        self._answers = None if answers is None else deque(answers)
        self._missing = 0
        self._model = model
        self._new_id = new_id

    @property
    def model(self) -> str:
        """The name it was given."""
        return self._model

    async def generate(self, request: ModelRequest) -> AssistantMessage:
        """Play the script to its end and return the message."""
        message: AssistantMessage | None = None
        async for item in self._play(request):
            if isinstance(item, Completed):
                message = item.message
        assert message is not None, "a script that ends without a message raises"
        return message

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[StreamItem]]:
        """Play the script piece by piece."""
        items = self._play(request)
        try:
            yield items
        finally:
            await items.aclose()

    async def aclose(self) -> None:
        """Nothing to release."""

    def assert_complete(self) -> None:
        """Fail unless every given answer was asked for, and no more than those."""
        assert not self._missing, f"{self._missing} request(s) came after the last scripted answer"
        assert not self._answers, f"{len(self._answers or ())} scripted answer(s) were never asked for"

    def _script(self, request: ModelRequest) -> Script:
        if self._answers is None:
            return decide(heard(request))
        if not self._answers:
            self._missing += 1
            return [Fail("internal", message="The scripted answers have run out.")]
        return self._answers.popleft()

    async def _play(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        self.requests.append(request)
        parts: list[Part] = []
        said: list[str] = []
        thought: list[str] = []
        calls = 0
        async with aclosing(paced(self._script(request), lambda: self.speed)) as steps:
            async for step in steps:
                match step:
                    case Say(text=text):
                        said.append(text)
                        yield TextDelta(text)
                    case Think(text=text):
                        thought.append(text)
                        yield ReasoningDelta(text)
                    case Call(name=name, arguments=raw):
                        yield ToolCallDelta(calls, name, raw)
                        parts.append(ToolCall(self._new_id(), name, parse_arguments(raw), raw.strip() or "{}"))
                        calls += 1
                    case Hang():
                        await silence()
                    case Fail() | Cut():
                        raise _error(step)
        if said:
            parts.insert(0, Text("".join(said)))
        if not parts:
            raise ProviderError("empty", "The scripted answer has neither text nor a call.")
        if thought:
            parts.insert(0, Reasoning("".join(thought)))
        usage = Usage(_words(request), len(said) + len(thought) + calls)
        yield UsageReport(usage)
        yield Completed(AssistantMessage(tuple(parts), "complete", "tool_calls" if calls else "stop", usage))


def heard(request: ModelRequest) -> Heard:
    """What the script needs to know of a request."""
    users: list[str] = []
    results: list[tuple[str, str]] = []
    for message in request.messages:
        if isinstance(message, UserMessage):
            users.append(message.text)
            results.clear()
        elif isinstance(message, ToolResult):
            results.append((message.name, message.content))
    return Heard(users, results, frozenset(tool.name for tool in request.tools))


def says(text: str) -> Script:
    """A script that says this, word by word, without waiting."""
    return [Say(piece) for piece in pieces(text)]


def calls(name: str, arguments: str = "{}") -> Script:
    """A script that asks for one tool call; `arguments` is JSON text."""
    return [Call(name, arguments)]


def _error(step: Fail | Cut) -> ProviderError:
    if isinstance(step, Cut):
        return ProviderError("truncated", "The scripted model cut the stream.")
    return ProviderError(step.kind, step.message, retry_after=step.retry_after, status=step.status)


def _words(request: ModelRequest) -> int:
    texts: Sequence[str] = [request.system, *(_text(message) for message in request.messages)]
    return sum(len(text.split()) for text in texts)


def _text(message: object) -> str:
    text = getattr(message, "text", None)
    return text if isinstance(text, str) else str(getattr(message, "content", ""))
