"""A kernel as a program uses it: the real provider, over a real connection, to a model server in this process."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from harness.admission import Admission, InProcessAdmission
from harness.approval import Approval
from harness.engine import Engine, Limits
from harness.events import ApprovalRequested, Event, RunEnded
from harness.gate import ApprovalGate
from harness.messages import AssistantMessage, Message, ToolResult
from harness.providers.base import ModelProvider
from harness.providers.openai_chat import OpenAIChatProvider
from harness.providers.script import Script
from harness.reporters.recording import RecordingReporter
from harness.runtime import Queued, Runtime, Started
from harness.status import TaskStatus
from harness.stores.base import ParkingStore, Session, SessionStore
from harness.stores.memory import MemorySessionStore
from harness.task import Task
from harness.testing.model_server import RequestRecord, ScriptedModelServer
from harness.testing.wire import WireRequest
from harness.tools.base import Tool, by_name
from harness.tools.executor import ToolExecutor
from tests.terminal.rig import in_turn

PATIENCE_S = 15.0
"""How long a test waits for what has to happen; it passes as soon as it has."""


@dataclass
class Bed:
    """`runtime` asks `server` through the real client."""

    server: ScriptedModelServer
    runtime: Runtime
    sessions: SessionStore

    async def start(
        self, prompt: str = "go", session: str = "s", reporter: RecordingReporter | None = None
    ) -> tuple[Task, RecordingReporter]:
        reporter = reporter or RecordingReporter()
        outcome = await self.runtime.start(session, prompt, reporter)
        assert isinstance(outcome, Started | Queued), outcome
        return outcome.task, reporter

    async def run(
        self, prompt: str = "go", session: str = "s", reporter: RecordingReporter | None = None
    ) -> tuple[Task, RecordingReporter]:
        task, reporter = await self.start(prompt, session, reporter)
        await ended(task)
        return task, reporter

    async def log(self, session: str = "s") -> Sequence[Message]:
        """What is stored of the conversation."""
        return (await self.sessions.load(session)).messages


@contextlib.asynccontextmanager
async def kernel_on(
    provider: ModelProvider,
    *,
    tools: Sequence[Tool] = (),
    limits: Limits | None = None,
    sessions: SessionStore | None = None,
    parking: ParkingStore | None = None,
    admission: Admission | None = None,
    gate: ApprovalGate | None = None,
    executor: ToolExecutor | None = None,
) -> AsyncGenerator[Runtime]:
    """A runtime; on leaving, nothing of it is left."""
    executor = executor or ToolExecutor(by_name(list(tools)))
    engine = Engine(provider, executor, limits or Limits(), system="Be brief.", gate=gate)
    store = sessions or MemorySessionStore()
    runtime = Runtime(engine, store, admission or InProcessAdmission(), parking=parking)
    try:
        yield runtime
    finally:
        await runtime.aclose()
        await provider.aclose()


@contextlib.asynccontextmanager
async def bed(
    *scripts: Script,
    answer: Callable[[WireRequest], Script] | None = None,
    tools: Sequence[Tool] = (),
    limits: Limits | None = None,
    sessions: SessionStore | None = None,
    parking: ParkingStore | None = None,
    admission: Admission | None = None,
    gate: ApprovalGate | None = None,
    executor: ToolExecutor | None = None,
) -> AsyncGenerator[Bed]:
    """`scripts`: an answer for each request, first in first out; or `answer` decides."""
    sessions = sessions or MemorySessionStore()
    async with ScriptedModelServer(answer=answer or in_turn(*scripts)) as server:
        provider = OpenAIChatProvider(api_key="sk-local", base_url=server.base_url, model="local-model")
        async with kernel_on(
            provider,
            tools=tools,
            limits=limits,
            sessions=sessions,
            parking=parking,
            admission=admission,
            gate=gate,
            executor=executor,
        ) as runtime:
            yield Bed(server, runtime, sessions)


class OnlyForward(RecordingReporter):
    """Cannot take back what it has shown, as a terminal."""

    @property
    def can_retract(self) -> bool:
        return False


class Held:
    """A moment that a test can stop at: whoever passes waits there until `go_on`."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go_on = asyncio.Event()

    async def here(self) -> None:
        self.entered.set()
        await self.go_on.wait()


class SlowSessions(MemorySessionStore):
    """A store that takes its time over the appends that `slow` picks."""

    def __init__(self, held: Held, slow: Callable[[Sequence[Message]], bool]) -> None:
        super().__init__()
        self._held = held
        self._slow = slow

    async def append(self, session: Session, messages: Sequence[Message], *, fence: int = 0) -> Session:
        if self._slow(messages):
            await self._held.here()
        return await super().append(session, messages, fence=fence)


async def until(look: Callable[[], object], what: str = "") -> None:
    """Wait until it holds."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not look():
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"waited for {what or look}") from None


async def ended(task: Task) -> TaskStatus:
    return await asyncio.wait_for(task.wait(), PATIENCE_S)


async def over(record: RequestRecord) -> None:
    """Wait until the model's server has seen the end of the exchange."""
    await asyncio.wait_for(record.done.wait(), PATIENCE_S)


def the_end(events: Sequence[Event]) -> RunEnded:
    """The one `run:end`, which must be the last event, of events that are numbered without a gap."""
    ends = [event for event in events if isinstance(event, RunEnded)]
    assert len(ends) == 1, [event.kind for event in events]
    assert events[-1] is ends[0]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return ends[0]


def questions(events: Sequence[Event]) -> list[Approval]:
    """What a person was asked."""
    return [event.approval for event in events if isinstance(event, ApprovalRequested)]


def flaws(history: Sequence[Message]) -> list[str]:
    """What a strict model server would refuse; [] for a valid history."""
    found: list[str] = []
    open_calls: list[str] = []
    used: set[str] = set()
    for number, message in enumerate(history):
        if isinstance(message, ToolResult):
            if message.call_id in open_calls:
                open_calls.remove(message.call_id)
            else:
                found.append(f"{number}: a result without its call")
            continue
        if open_calls:
            found.append(f"{number}: calls before it have no result")
            open_calls = []
        if isinstance(message, AssistantMessage):
            if message.state != "complete" or not message.parts:
                found.append(f"{number}: an answer that is {message.state} or empty")
            open_calls = [call.id for call in message.tool_calls]
            if used & set(open_calls) or len(set(open_calls)) < len(open_calls):
                found.append(f"{number}: a call id twice")
            used.update(open_calls)
    if open_calls:
        found.append("calls at the end have no result")
    return found


def collapsed(kinds: Sequence[str]) -> list[str]:
    """Kinds with rows of deltas as one."""
    return [kind for n, kind in enumerate(kinds) if kind != "model:delta" or n == 0 or kinds[n - 1] != kind]
