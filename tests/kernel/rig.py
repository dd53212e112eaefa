"""A whole kernel in one process, with a scripted model and recorded events."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from harness.admission import InProcessAdmission, RunInput
from harness.engine import Engine, Limits
from harness.gate import ApprovalGate
from harness.providers.script import Script
from harness.providers.scripted import ScriptedProvider
from harness.reporters.base import Reporter
from harness.reporters.recording import RecordingReporter
from harness.runtime import Queued, Runtime, Started
from harness.stores.memory import MemorySessionStore
from harness.task import Task
from harness.tools.base import Tool, by_name
from harness.tools.builtin import default_tools
from harness.tools.executor import ToolExecutor


@dataclass
class Kernel:
    """`run(prompt)` gives the finished task and its events."""

    provider: ScriptedProvider
    runtime: Runtime
    store: MemorySessionStore
    made: list[RecordingReporter] = field(default_factory=list)

    async def start(self, prompt: str, session: str = "s") -> tuple[Task, RecordingReporter]:
        reporter = RecordingReporter()
        outcome = await self.runtime.start(session, prompt, reporter)
        assert isinstance(outcome, Started | Queued), outcome
        return outcome.task, reporter

    async def run(self, prompt: str, session: str = "s") -> tuple[Task, RecordingReporter]:
        task, reporter = await self.start(prompt, session)
        await task.wait()
        return task, reporter


def kernel(
    answers: Iterable[Script] | None = None,
    *,
    limits: Limits | None = None,
    tools: Sequence[Tool] | None = None,
    admission: InProcessAdmission | None = None,
    speed: float = float("inf"),
    tool_timeout_s: float = 30.0,
    gate: ApprovalGate | None = None,
    now: Callable[[], float] = time.time,
) -> Kernel:
    provider = ScriptedProvider(answers, speed=speed)
    executor = ToolExecutor(by_name(list(tools) if tools is not None else default_tools()), timeout_s=tool_timeout_s)
    engine = Engine(provider, executor, limits or Limits(), system="Be brief.", gate=gate)
    store = MemorySessionStore()
    made: list[RecordingReporter] = []

    def reporter_for(run: RunInput) -> Reporter:
        made.append(RecordingReporter())
        return made[-1]

    runtime = Runtime(engine, store, admission or InProcessAdmission(), reporter_for=reporter_for, now=now)
    return Kernel(provider, runtime, store, made)
