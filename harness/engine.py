"""The loop: prepare history, ask the model, run its calls, append, repeat until it answers without calls.

No I/O of its own: the model, the tools, the session and the reporter are reached through what it is given. A run that
is canceled or fails leaves what it had in `RunState`, and `Runtime` writes it down in one place.
"""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from harness.approval import Approval, digest_of
from harness.context.compaction import described
from harness.context.compactor import Compactor
from harness.context.prompt import SystemPrompt
from harness.errors import LimitExceeded, ProviderError
from harness.events import (
    MessageRetracted,
    ModelDelta,
    ModelEnded,
    ModelReasoning,
    ModelRetrying,
    ModelStarted,
    UsageReported,
)
from harness.gate import ApprovalGate
from harness.history import prepare_history
from harness.limits import Limits
from harness.messages import AssistantMessage, ToolCall, Usage
from harness.pricing import Price, price_of, priced
from harness.providers.base import (
    Completed,
    ModelProvider,
    ModelRequest,
    ReasoningDelta,
    StreamingProvider,
    TextDelta,
    UsageReport,
)
from harness.run_state import FAILURES_BEFORE_REMINDER, RunState, tokens_of
from harness.stores.memory import MemoryGrantStore
from harness.stores.records import CallRecord
from harness.tools.base import Tool
from harness.tools.executor import ToolExecutor
from harness.watchdog import Watchdog

MAX_DENIALS: Final = 3
CUT_SHORT: Final = (
    "The arguments of this call were cut off at the model's token limit, so it did not run. Make it again with less in "
    "it, for example in several steps."
)
REFUSED: Final = "This call is not permitted here. Do not make it again; go on without it."
RETRY_TOTAL_S: Final = 240.0
"""No retry starts later than this after the first request of a model turn."""


class Engine:
    """Runs tasks, any number at once: it holds no state of a run.

    `system`: the prompt, or what makes one for each run. `compactor`: keeps conversations within the context window.
    `prices`: see `price_of`.
    """

    def __init__(
        self,
        provider: ModelProvider,
        executor: ToolExecutor,
        limits: Limits,
        *,
        system: str | SystemPrompt,
        gate: ApprovalGate | None = None,
        compactor: Compactor | None = None,
        prices: Mapping[str, Price] | None = None,
    ) -> None:
        self.provider = provider
        self.limits = limits
        self.gate = gate or ApprovalGate(MemoryGrantStore())
        self._executor = executor
        self._system = system
        self._compactor = compactor or Compactor()
        self._prices = prices or {}

    async def run(self, state: RunState) -> Sequence[Approval]:
        """Work until the model has answered: (). Or until calls need a person: then what to ask, and none has run.

        A state whose `running` message is set goes on with the calls of that message, as `verdicts` say. Raises
        ProviderError or LimitExceeded; a cancellation passes through. Either way `state` tells how far it came.
        """
        system = self._system if isinstance(self._system, str) else await self._system(state.caller)
        frame = ModelRequest(system, (), self._executor.specs)
        while True:
            if state.running is None:
                self._check_budget(state)
                if await self._compact(state, frame):
                    self._check_budget(state)
                message = await self._turn(state, frame)
                if not message.tool_calls:
                    state.stage_step("finish", "answered")
                    await state.answered_with(message)
                    return ()
                state.tool_calls += len(message.tool_calls)
                if state.tool_calls > self.limits.max_tool_calls:
                    raise LimitExceeded("budget", f"The task made more than {self.limits.max_tool_calls} tool calls.")
                if asked := await self._permissions(state, message):
                    return asked
                # A call without its result in the log is repaired in the history that the model gets; a call that ran
                # and is in no log at all could not be.
                await state.propose()
            await self._calls(state)

    def _check_budget(self, state: RunState) -> None:
        limits = self.limits
        if state.turns >= limits.max_turns:
            raise LimitExceeded("max_turns", f"The task took more than {limits.max_turns} model turns.")
        if limits.max_run_tokens and (used := state.usage.total) >= limits.max_run_tokens:
            raise LimitExceeded("budget", f"The task used {used:,} of its {limits.max_run_tokens:,} tokens.")
        if limits.max_session_tokens and (used := tokens_of(state.history)) >= limits.max_session_tokens:
            raise LimitExceeded(
                "budget",
                f"This conversation has used {used:,} of its {limits.max_session_tokens:,} tokens. Begin a new one.",
            )

    async def _permissions(self, state: RunState, message: AssistantMessage) -> Sequence[Approval]:
        """Fill in the verdicts that policy and grants give; the rest is for a person."""
        asked: list[Approval] = []
        was_cut = message.finish_reason == "length" and any(call.is_malformed for call in message.tool_calls)
        if was_cut and state.was_cut:
            raise ProviderError("truncated", "The model ran into its token limit inside a tool call, twice in a row.")
        state.was_cut = was_cut
        for call in message.tool_calls:
            tool = self._executor.find(call.name)
            # A call of a tool that does not exist has nothing to permit: the executor tells the model.
            policy = "allow" if tool is None else await self.gate.check(tool, call, state.caller)
            if was_cut and call.is_malformed:
                state.verdicts[call.id] = CUT_SHORT
            elif policy == "ask" and tool is not None:
                asked.append(self.gate.request(tool, call, state.caller))
            else:
                state.verdicts[call.id] = "" if policy == "allow" else REFUSED
            state.proposals.append(self._proposal(state, call, tool))
        return asked

    def _proposal(self, state: RunState, call: ToolCall, tool: Tool | None) -> CallRecord:
        """The call's row in the journal, as policy left it."""
        verdict = state.verdicts.get(call.id)
        caller = state.caller
        return CallRecord(
            call,
            caller.task_id,
            caller.session_key,
            side_effects=tool is not None and not tool.read_only,
            proposed_at=state.log.now(),
            digest=digest_of(tool.name, tool.spec.parameters, call.arguments or {}) if tool is not None else "",
            state="awaiting_approval" if verdict is None else "denied" if verdict else "approved",
            result=verdict or "",
            is_error=bool(verdict),
        )

    async def _calls(self, state: RunState) -> None:
        """Run the calls of the running message as the verdicts say; each result is written down as it comes."""
        message = state.running
        assert message is not None, "there are calls only of a message"
        calls = message.tool_calls
        await self._executor.run(calls, state.caller, state.sink, state.results, state.verdicts, journal=state)
        for call in calls:
            state.stage_step("tool", call.name)
        denials = sum(state.verdicts[call.id] not in ("", CUT_SHORT) for call in calls)
        state.denials = state.denials + denials if denials == len(calls) else 0
        if state.close_calls() > FAILURES_BEFORE_REMINDER:
            raise LimitExceeded("tool", "The model made the same failing call again and again.")
        if state.denials >= MAX_DENIALS:
            raise LimitExceeded("tool", f"Permission was denied {state.denials} times in a row.")

    async def _compact(self, state: RunState, frame: ModelRequest, *, refused: bool = False) -> bool:
        """Make room for the next request when little is left, or the server says so; False when nothing is done."""
        mark = await self._compactor.compact(state.history, frame, self._generate, refused=refused)
        if mark is not None:
            state.settle(usage := self._priced(mark.usage))
            summary = described(state.history, mark)
            state.history.append(replace(mark, usage=usage))
            await state.log.add(state.history[-1:])
            state.stage_step("model", summary)
        return mark is not None

    async def _turn(self, state: RunState, frame: ModelRequest) -> AssistantMessage:
        state.turns += 1
        await state.sink.emit(ModelStarted, state.turns)
        started = time.monotonic()
        attempt, was_refused = 0, False
        while True:
            request = replace(frame, messages=prepare_history(state.history))
            try:
                message = await self._ask(state, request)
                break
            except ProviderError as error:
                attempt += 1
                too_long = error.kind == "context_length" and not (was_refused or state.pieces or state.thought)
                if too_long and await self._compact(state, frame, refused=True):
                    was_refused = True
                    await state.sink.emit(ModelRetrying, attempt, 0.0, error.kind)
                    continue
                await self._before_retry(state, error, attempt, time.monotonic() - started)
        state.running = message = replace(message, usage=self._priced(message.usage))
        text = message.text
        state.answered.append(text)
        state.settle(message.usage)
        state.sink.stage(ModelEnded, text, message.tool_calls, message.finish_reason, message.usage)
        state.sink.stage(UsageReported, state.usage, state.usage.cost)
        state.stage_step("model", _summary(message))
        return message

    async def _before_retry(self, state: RunState, error: ProviderError, attempt: int, elapsed: float) -> None:
        """Wait until the request may be sent again; raises the error when it may not."""
        # Once something was shown the same request must not run again behind the person's back: only a surface that can
        # take the text back, and says so, gets one replay.
        replay = bool(state.pieces or state.thought)
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
            await state.sink.emit(MessageRetracted, error.kind)
        state.settle(state.partial_usage)
        await state.sink.emit(ModelRetrying, attempt, delay, error.kind)
        await asyncio.sleep(delay)

    async def _ask(self, state: RunState, request: ModelRequest) -> AssistantMessage:
        provider = self.provider
        state.asking, state.price = request.estimated_tokens, price_of(self._prices, provider.model)
        if not (self.limits.stream and isinstance(provider, StreamingProvider)):
            return await self._generate(request)
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
                        state.thought += len(item.text)
                        await emit(ModelReasoning, item.text)
                    elif type(item) is UsageReport:
                        state.reported = item.usage
                    elif type(item) is Completed:
                        # Read on to the end: only an exchange that was read whole leaves a connection to use again.
                        message = item.message
        except TimeoutError as error:
            what = "went silent" if pieces else "did not start to answer"
            raise ProviderError("timeout", f"The model {what}: {error}.") from error
        if message is None:
            raise ProviderError("truncated", "The model's stream ended without its end mark.")
        return message

    async def _generate(self, request: ModelRequest) -> AssistantMessage:
        limit = self.limits.whole_answer_timeout_s
        try:
            async with Watchdog(first=limit, idle=limit):
                return await self.provider.generate(request)
        except TimeoutError as error:
            raise ProviderError("timeout", f"The model did not answer: {error}.") from error

    def _priced(self, usage: Usage) -> Usage:
        return priced(usage, price_of(self._prices, self.provider.model)) if self._prices else usage


def retry_delay(attempt: int, retry_after: float | None) -> float:
    """Seconds before the next attempt: what the server asks for, else 0.5 s doubling to 8 s, a quarter of it random."""
    if retry_after is not None:
        return max(0.0, retry_after)
    return min(8.0, 0.5 * 2 ** (attempt - 1)) * random.uniform(0.75, 1.0)


def _summary(message: AssistantMessage) -> str:
    names = ", ".join(call.name for call in message.tool_calls)
    return f"calls {names}" if names else f"{len(message.text)} characters"
