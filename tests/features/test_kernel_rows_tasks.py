"""Feature rows S8, S10 to S13 and S16 as a user of the library sees them: tasks, events and stops."""

import asyncio
import io
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from harness.admission import InProcessAdmission, Origin
from harness.engine import Limits
from harness.events import Event, ModelDelta, ModelEnded, TaskStateChanged, ToolEnded, to_json
from harness.providers.script import Call, Fail, Hang, Say, Script
from harness.reporters.jsonl import JsonLinesReporter
from harness.reporters.recording import RecordingReporter
from harness.runtime import Refused, Started
from harness.status import StopReason, TaskStatus
from harness.task import Task
from harness.tools.base import Tool, tool
from harness.tools.builtin.calculator import calculator
from tests.features.rig import Bed, bed, ended, over, questions, the_end, until

CALCULATE: Script = [Say("Let me see."), Call("calculator", '{"expression": "2*(3+4)"}')]
ANSWER: Script = [Say("It "), Say("is "), Say("14.")]
WRITE: Script = [Call("write", '{"text": "a"}')]
HALF: Script = [Say("half"), Hang()]


def writing(written: list[str]) -> Tool:
    @tool(policy="ask")
    async def write(text: str) -> str:
        """Write something down."""
        written.append(text)
        return f"wrote {text}"

    return write


class WholeMessages:
    """Shows nothing of a stream, only what is complete: a surface for which streaming is no capability."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    async def emit(self, event: Event) -> None:
        if isinstance(event, ModelEnded) and event.text:
            self.shown.append(event.text)


@pytest.mark.parametrize("stream", [True, False])
async def test_s08_a_surface_that_cannot_stream_gets_each_message_whole(stream: bool) -> None:
    reporter = WholeMessages()
    async with bed(CALCULATE, ANSWER, tools=[calculator], limits=Limits(stream=stream)) as rig:
        await rig.runtime.run("s", "go", reporter)
    assert reporter.shown == ["Let me see.", "It is 14."]


async def test_s10_a_task_tells_all_about_itself_to_whoever_asks_whenever() -> None:
    async with bed(CALCULATE, ANSWER, tools=[calculator]) as rig:
        task, reporter = await rig.start("calc")
        assert (task.session_key, task.result, task.error, task.is_done) == ("s", "", None, False)

        async def read(after: int = 0) -> list[Event]:
            return [event async for event in task.events(after)]

        early = asyncio.create_task(read())
        waiters = [asyncio.create_task(task.wait()) for _ in range(3)]
        waiters[0].cancel()
        await until(lambda: "tool:start" in reporter.kinds)
        middle = asyncio.create_task(read(reporter.events[-1].seq))
        assert await ended(task) is TaskStatus.COMPLETED, "a waiter that gives up is not a stop"
        assert await asyncio.gather(*waiters[1:]) == [TaskStatus.COMPLETED] * 2
        assert await early == reporter.events
        late = await read()
        assert late == [event for event in reporter.events if not isinstance(event, ModelDelta)]
        assert (await middle)[-1] == late[-1] == task.end
        assert await read(after=late[-2].seq) == late[-1:]
        assert not task.cancel("too late")
        assert task.status is TaskStatus.COMPLETED


async def test_s10_clear_during_a_run_forgets_what_was_said_before() -> None:
    async with bed([Say("first")], [Say("second "), Say("half", 0.1)], [Say("third")]) as rig:
        await rig.run("my name is Ada")
        task, reporter = await rig.start("go on")
        await until(lambda: reporter.text)
        await rig.runtime.clear("s")
        assert await ended(task) is TaskStatus.COMPLETED
        await rig.run("what is my name?")
        assert "Ada" not in str(rig.server.requests[-1].messages)


# Every way in which a run can end: (script, what is done to it, status).
ENDS: dict[str, tuple[Script, Callable[[Bed, Task], Any], TaskStatus]] = {
    "completed": (ANSWER, lambda rig, task: None, TaskStatus.COMPLETED),
    "failed": ([Fail("auth", 401)], lambda rig, task: None, TaskStatus.FAILED),
    "canceled": (HALF, lambda rig, task: task.cancel(), TaskStatus.CANCELED),
    "interrupted": (HALF, lambda rig, task: task.cancel(stop=StopReason.INTERRUPTED), TaskStatus.INTERRUPTED),
    "timed out": (HALF, lambda rig, task: task.cancel(stop=StopReason.TIMEOUT), TaskStatus.TIMED_OUT),
    "its worker is killed": (HALF, lambda rig, task: task._worker and task._worker.cancel(), TaskStatus.INTERRUPTED),
}


@pytest.mark.parametrize("end", ENDS)
async def test_s11_whatever_way_a_run_ends_the_session_is_free_at_once(end: str) -> None:
    script, act, status = ENDS[end]
    async with bed(script, ANSWER, admission=InProcessAdmission(busy_policy="reject")) as rig:
        task, reporter = await rig.start()
        if script is HALF:
            await until(lambda: reporter.text)
            assert await rig.runtime.start("s", "me too") == Refused("busy")
        act(rig, task)
        await task.wait()
        assert task.status is status
        # No turn of the event loop in between: after `wait` the session is free, not soon.
        outcome = await rig.runtime.start("s", "next")
        assert isinstance(outcome, Started), outcome
        assert await ended(outcome.task) is TaskStatus.COMPLETED


async def test_s12_a_task_goes_through_its_states_and_a_denial_is_a_result() -> None:
    written: list[str] = []
    seen: set[TaskStatus] = set()
    async with bed(HALF, WRITE, ANSWER, tools=[writing(written)], limits=Limits(run_timeout_s=30)) as rig:
        first, first_events = await rig.start("first")
        await until(lambda: first_events.text)
        second, events = await rig.start("second")
        seen |= {first.status or TaskStatus.FAILED, second.status or TaskStatus.FAILED}
        first.cancel()
        await until(lambda: questions(events.events))
        assert second.status is TaskStatus.WAITING_APPROVAL
        [approval] = questions(events.events)
        await rig.runtime.decide(approval.id, "deny", by="bob")
        assert await ended(second) is TaskStatus.COMPLETED, "a denial ends no task"
        steps = [(e.from_, e.to) for e in events.events if isinstance(e, TaskStateChanged)]
        assert [str(to) for _, to in steps] == ["queued", "running", "waiting_approval", "running", "completed"]
        assert all(step[0] is before[1] for before, step in itertools.pairwise(steps)), "without a gap"
        [denied] = [event for event in events.events if isinstance(event, ToolEnded)]
        assert denied.is_error
        assert "bob" in denied.result
        assert written == []
    assert seen == {TaskStatus.RUNNING, TaskStatus.QUEUED}


async def test_s13_reporter_reader_and_remote_lines_see_the_same_events() -> None:
    out = io.StringIO()

    class Both(RecordingReporter):
        lines = JsonLinesReporter(out)

        async def emit(self, event: Event) -> None:
            await super().emit(event)
            await self.lines.emit(event)

    async with bed([Fail("overloaded", 503, retry_after=0.0)], CALCULATE, ANSWER, tools=[calculator]) as rig:
        task, reporter = await rig.start(reporter=Both())
        read = [event async for event in task.events()]
    assert read == reporter.events
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert lines == [json.loads(json.dumps(to_json(event))) for event in read]
    assert {line["task_id"] for line in lines} == {task.id}
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    kinds = {line["kind"] for line in lines}
    assert {"run:start", "model:retry", "model:delta", "tool:start", "tool:end", "step", "usage", "run:end"} <= kinds


# All the ways to stop a run: (how, status, who is named).
WAYS: dict[str, tuple[Callable[[Bed, Task], Awaitable[object] | object], TaskStatus, str]] = {
    "Ctrl-C": (lambda rig, task: rig.runtime.cancel_task("s", task.id, by="", reason="Ctrl-C"),
               TaskStatus.CANCELED, ""),
    "a Stop button": (lambda rig, task: rig.runtime.cancel_task("s", task.id, by="alice", reason="stop"),
                      TaskStatus.CANCELED, "alice"),
    "a recall": (lambda rig, task: rig.runtime.cancel_message("s", "m1", by="bob", reason="recalled"),
                 TaskStatus.CANCELED, "bob"),
    "the task itself": (lambda rig, task: task.cancel("enough", by="carol"), TaskStatus.CANCELED, "carol"),
    "the deadline": (lambda rig, task: None, TaskStatus.TIMED_OUT, ""),
    "a shutdown": (lambda rig, task: rig.runtime.aclose(), TaskStatus.INTERRUPTED, ""),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
async def test_s16_every_way_to_stop_is_one_and_the_same(way: str) -> None:
    stop, status, by = WAYS[way]
    async with bed(HALF, limits=Limits(run_timeout_s=0.8 if way == "the deadline" else 60)) as rig:
        reporter = RecordingReporter()
        outcome = await rig.runtime.start("s", "go", reporter, origin=Origin(message_id="m1"))
        assert isinstance(outcome, Started)
        await until(lambda: reporter.text or outcome.task.is_done)
        done = stop(rig, outcome.task)
        if isinstance(done, Awaitable):
            await done
        assert await ended(outcome.task) is status
        end = the_end(reporter.events)
        assert (end.answer, end.stop_by, end.error) == ("half", by, None)
        await over(rig.server.requests[0])
        assert rig.server.requests[0].closed_by_client
        said = (await rig.log())[-1]
        assert getattr(said, "text", "") == "half", "what was shown is kept"
