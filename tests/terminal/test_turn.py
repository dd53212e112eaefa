"""One turn with questions, in process: who is asked, what an answer does, and what ends a question."""

import asyncio
from collections.abc import Callable
from typing import Literal

from harness.approval import Approval, Decision
from harness.gate import ApprovalGate
from harness.providers.script import Call, Hang, Say, Script
from harness.reporters.recording import RecordingReporter
from harness.status import TaskStatus
from harness.stores.memory import MemoryGrantStore
from harness.terminal.turn import NOBODY, Turns
from harness.tools.base import Tool, tool
from tests.kernel.rig import kernel

Answer = Decision | Literal["stop"] | None


class Person:
    """Answers what `answer` says; None waits until the question is closed."""

    def __init__(self, answer: Callable[[Approval], Answer], look: Callable[[], int] = lambda: 0) -> None:
        self.asked: list[Approval] = []
        self.shown: list[tuple[int, int]] = []
        self._answer = answer
        self._look = look

    async def ask(self, approval: Approval, closed: asyncio.Event) -> Answer:
        self.asked.append(approval)
        before = self._look()
        answer = self._answer(approval)
        if answer is None:
            await asyncio.wait_for(closed.wait(), 5)
            await asyncio.sleep(0.02)  # the run goes on meanwhile
        self.shown.append((before, self._look()))
        return answer


def writing(written: list[str]) -> Tool:
    @tool(policy="ask")
    async def write(text: str) -> str:
        """Write something down."""
        written.append(text)
        return "ok"

    return write


def call(text: str) -> Call:
    return Call("write", f'{{"text": "{text}"}}')


async def turn(
    person: Person | None, *scripts: Script, timeout_s: float = 60.0, reporter: RecordingReporter | None = None
) -> tuple[TaskStatus, list[str], str]:
    """The status, what was written, and the last result that the model was told."""
    written: list[str] = []
    gate = ApprovalGate(MemoryGrantStore(), timeout_s=timeout_s)
    rig = kernel(scripts, tools=[writing(written)], gate=gate)
    turns = Turns(rig.runtime, person)
    try:
        status = await asyncio.wait_for(turns.run("terminal/1", "go", reporter or RecordingReporter()), 10)
        told = [getattr(message, "content", "") for message in rig.provider.requests[-1].messages]
        return status, written, told[-1]
    finally:
        await turns.aclose()
        await rig.runtime.aclose()


async def test_each_call_is_a_question_of_its_own() -> None:
    person = Person(lambda approval: "deny" if approval.arguments["text"] == "b" else "once")
    status, written, _ = await turn(person, [call("a"), call("b"), call("c")], [Say("Done.")])
    assert status is TaskStatus.COMPLETED
    assert written == ["a", "c"]
    assert [approval.arguments["text"] for approval in person.asked] == ["a", "b", "c"]


async def test_where_nobody_can_be_asked_it_is_denied_at_once() -> None:
    status, written, told = await turn(None, [call("a"), call("b")], [Say("Then not.")])
    assert status is TaskStatus.COMPLETED
    assert written == []
    assert NOBODY.format(tool="write") in told


async def test_stop_at_a_question_ends_the_turn_and_nothing_runs() -> None:
    person = Person(lambda _: "stop")
    status, written, _ = await turn(person, [call("a"), call("b")], [Say("never")])
    assert status is TaskStatus.CANCELED
    assert written == []
    assert len(person.asked) == 1, "the second question is not asked any more"


async def test_a_question_that_nobody_answers_closes_and_the_screen_is_quiet_until_then() -> None:
    reporter = RecordingReporter()
    person = Person(lambda _: None, lambda: len(reporter.events))
    status, written, told = await turn(person, [call("a")], [Say("Too late.")], timeout_s=0.05, reporter=reporter)
    assert status is TaskStatus.COMPLETED
    assert written == []
    assert "in time" in told
    [(before, after)] = person.shown
    assert before == after, "nothing was written over the question"
    assert [event.seq for event in reporter.events] == list(range(1, len(reporter.events) + 1)), "and nothing is lost"


async def test_the_signal_ends_a_turn_whatever_it_is_doing() -> None:
    for script, person in (([Say("half"), Hang()], None), ([call("a")], Person(lambda _: None))):
        written: list[str] = []
        rig = kernel([script, [Say("Fine.")]], tools=[writing(written)])
        turns = Turns(rig.runtime, person)
        assert not turns.interrupt(), "there is nothing to stop yet"
        reporter = RecordingReporter()
        run = asyncio.get_running_loop().create_task(turns.run("terminal/1", "go", reporter))
        async with asyncio.timeout(5):
            while not {"model:delta", "approval:request"} & set(reporter.kinds):
                await asyncio.sleep(0.001)
        assert turns.interrupt()
        assert turns.interrupt(), "an impatient second time is harmless"
        assert await asyncio.wait_for(run, 5) is TaskStatus.CANCELED
        assert written == []
        assert await turns.run("terminal/1", "again", RecordingReporter()) is TaskStatus.COMPLETED
        await turns.aclose()
        await rig.runtime.aclose()


async def test_the_signal_before_there_is_a_task_counts() -> None:
    rig = kernel([[Say("x"), Hang()]])
    turns = Turns(rig.runtime, None)
    run = asyncio.get_running_loop().create_task(turns.run("terminal/1", "go", RecordingReporter()))
    await asyncio.sleep(0)
    assert turns.interrupt()
    assert await asyncio.wait_for(run, 5) is TaskStatus.CANCELED
    await turns.aclose()
    await rig.runtime.aclose()
