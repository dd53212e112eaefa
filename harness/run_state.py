"""One run while it goes on, as data: what the engine works on, and what is written down of it and when."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from harness.admission import RunInput
from harness.errors import StoreError
from harness.events import Event, RunStarted, StepTaken, StepType, ToolEnded
from harness.messages import (
    AssistantMessage,
    Message,
    SummaryMessage,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    estimated_tokens,
)
from harness.pricing import Price, priced
from harness.reporters.base import EventSink
from harness.stores.base import Change
from harness.stores.records import CallRecord, CallState, CallStep
from harness.stores.run_log import RunLog
from harness.tools.executor import CANCELED, CUT_OFF, NEVER_RAN, Caller

FAILURES_BEFORE_REMINDER: Final = 3
"""How often the same call may fail before the model is reminded; once more ends the run."""
REMINDER: Final = "This very call has failed several times now. Do not repeat it: change it, or answer without it."


@dataclass(slots=True)
class RunState:
    """One run while it goes on. Owned by one asyncio task; nothing in it is shared with another run.

    Of the request that is under way: `asking`, its tokens by estimate; `pieces`, the text that came so far; `thought`,
    the characters of thinking; `reported`, what the server says it used, when it says so on the way; `price`, what its
    model costs. `was_cut`: the last answer ran into the model's token limit inside a call.

    Of the calls under way: `running`, the message that asks for them, in the log already when `is_logged`;
    `proposals`, their rows in the journal; `verdicts` and `results` by call id; `begun`, those that may have had an
    effect; `unwritten`, those that did not run because their start could not be written down. `failures` counts calls
    that failed with the same arguments, turn after turn.
    """

    sink: EventSink
    caller: Caller
    history: list[Message]
    log: RunLog
    turns: int = 0
    tool_calls: int = 0
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    answered: list[str] = field(default_factory=list[str])
    pieces: list[str] = field(default_factory=list[str])
    running: AssistantMessage | None = None
    is_logged: bool = False
    proposals: list[CallRecord] = field(default_factory=list[CallRecord])
    verdicts: dict[str, str] = field(default_factory=dict[str, str])
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    begun: set[str] = field(default_factory=set[str])
    unwritten: set[str] = field(default_factory=set[str])
    denials: int = 0
    replayed: bool = False
    was_cut: bool = False
    asking: int = 0
    thought: int = 0
    reported: Usage | None = None
    price: Price | None = None
    failures: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    failing: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])

    @property
    def answer(self) -> str:
        """All text shown so far, turns separated by a blank line, exactly as a card shows it."""
        return "\n\n".join([text for text in (*self.answered, "".join(self.pieces)) if text])

    @property
    def partial_usage(self) -> Usage:
        """What the request that is under way has used so far; nothing while nothing has come back."""
        written = estimated_tokens(sum(map(len, self.pieces)) + self.thought)
        if self.reported is not None:
            # The server's figures may be those of the beginning: what was written since counts as well.
            used = replace(self.reported, output_tokens=max(self.reported.output_tokens, written), estimated=True)
        elif written:
            used = Usage(self.asking, written, estimated=True)
        else:
            return Usage()
        return priced(used, self.price)

    @property
    def spent(self) -> Usage:
        """What the run has used, the request that is under way included."""
        return self.usage + self.partial_usage

    def settle(self, usage: Usage) -> None:
        """The request is over and has used this much; nothing is under way any more."""
        self.usage = self.usage + usage
        self.pieces = []
        self.asking, self.thought, self.reported = 0, 0, None

    async def begin(self, message: UserMessage, run: RunInput) -> None:
        """Write down what the person has asked, and tell that the run begins."""
        self.sink.stage(RunStarted, run.session_key, run.prompt)
        self.history.append(message)
        await self._write([message])

    async def answered_with(self, message: AssistantMessage) -> None:
        """Write down an answer that asks for no call."""
        self.running = None  # before the await, for the same reason as in `propose`
        self.history.append(message)
        await self._write([message])

    async def propose(self, *changes: Change) -> None:
        """Write down the message that asks for calls, with their rows in the journal, before any of them runs."""
        assert self.running is not None, "only a message can ask for calls"
        # Before the await: the write goes on when the run is canceled in the middle of it, and must not happen twice.
        self.is_logged = True
        try:
            await self._write([self.running], *self.proposals, *changes)
        except StoreError:
            self.is_logged = False
            raise
        self.history.append(self.running)

    async def before(self, call: ToolCall) -> None:
        """See `CallJournal`."""
        self.begun.add(call.id)
        try:
            await self.log.add((), self._step(call.id, "started"))
        except StoreError:
            self.begun.discard(call.id)
            self.unwritten.add(call.id)
            raise

    async def after(self, call: ToolCall, result: ToolResult, duration_ms: int) -> ToolResult:
        """See `CallJournal`. A call that has failed again and again gets a reminder with its result."""
        if result.is_error:
            key = (call.name, call.raw_arguments)
            self.failing[key] = self.failures.get(key, 0) + 1
            if self.failing[key] >= FAILURES_BEFORE_REMINDER:
                result = replace(result, content=f"{result.content}\n\n{REMINDER}")
        self.results[call.id] = result
        steps: list[CallStep] = []
        if call.id in self.unwritten:
            steps.append(self._step(call.id, "canceled", result))
        elif self.verdicts.get(call.id) == "":
            if call.id not in self.begun:
                steps.append(self._step(call.id, "started"))
            steps.append(self._step(call.id, "finished", result))
        self.sink.stage(ToolEnded, call.id, call.name, result.content, result.is_error, duration_ms)
        await self._write([result], *steps)
        return result

    def close_calls(self) -> int:
        """All calls of the running message are over; how often one of them has failed by now."""
        assert self.running is not None, "there are calls only of a message"
        self.history.extend(self.results[call.id] for call in self.running.tool_calls)
        self._forget_calls()
        self.failures, self.failing = self.failing, {}
        return max(self.failures.values(), default=0)

    async def close(self, *, canceled: bool) -> None:
        """Write down what a run that ended early still has.

        Calls that were under way get a result that says so, since nobody knows whether they took effect.
        """
        if self.running is None:
            if text := "".join(self.pieces):
                state = "interrupted" if canceled else "failed"
                await self.log.add([AssistantMessage((Text(text),), state, usage=self.partial_usage)])
            return
        results: list[ToolResult] = []
        steps: list[CallStep] = []
        for call in self.running.tool_calls:
            if call.id in self.results and self.is_logged:
                continue
            text = NEVER_RAN if call.id not in self.begun else CANCELED if canceled else CUT_OFF
            result = self.results.get(call.id) or ToolResult(call.id, call.name, text, is_error=True)
            results.append(result)
            if self.is_logged and self.verdicts.get(call.id, "") == "":
                steps.append(self._step(call.id, "in_doubt" if call.id in self.begun else "canceled", result))
        message = [] if self.is_logged else [self.running]
        self._forget_calls()
        await self.log.add([*message, *results], *steps)

    def stage_step(self, type: StepType, summary: str) -> None:
        """One step of the run is behind us: told with whatever is written next."""
        self.steps += 1
        self.sink.stage(StepTaken, self.steps, type, summary)

    async def _write(self, messages: Sequence[Message], *changes: Change) -> None:
        """Write down, together with the events that are staged; then those are published."""
        async with self.sink.order:
            events = self.sink.take()
            try:
                await self.log.add(messages, *changes, *events)
            except asyncio.CancelledError:
                # The write has come to its end all the same, so what it holds has happened.
                await self._publish(events)
                raise
            await self._publish(events)

    async def _publish(self, events: Sequence[Event]) -> None:
        for event in events:
            await self.sink.publish(event)

    def _step(self, call_id: str, to: CallState, result: ToolResult | None = None) -> CallStep:
        content, is_error = (result.content, result.is_error) if result is not None else ("", False)
        return CallStep(self.caller.task_id, call_id, to, self.log.now(), content, is_error)

    def _forget_calls(self) -> None:
        self.running, self.is_logged = None, False
        self.proposals, self.verdicts, self.results, self.begun, self.unwritten = [], {}, {}, set(), set()


def tokens_of(history: Sequence[Message]) -> int:
    """The tokens that the answers of a conversation have used, requests included."""
    return sum(message.usage.total for message in history if isinstance(message, AssistantMessage | SummaryMessage))
