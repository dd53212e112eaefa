"""A real process killed after each commit of a run with everything in it; then another comes, over the same database.

Whatever the moment: nothing with an effect has happened twice, the conversation is valid, the task has one end, and the
next request is answered.
"""

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness.admission import Admitted
from harness.events import RunEnded
from harness.history import prepare_history
from harness.messages import AssistantMessage, Message, ToolResult, UserMessage
from harness.providers.script import Say, Script
from harness.runtime import Started
from harness.status import TaskStatus
from harness.stores.base import ParkedRun
from harness.stores.records import CALL_STEPS
from tests.recovery.kernel import PROMPT, SCRIPT, SESSION, Kernel, marks, opened

ROOT = Path(__file__).parents[2]
NEXT: Script = [Say("Here I am again.")]


class Dying:
    """The server of `tests.recovery.dying`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    async def run(self, folder: Path, last: int) -> tuple[bool, int, bool]:
        """Whether the run had begun, how many commits there were, and whether it was killed."""
        self._in.write(f"{last} {folder}\n".encode())
        begun, commits, end = (await asyncio.wait_for(self._out.readline(), 30)).decode().split()
        return begun == "begun", int(commits), end == "killed"


@asynccontextmanager
async def dying() -> AsyncIterator[Dying]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.recovery.dying"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        yield Dying(process)
    finally:
        process.kill()
        await process.communicate()


def flaws(history: Sequence[Message]) -> list[str]:
    """What a provider would refuse: a call without its result right behind it, a result without a call."""
    found: list[str] = []
    waiting: list[str] = []
    for message in history:
        if isinstance(message, ToolResult):
            if message.call_id not in waiting:
                found.append(f"a result of nothing: {message}")
            waiting = [call_id for call_id in waiting if call_id != message.call_id]
            continue
        if waiting:
            found.append(f"no result before {message}")
        waiting = [call.id for call in message.tool_calls] if isinstance(message, AssistantMessage) else []
    return found + [f"no result at the end: {call_id}" for call_id in waiting]


async def taken_over(kernel: Kernel, *, begun: bool) -> None:
    """What the sweeper of the next process does with a run whose lease is gone."""
    for record in await kernel.stores.tasks.unfinished():
        admitted = await kernel.admission.admit(record.run, secrets.token_hex(8))
        assert isinstance(admitted, Admitted)
        await kernel.runtime.take_over(record.run, admitted.lease, begun=begun)
    await kernel.runtime.sweep()


async def answered_by_people(kernel: Kernel) -> bool:
    """Somebody answers what still waits; whether anything did."""
    parked: list[ParkedRun] = []
    for record in await kernel.stores.tasks.unfinished():
        if (waits := await kernel.stores.parking.parked(record.id)) is not None:
            parked.append(waits)
            for approval in waits.approvals:
                await kernel.runtime.decide(approval.id, "once", by="bob")
    return bool(parked)


async def at_rest(kernel: Kernel) -> None:
    async with asyncio.timeout(20):
        while await kernel.stores.tasks.unfinished():
            await asyncio.sleep(0.01)


async def check(folder: Path, *, begun: bool, last: int) -> str:
    scripts = SCRIPT if not begun else SCRIPT[2:]
    async with opened(folder, *scripts, NEXT) as kernel:
        before = await kernel.stores.tasks.of_session(SESSION)
        await taken_over(kernel, begun=begun)
        if not begun:
            while not await answered_by_people(kernel):
                await asyncio.sleep(0.01)
        else:
            await answered_by_people(kernel)
        await at_rest(kernel)
        done = marks(folder)
        assert len(done) == len(set(done)), "something with an effect has happened twice"
        (task,) = await kernel.stores.tasks.of_session(SESSION)
        assert len(before) <= 1
        assert task.status.is_terminal
        if task.status is TaskStatus.COMPLETED:
            assert done == ["one", "two"]
        events = await kernel.stores.traces.read(task.id)
        assert [event.seq for event in events] == sorted({event.seq for event in events})
        ends = [event for event in events if isinstance(event, RunEnded)]
        assert [end.status for end in ends] == [task.status]
        for call in await kernel.stores.journal.of_task(task.id):
            assert not CALL_STEPS[call.state], f"{call.call.name} is left as {call.state}"
        log = (await kernel.stores.sessions.load(SESSION)).messages
        assert next(m.text for m in log if isinstance(m, UserMessage)) == PROMPT
        assert [m.text for m in log if isinstance(m, UserMessage)].count(PROMPT) == 1
        assert flaws(prepare_history(log)) == []
        outcome = await kernel.runtime.run(SESSION, "Are you there?")
        assert isinstance(outcome, Started)
        assert outcome.task.status is TaskStatus.COMPLETED, f"after commit {last}: {outcome.task.error}"
        asked = kernel.provider.requests[-1].messages
        assert flaws(asked) == []
        return task.status


@pytest.mark.timeout(120)
async def test_a_kill_after_any_commit_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    async with dying() as processes:
        whole = tmp_path / "whole"
        whole.mkdir()
        begun, commits, killed = await processes.run(whole, 0)
        assert (begun, killed, marks(whole)) == (True, False, ["one", "two"])
        assert commits > 20
        ends: dict[int, str] = {}
        for last in range(1, commits + 1):
            folder = tmp_path / str(last)
            folder.mkdir()
            begun, reached, killed = await processes.run(folder, last)
            assert (reached, killed) == (last, True)
            ends[last] = await check(folder, begun=begun, last=last)
    assert {TaskStatus.INTERRUPTED, TaskStatus.COMPLETED} == set(ends.values())
