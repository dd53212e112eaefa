"""Runs the calls of one model turn: read-only ones side by side, the others one by one, results in call order."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from harness.errors import StoreError, ToolError
from harness.events import ToolEnded, ToolProgressed, ToolStarted
from harness.messages import JsonObject, ToolCall, ToolResult
from harness.providers.base import ToolSpec
from harness.reporters.base import EventSink
from harness.task_registry import TaskRegistry
from harness.tools.base import Tool, ToolContext

log = structlog.stdlib.get_logger(__name__)

MAX_RESULT_CHARS: Final = 16_000
STOP_GRACE_S: Final = 2.0
"""How long a tool that is told to stop may take; after that nobody waits for it any more."""
NO_PERMISSION: Final = "This call was not permitted."
CUT_OFF: Final = "The task ended before this call was finished; whether it took effect is unknown."
CANCELED: Final = "Canceled by the person before it finished; whether it took effect is unknown."
NEVER_RAN: Final = "The task ended before this call ran: it had no effect."


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf the calls are made."""

    task_id: str
    session_key: str
    requester: str


class CallJournal(Protocol):
    """Where calls are written down while they run."""

    async def before(self, call: ToolCall) -> None:
        """The call is about to run and may change something. Raises StoreError: then it does not run."""
        ...

    async def after(self, call: ToolCall, result: ToolResult, duration_ms: int) -> ToolResult:
        """The call is over: write it down and publish its `tool:end`; returns what the model is told."""
        ...


class ToolExecutor:
    """The one place where tools run."""

    def __init__(
        self, tools: Mapping[str, Tool], *, timeout_s: float = 30.0, stop_grace_s: float = STOP_GRACE_S
    ) -> None:
        self._tools = tools
        self._timeout_s = timeout_s
        self._stop_grace_s = stop_grace_s
        self._running = TaskRegistry()

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """The tools on offer, as the model sees them."""
        return [tool.spec for tool in self._tools.values()]

    def find(self, name: str) -> Tool | None:
        """The tool of that name."""
        return self._tools.get(name)

    async def run(
        self,
        calls: Sequence[ToolCall],
        caller: Caller,
        sink: EventSink,
        results: dict[str, ToolResult],
        verdicts: Mapping[str, str],
        journal: CallJournal | None = None,
    ) -> None:
        """Run the calls and put each result into `results` under the call's id as soon as it is there.

        `verdicts`: call id to "" for a call that may run, or to the text that is its result instead. A call without a
        verdict does not run: this is the one place where tools run, so permission is checked here. What the tools
        raise becomes an error result. On cancellation `results` holds what had finished until then. `journal`: where
        each call is written down before it runs, if it may change something, and after.
        """
        run = _Run(caller, sink, results, journal)
        refused = {call.id: verdicts.get(call.id, NO_PERMISSION) for call in calls}
        batch: list[ToolCall] = []
        for call in calls:
            tool = self._tools.get(call.name)
            if tool is not None and tool.read_only:
                batch.append(call)
                continue
            await self._side_by_side(batch, run, refused)
            batch = []
            await self._one(call, run, refused[call.id])
        await self._side_by_side(batch, run, refused)

    async def _side_by_side(self, calls: Sequence[ToolCall], run: "_Run", refused: Mapping[str, str]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    group.create_task(self._one(call, run, refused[call.id]))
        except ExceptionGroup as failures:
            # What a call can raise is the store's refusal to write it down: one is as good as all.
            raise failures.exceptions[0] from None

    async def _one(self, call: ToolCall, run: "_Run", refused: str) -> None:
        await run.sink.emit(ToolStarted, call)
        started = time.monotonic()
        text, failed = (refused, True) if refused else await self._outcome(call, run)
        result = ToolResult(call.id, call.name, clamp(text), failed)
        duration_ms = round((time.monotonic() - started) * 1000)
        if run.journal is not None:
            run.results[call.id] = await run.journal.after(call, result, duration_ms)
            return
        run.results[call.id] = result
        await run.sink.emit(ToolEnded, call.id, call.name, result.content, failed, duration_ms)

    async def _outcome(self, call: ToolCall, run: "_Run") -> tuple[str, bool]:
        tool = self._tools.get(call.name)
        if tool is None:
            return f"There is no tool {call.name!r}. The tools are: {', '.join(self._tools) or 'none'}.", True
        if call.arguments is None:
            return f"The arguments are not one JSON object: {clamp(call.raw_arguments, 400)}", True

        if run.journal is not None and not tool.read_only:
            try:
                await run.journal.before(call)
            except StoreError as error:
                return f"The call could not be written down, so it did not run: {error}", True

        async def progress(text: str) -> None:
            await run.sink.emit(ToolProgressed, call.id, call.name, text)

        context = ToolContext(run.caller.task_id, run.caller.session_key, run.caller.requester, progress)
        limit = tool.timeout_s or self._timeout_s
        # In a task of its own, so that a tool that ignores its cancellation can be left behind.
        work = self._running.start(_call(tool, call.arguments, context), f"tool {call.name}")
        try:
            await asyncio.wait({work}, timeout=limit)
        except asyncio.CancelledError:
            await self._stop(work)
            raise
        if not work.done():
            await self._stop(work)
            return f"The tool did not finish within {limit:g} s and was stopped.", True
        if work.cancelled():
            return "The tool canceled itself.", True
        return work.result()

    async def _stop(self, work: asyncio.Task[tuple[str, bool]]) -> None:
        work.cancel()
        await asyncio.wait({work}, timeout=self._stop_grace_s)
        if not work.done():
            log.error("a tool does not stop and is left behind", work=work.get_name())


@dataclass(frozen=True, slots=True)
class _Run:
    """What all calls of one `run` have in common."""

    caller: Caller
    sink: EventSink
    results: dict[str, ToolResult]
    journal: CallJournal | None


async def _call(tool: Tool, arguments: JsonObject, context: ToolContext) -> tuple[str, bool]:
    try:
        return await tool.call(arguments, context), False
    except ToolError as error:
        return str(error), True
    except Exception as error:
        log.exception("tool failed", tool=tool.name, task=context.task_id)
        return f"The tool failed: {type(error).__name__}: {error}", True


def clamp(text: str, limit: int = MAX_RESULT_CHARS) -> str:
    """The text, or its head and tail with a note of what is left out between them."""
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    return f"{text[:head]}\n[... {len(text) - head - tail:,} characters left out ...]\n{text[-tail:]}"
