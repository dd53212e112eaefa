"""The loop: prepare history, ask the model, run its calls, append, repeat until it answers without calls.

No I/O of its own: the model, the tools, the session and the reporter are reached through what it is given. A run that
is canceled or fails leaves what it had in `RunState`, and `Runtime` writes it down in one place.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from harness.errors import LimitExceeded, ProviderError
from harness.events import (
    ModelDelta,
    ModelEnded,
    ModelReasoning,
    ModelRetrying,
    ModelStarted,
    StepTaken,
    UsageReported,
)
from harness.history import prepare_history
from harness.messages import AssistantMessage, Message, Text, ToolResult, Usage
from harness.providers.base import (
    Completed,
    ModelProvider,
    ModelRequest,
    ReasoningDelta,
    StreamingProvider,
    TextDelta,
)
from harness.reporters.base import EventSink
from harness.settings import KernelSettings
from harness.tools.executor import CANCELED, Caller, ToolExecutor
from harness.watchdog import Watchdog

RETRY_TOTAL_S: Final = 240.0
"""No retry starts later than this after the first request of a model turn."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use. Times in seconds."""

    max_turns: int = 20
    max_tool_calls: int = 100
    run_timeout_s: float = 900.0
    first_delta_timeout_s: float = 90.0
    idle_timeout_s: float = 60.0
    model_retries: int = 2
    stream: bool = True

    @classmethod
    def of(cls, settings: KernelSettings) -> "Limits":
        """The limits that the settings name."""
        return cls(
            max_turns=settings.max_turns,
            max_tool_calls=settings.max_tool_calls,
            run_timeout_s=settings.run_timeout_s,
            first_delta_timeout_s=settings.first_delta_timeout_s,
            idle_timeout_s=settings.idle_timeout_s,
            model_retries=settings.model_retries,
            stream=settings.model_stream,
        )


@dataclass(slots=True)
class RunState:
    """One run while it goes on. Owned by one asyncio task; nothing in it is shared with another run."""

    sink: EventSink
    caller: Caller
    history: list[Message]
    save: Callable[[Sequence[Message]], Awaitable[None]]
    turns: int = 0
    tool_calls: int = 0
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    answered: list[str] = field(default_factory=list[str])
    pieces: list[str] = field(default_factory=list[str])
    running: AssistantMessage | None = None
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])

    @property
    def answer(self) -> str:
        """All text shown so far, turns separated by a blank line, exactly as a card shows it."""
        return "\n\n".join([text for text in (*self.answered, "".join(self.pieces)) if text])

    def unsaved(self, *, canceled: bool) -> list[Message]:
        """What a run that ended early still has to write down.

        Calls that were under way get a result that says so, since nobody knows whether they took effect.
        """
        if self.running is not None:
            return [
                self.running,
                *(
                    self.results.get(call.id) or ToolResult(call.id, call.name, CANCELED, is_error=True)
                    for call in self.running.tool_calls
                ),
            ]
        if text := "".join(self.pieces):
            return [AssistantMessage((Text(text),), "interrupted" if canceled else "failed")]
        return []


class Engine:
    """Runs tasks, any number at once: it holds no state of a run."""

    def __init__(self, provider: ModelProvider, executor: ToolExecutor, limits: Limits, *, system: str) -> None:
        self.provider = provider
        self.limits = limits
        self._executor = executor
        self._system = system

    async def run(self, state: RunState) -> None:
        """Work until the model has answered.

        Raises ProviderError or LimitExceeded; a cancellation passes through. Either way `state` tells how far it came.
        """
        while True:
            if state.turns >= self.limits.max_turns:
                raise LimitExceeded("max_turns", f"The task took more than {self.limits.max_turns} model turns.")
            message = await self._turn(state)
            calls = message.tool_calls
            if not calls:
                await self._save(state, [message])
                await self._step(state, "finish", "answered")
                return
            state.tool_calls += len(calls)
            if state.tool_calls > self.limits.max_tool_calls:
                raise LimitExceeded("budget", f"The task made more than {self.limits.max_tool_calls} tool calls.")
            await self._executor.run(calls, state.caller, state.sink, state.results)
            for call in calls:
                await self._step(state, "tool", call.name)
            # One append: a call without its result in the log would make every later request invalid.
            await self._save(state, [message, *(state.results[call.id] for call in calls)])

    async def _turn(self, state: RunState) -> AssistantMessage:
        state.turns += 1
        state.pieces = []
        await state.sink.emit(ModelStarted, state.turns)
        request = ModelRequest(self._system, prepare_history(state.history), self._executor.specs)
        message = await self._ask_with_retries(state, request)
        state.running = message
        text = message.text
        state.answered.append(text)
        state.pieces = []
        state.usage = state.usage + message.usage
        await state.sink.emit(ModelEnded, text, message.tool_calls, message.finish_reason, message.usage)
        await state.sink.emit(UsageReported, state.usage)
        await self._step(state, "model", _summary(message))
        return message

    async def _ask_with_retries(self, state: RunState, request: ModelRequest) -> AssistantMessage:
        started = time.monotonic()
        attempt = 0
        while True:
            try:
                return await self._ask(state, request)
            except ProviderError as error:
                attempt += 1
                # Once something was shown the same request must not run again behind the person's back.
                if state.pieces or not error.retryable or attempt > self.limits.model_retries:
                    raise
                delay = retry_delay(attempt, error.retry_after)
                if time.monotonic() - started + delay > RETRY_TOTAL_S:
                    raise ProviderError(
                        error.kind,
                        f"{error.message} (the server asks to wait {delay:.0f} s, longer than this task may)",
                        retry_after=error.retry_after,
                        status=error.status,
                    ) from error
                await state.sink.emit(ModelRetrying, attempt, delay, error.kind)
                await asyncio.sleep(delay)

    async def _ask(self, state: RunState, request: ModelRequest) -> AssistantMessage:
        provider = self.provider
        if not (self.limits.stream and isinstance(provider, StreamingProvider)):
            message = await provider.generate(request)
            state.pieces = [message.text] if message.text else []
            return message
        emit, pieces = state.sink.emit, state.pieces
        message: AssistantMessage | None = None
        try:
            async with (
                Watchdog(first=self.limits.first_delta_timeout_s, idle=self.limits.idle_timeout_s) as dog,
                provider.stream(request) as items,
            ):
                async for item in items:
                    dog.alive()
                    if type(item) is TextDelta:
                        pieces.append(item.text)
                        await emit(ModelDelta, item.text)
                    elif type(item) is ReasoningDelta:
                        await emit(ModelReasoning, item.text)
                    elif type(item) is Completed:
                        # Read on to the end: only an exchange that was read whole leaves a connection to use again.
                        message = item.message
        except TimeoutError as error:
            what = "went silent" if pieces else "did not start to answer"
            raise ProviderError("timeout", f"The model {what}: {error}.") from error
        if message is None:
            raise ProviderError("truncated", "The model's stream ended without its end mark.")
        return message

    async def _save(self, state: RunState, messages: Sequence[Message]) -> None:
        # Before the await: the append goes on when the run is canceled in the middle of it, and must not happen twice.
        state.running, state.results = None, {}
        state.history.extend(messages)
        await state.save(messages)

    async def _step(self, state: RunState, type: str, summary: str) -> None:
        state.steps += 1
        await state.sink.emit(StepTaken, state.steps, type, summary)


def retry_delay(attempt: int, retry_after: float | None) -> float:
    """Seconds before the next attempt: what the server asks for, else 0.5 s doubling to 8 s, a quarter of it random."""
    if retry_after is not None:
        return max(0.0, retry_after)
    return min(8.0, 0.5 * 2 ** (attempt - 1)) * random.uniform(0.75, 1.0)


def _summary(message: AssistantMessage) -> str:
    names = ", ".join(call.name for call in message.tool_calls)
    return f"calls {names}" if names else f"{len(message.text)} characters"
