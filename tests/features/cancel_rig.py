"""What a run is stopped in the middle of: tools, stores and an admission that hold still where a test wants them to."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.admission import InProcessAdmission, Lease
from harness.messages import AssistantMessage, Message, ToolResult, UserMessage
from harness.providers.script import Call, Say, Script
from harness.reporters.recording import RecordingReporter
from harness.stores.base import ParkedRun
from harness.stores.memory import MemoryParkingStore
from harness.task import Task
from harness.tools.base import Tool, tool
from tests.features.rig import PATIENCE_S, Bed, Held, until
from tests.tools.test_shell import alive

DONE: Script = [Say("Done.")]
# What the model is told of a call that has no result: words of the text, by how far the call had come.
IN_DOUBT = "whether it took effect is unknown"
NEVER_RAN = "it had no effect"
NO_EFFECT = "effect"
"""Of a call that only reads: however far it had come, it changed nothing."""


def call(name: str, **arguments: str) -> Call:
    pairs = ", ".join(f'"{key}": "{value}"' for key, value in arguments.items())
    return Call(name, f"{{{pairs}}}")


class Desk:
    """Tools that stop at a moment which the test chooses; `seen` is what they did."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.let_go = asyncio.Event()

        @tool(read_only=True)
        async def look(where: str) -> str:
            """Look somewhere; only `near` is quick."""
            return await self._work(f"look {where}", quick=where == "near")

        @tool
        async def change(what: str) -> str:
            """Change something."""
            return await self._work(f"change {what}", quick=what == "quick")

        @tool(policy="ask")
        async def write(text: str) -> str:
            """Write something down."""
            return await self._work(f"write {text}", quick=True)

        @tool
        async def stubborn() -> str:
            """Goes on when it is told to stop."""
            self.seen.append("stubborn began")
            while not self.let_go.is_set():
                try:
                    await self.let_go.wait()
                except asyncio.CancelledError:
                    self.seen.append("stubborn was told")
            self.seen.append("stubborn ended")
            return "too late"

        self.tools: list[Tool] = [look, change, write, stubborn]

    async def _work(self, what: str, *, quick: bool) -> str:
        self.seen.append(f"{what} began")
        if not quick:
            try:
                await asyncio.Event().wait()
            finally:
                self.seen.append(f"{what} stopped")
        self.seen.append(f"{what} ended")
        return f"result of {what}"


class SlowParking(MemoryParkingStore):
    """Takes its time to keep a run."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self._held = held

    async def park(self, parked: ParkedRun) -> None:
        await self._held.here()
        await super().park(parked)


class SlowAdmission(InProcessAdmission):
    """Takes its time to take the lease of a waiting run back."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self._held = held

    async def park(self, lease: Lease) -> None:
        await self._held.here()
        await super().park(lease)


@dataclass
class Scene:
    """One run on its way to be canceled, and all that a point may look at."""

    bed: Bed
    desk: Desk
    held: Held
    mark: str
    task: Task
    reporter: RecordingReporter

    async def event(self, kind: str, count: int = 1) -> None:
        await until(lambda: self.reporter.kinds.count(kind) >= count, kind)

    async def held_up(self) -> None:
        await asyncio.wait_for(self.held.entered.wait(), PATIENCE_S)

    async def requested(self) -> None:
        await until(lambda: self.bed.server.requests, "the request")

    async def half_a_call(self) -> None:
        """The text before it has been shown, and the beginning of its arguments is there."""
        await self.event("model:delta")
        await self.chunks(3)

    async def chunks(self, count: int) -> None:
        await self.requested()
        await until(lambda: self.bed.server.requests[0].chunks_sent >= count, "the chunks")
        await asyncio.sleep(0.01)  # now they have been read as well

    async def did(self, what: str) -> None:
        await until(lambda: what in self.desk.seen, what)

    async def shell_runs(self) -> None:
        await until(lambda: len(alive(self.mark)) >= 5, "the command with its children")


async def nothing_more(_scene: Scene) -> None:
    pass


@dataclass(frozen=True)
class Point:
    """`reach` waits until the run is there. `open_request`: at that point the model is being asked.

    `told`: words of what the model is told in the next turn of each call; `answer`: the text that was shown.
    """

    scripts: Sequence[Script]
    reach: Callable[[Scene], Awaitable[None]]
    open_request: bool = False
    answer: str = ""
    told: Sequence[str] = ()
    also: Callable[[Scene], Awaitable[None]] = nothing_more
    fault: dict[str, Any] = field(default_factory=dict[str, Any])
    slow: str = ""
    shell: bool = False


def is_slow(which: str, messages: Sequence[Message]) -> bool:
    first = messages[0]
    match which:
        case "question":
            return first == UserMessage("go")
        case "calls":
            return isinstance(first, AssistantMessage) and bool(first.tool_calls)
        case "result":
            return isinstance(first, ToolResult)
        case "answer":
            return isinstance(first, AssistantMessage) and first.text == "All of it."
        case _:
            return False
