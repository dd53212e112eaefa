"""A kernel over a database file, the same in the process that dies and in the one that comes after it."""

import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.admission import InProcessAdmission, Origin, RunInput
from harness.engine import Engine
from harness.events import Event
from harness.gate import ApprovalGate
from harness.limits import Limits
from harness.providers.script import Call, Say, Script
from harness.providers.scripted import ScriptedProvider
from harness.reporters.recording import RecordingReporter
from harness.runtime import Runtime
from harness.stores.base import Change
from harness.stores.sql import Stores, open_stores
from harness.tools.base import Tool, by_name, tool
from harness.tools.executor import ToolExecutor

FATAL = "fatal"
"""The file that names the mark after which the process is killed, while the tool that has made it still runs."""
SESSION = "chat/thread"
PROMPT = "Do it all."
ASKED = Origin("m1", "d1", "alice")
SCRIPT: list[Script] = [
    [
        Say("First I look and write."),
        Call("look", '{"at": "door"}'),
        Call("write", '{"text": "one"}'),
        Call("look", '{"at": "roof"}'),
    ],
    [Say("Now what needs permission."), Call("sign", '{"text": "two"}')],
    [Say("All "), Say("done.")],
]
"""A run with everything: tools with and without effect, a question, an answer of two pieces."""


class CountedRecords:
    """The records of a database; `after` is called with the number of each commit once it is durable."""

    def __init__(self, stores: Stores, after: Callable[[int], None]) -> None:
        self.tasks, self.journal = stores.tasks, stores.journal
        self._stores = stores
        self._after = after
        self._commits = 0

    @property
    def traces(self) -> "CountedRecords":
        return self

    async def append(self, events: Sequence[Event]) -> None:
        await self.commit(*events)

    async def read(self, task_id: str, *, after: int = 0, limit: int = 10_000) -> Sequence[Event]:
        return await self._stores.traces.read(task_id, after=after, limit=limit)

    async def last_seq(self, task_id: str) -> int:
        return await self._stores.traces.last_seq(task_id)

    async def commit(self, *changes: Change) -> None:
        await self._stores.commit(*changes)
        self._commits += 1
        self._after(self._commits)


@dataclass
class Kernel:
    stores: Stores
    runtime: Runtime
    admission: InProcessAdmission
    provider: ScriptedProvider
    made: list[RecordingReporter] = field(default_factory=list)


@asynccontextmanager
async def opened(
    folder: Path, *scripts: Script, after_commit: Callable[[int], None] = lambda _: None
) -> AsyncIterator[Kernel]:
    """Everything over `folder`: the database, and the marks that the tools with an effect leave."""
    made: list[RecordingReporter] = []

    def reporter_for(_run: RunInput) -> RecordingReporter:
        made.append(RecordingReporter())
        return made[-1]

    async with open_stores(None, folder) as stores:
        provider = ScriptedProvider(scripts)
        gate = ApprovalGate(stores.grants)
        engine = Engine(provider, ToolExecutor(by_name(tools(folder))), Limits(), system="Be brief.", gate=gate)
        admission = InProcessAdmission()
        runtime = Runtime(
            engine, stores.sessions, admission, reporter_for=reporter_for, parking=stores.parking,
            records=CountedRecords(stores, after_commit),
        )  # fmt: skip
        try:
            yield Kernel(stores, runtime, admission, provider, made)
        finally:
            await runtime.aclose()


def tools(folder: Path) -> list[Tool]:
    @tool
    async def write(text: str) -> str:
        """Write."""
        return _mark(folder, text)

    @tool(policy="ask")
    async def sign(text: str) -> str:
        """Sign."""
        return _mark(folder, text)

    @tool(read_only=True)
    async def look(at: str) -> str:
        """Look."""
        return f"saw the {at}"

    return [write, sign, look]


def _mark(folder: Path, text: str) -> str:
    with (folder / "marks").open("a") as marks:
        marks.write(f"{text}\n")
        marks.flush()
        os.fsync(marks.fileno())
    fatal = folder / FATAL
    if fatal.exists() and fatal.read_text() == text:
        fatal.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"did {text}"


def marks(folder: Path) -> list[str]:
    """What the tools with an effect have done, in order."""
    file = folder / "marks"
    return file.read_text().split() if file.exists() else []
