"""One turn in a terminal: start the task, put its questions to the person, stop it on Ctrl-C."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, Literal, Protocol

from harness.approval import Approval, Decision
from harness.errors import StoreError
from harness.events import ApprovalDecided, ApprovalRequested, Event, RunEnded
from harness.reporters.base import CanRetract, Reporter
from harness.runtime import Refused, Runtime
from harness.status import TaskStatus
from harness.task import Task
from harness.task_registry import TaskRegistry

PERSON: Final = "the user"
NOBODY: Final = "the terminal, where nobody can be asked (--allow {tool} permits this tool)"


class Asker(Protocol):
    """Puts a question to a person."""

    async def ask(self, approval: Approval, closed: asyncio.Event) -> Decision | Literal["stop"] | None:
        """The answer; `stop` ends the whole turn, None when the question was `closed` before there was one."""
        ...


class Stage:
    """A reporter in front of another one: collects the questions, and holds the rest back while one is on screen."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._questions: asyncio.Queue[Approval | None] = asyncio.Queue()
        self._open: dict[str, asyncio.Event] = {}
        self._held: list[Event] | None = None

    @property
    def can_retract(self) -> bool:
        """Whether the reporter behind can take text back."""
        return isinstance(self._reporter, CanRetract) and self._reporter.can_retract

    async def emit(self, event: Event) -> None:
        """Note what concerns questions, and pass the event on."""
        match event:
            case ApprovalRequested(approval=approval):
                self._open[approval.id] = asyncio.Event()
                self._questions.put_nowait(approval)
            case ApprovalDecided(approval_id=approval_id):
                if closed := self._open.get(approval_id):
                    closed.set()
            case RunEnded():
                for closed in self._open.values():
                    closed.set()
                self._questions.put_nowait(None)
            case _:
                pass
        if self._held is not None:
            self._held.append(event)
        else:
            await self._reporter.emit(event)

    async def question(self) -> tuple[Approval, asyncio.Event] | None:
        """The next question and when it is closed; None when the run has ended."""
        approval = await self._questions.get()
        return None if approval is None else (approval, self._open[approval.id])

    @asynccontextmanager
    async def quiet(self) -> AsyncGenerator[None]:
        """Nothing is shown until the end of the block; then all that came meanwhile."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for event in held:
                await self._reporter.emit(event)


class Turns:
    """Runs turns, one after another. Without an `asker` whatever needs a person is denied at once.

    `unkept`: why the last permission beyond one call could not be kept; whoever tells the person sets it back to None.
    """

    def __init__(self, runtime: Runtime, asker: Asker | None) -> None:
        self._runtime = runtime
        self._asker = asker
        self._task: Task | None = None
        self._busy = False
        self._stopped = False
        self.unkept: StoreError | None = None
        self._background = TaskRegistry()

    async def run(self, session_key: str, prompt: str, reporter: Reporter) -> TaskStatus:
        """One turn from its prompt to its end."""
        stage = Stage(reporter)
        self._busy, self._stopped = True, False
        try:
            outcome = await self._runtime.start(session_key, prompt, stage)
            assert not isinstance(outcome, Refused), "the only user of this runtime is never refused"
            self._task = outcome.task
            if self._stopped:
                self.interrupt()  # it came before there was a task
            while (question := await stage.question()) is not None:
                await self._settle(outcome.task, stage, *question)
            return await outcome.task.wait()
        finally:
            self._busy, self._task = False, None

    def interrupt(self) -> bool:
        """Stop the turn, whether it runs or waits for an answer; False when there is none."""
        self._stopped = True
        if self._task is not None:
            self._background.start(self._stop(self._task), "stop the turn")
        return self._busy

    async def aclose(self) -> None:
        """Leave nothing running."""
        await self._background.aclose()

    async def _settle(self, task: Task, stage: Stage, approval: Approval, closed: asyncio.Event) -> None:
        if closed.is_set() or self._stopped:
            return
        if self._asker is None:
            await self._runtime.decide(approval.id, "deny", by=NOBODY.format(tool=approval.tool))
            return
        async with stage.quiet():
            answer = await self._asker.ask(approval, closed)
        if answer == "stop":
            self._stopped = True
            await self._stop(task)
        elif answer is not None:
            # None: its time was up a moment ago, and the reporter has said so.
            try:
                await self._runtime.decide(approval.id, answer, by=PERSON)
            except StoreError as error:
                # The answer itself has arrived: it holds for this call, and only for this one.
                self.unkept = error
                await self._runtime.sweep()

    async def _stop(self, task: Task) -> None:
        await self._runtime.cancel_task(task.session_key, task.id, by="", reason="Ctrl-C")
