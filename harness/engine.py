"""The loop: prepare history, ask the model, run its calls, append, repeat until it answers without calls.

No I/O of its own: the model, the tools, the session and the reporter are reached through what it is given. A run that
is canceled or fails leaves what it had in `RunState`, and `Runtime` writes it down in one place.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from harness.approval import Approval
from harness.errors import LimitExceeded, ProviderError
from harness.events import (
    MessageRetracted,
    ModelDelta,
    ModelEnded,
    ModelReasoning,
    ModelRetrying,
    ModelStarted,
    StepTaken,
    UsageReported,
)
from harness.gate import ApprovalGate
from harness.history import prepare_history
from harness.messages import AssistantMessage, Message
from harness.providers.base import (
    Completed,
    ModelProvider,
    ModelRequest,
    ReasoningDelta,
    StreamingProvider,
    TextDelta,
)
from harness.run_state import FAILURES_BEFORE_REMINDER, RunState
from harness.settings import KernelSettings
from harness.stores.memory import MemoryGrantStore
from harness.tools.executor import ToolExecutor
from harness.watchdog import Watchdog

MAX_DENIALS: Final = 3
REMINDER: Final = "This very call has failed several times now. Do not repeat it: change it, or answer without it."
REFUSED: Final = "This call is not permitted here. Do not make it again; go on without it."
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


class Engine:
    """Runs tasks, any number at once: it holds no state of a run."""

    def __init__(
        self,
        provider: ModelProvider,
        executor: ToolExecutor,
        limits: Limits,
        *,
        system: str,
        gate: ApprovalGate | None = None,
    ) -> None:
        self.provider = provider
        self.limits = limits
        self.gate = gate or ApprovalGate(MemoryGrantStore())
        self._executor = executor
        self._system = system

    async def run(self, state: RunState) -> Sequence[Approval]:
        """Work until the model has answered: (). Or until calls need a person: then what to ask, and none has run.

        A state whose `running` message is set goes on with the calls of that message, as `verdicts` say. Raises
        ProviderError or LimitExceeded; a cancellation passes through. Either way `state` tells how far it came.
        """
        while True:
            if state.running is None:
                if state.turns >= self.limits.max_turns:
                    raise LimitExceeded("max_turns", f"The task took more than {self.limits.max_turns} model turns.")
                message = await self._turn(state)
                if not message.tool_calls:
                    await self._save(state, [message])
                    await self._step(state, "finish", "answered")
                    return ()
                state.tool_calls += len(message.tool_calls)
                if state.tool_calls > self.limits.max_tool_calls:
                    raise LimitExceeded("budget", f"The task made more than {self.limits.max_tool_calls} tool calls.")
                if asked := await self._permissions(state, message):
                    return asked
            await self._calls(state)

    async def _permissions(self, state: RunState, message: AssistantMessage) -> Sequence[Approval]:
        """Fill in the verdicts that policy and grants give; the rest is for a person."""
        asked: list[Approval] = []
        for call in message.tool_calls:
            tool = self._executor.find(call.name)
            # A call of a tool that does not exist has nothing to permit: the executor tells the model.
            policy = "allow" if tool is None else await self.gate.check(tool, call, state.caller)
            if policy == "ask" and tool is not None:
                asked.append(self.gate.request(tool, call, state.caller))
            else:
                state.verdicts[call.id] = "" if policy == "allow" else REFUSED
        return asked

    async def _calls(self, state: RunState) -> None:
        """Run the calls of the running message as the verdicts say, and write message and results down."""
        message = state.running
        assert message is not None, "there are calls only of a message"
        calls = message.tool_calls
        await self._executor.run(calls, state.caller, state.sink, state.results, state.verdicts)
        for call in calls:
            await self._step(state, "tool", call.name)
        results = [state.results[call.id] for call in calls]
        repeated = state.note_failures(calls, results)
        if repeated:
            results = [replace(result, content=f"{result.content}\n\n{REMINDER}") for result in results]
        denials = sum(bool(state.verdicts[call.id]) for call in calls)
        state.denials = state.denials + denials if denials == len(calls) else 0
        # One append: a call without its result in the log would make every later request invalid.
        await self._save(state, [message, *results])
        if repeated > FAILURES_BEFORE_REMINDER:
            raise LimitExceeded("tool", "The model made the same failing call again and again.")
        if state.denials >= MAX_DENIALS:
            raise LimitExceeded("tool", f"Permission was denied {state.denials} times in a row.")

    async def _turn(self, state: RunState) -> AssistantMessage:
        state.turns += 1
        state.pieces = []
        await state.sink.emit(ModelStarted, state.turns)
        request = ModelRequest(self._system, prepare_history(state.history), self._executor.specs)
        started = time.monotonic()
        attempt = 0
        while True:
            try:
                message = await self._ask(state, request)
                break
            except ProviderError as error:
                attempt += 1
                await self._before_retry(state, error, attempt, time.monotonic() - started)
        state.running = message
        text = message.text
        state.answered.append(text)
        state.pieces = []
        state.usage = state.usage + message.usage
        await state.sink.emit(ModelEnded, text, message.tool_calls, message.finish_reason, message.usage)
        await state.sink.emit(UsageReported, state.usage)
        await self._step(state, "model", _summary(message))
        return message

    async def _before_retry(self, state: RunState, error: ProviderError, attempt: int, elapsed: float) -> None:
        """Wait until the request may be sent again; raises the error when it may not."""
        # Once something was shown the same request must not run again behind the person's back: only a surface that can
        # take the text back, and says so, gets one replay.
        replay = bool(state.pieces)
        if replay and (state.replayed or not state.sink.can_retract):
            raise error
        if not error.retryable or attempt > self.limits.model_retries:
            raise error
        delay = retry_delay(attempt, error.retry_after)
        if elapsed + delay > RETRY_TOTAL_S:
            raise ProviderError(
                error.kind,
                f"{error.message} (the server asks to wait {delay:.0f} s, longer than this task may)",
                retry_after=error.retry_after,
                status=error.status,
            ) from error
        if replay:
            state.replayed = True
            state.pieces.clear()
            await state.sink.emit(MessageRetracted, error.kind)
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
                alive = dog.alive
                async for item in items:
                    alive()
                    if type(item) is TextDelta:
                        text = item.text
                        pieces.append(text)
                        await emit(ModelDelta, text)
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
        state.running, state.results, state.verdicts = None, {}, {}
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
