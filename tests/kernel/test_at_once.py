"""Moments at which two things happen at once around the end of a run, a question, and its answer."""

import asyncio

import pytest

from harness.events import ApprovalRequested
from harness.messages import AssistantMessage, UserMessage
from harness.providers.script import Call, Say
from harness.reporters.recording import RecordingReporter
from harness.status import TaskStatus
from harness.tools.base import tool
from tests.features.rig import Held, SlowSessions, bed, ended, the_end, until


def asking(done):
    @tool(policy="ask")
    async def write(text: str) -> str:
        """Write."""
        done.append(text)
        await asyncio.Event().wait()
        return text

    return write


async def test_cancel_of_a_task_that_waits_for_approval_ends_it():
    """Task.cancel says True ("there was something to stop") and nothing happens until the approval expires."""
    done = []
    async with bed([Call("write", '{"text": "a"}')], tools=[asking(done)]) as rig:
        task, reporter = await rig.start()
        await until(lambda: "approval:request" in reporter.kinds)
        assert task.cancel("enough")
        assert await asyncio.wait_for(task.wait(), 1) is TaskStatus.CANCELED


@pytest.mark.parametrize("which", ["the answer", "a turn with its results", "the question"])
async def test_the_session_is_not_given_away_before_its_write_is_through(which):
    """run:end comes, and the next turn starts, while the write of this one is still on its way."""
    held = Held()
    slow = {
        "the answer": lambda messages: isinstance(messages[0], AssistantMessage) and not messages[0].tool_calls,
        "a turn with its results": lambda messages: isinstance(messages[0], AssistantMessage),
        "the question": lambda messages: messages == [UserMessage("go")],
    }[which]

    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        return "seen"

    scripts = [[Say("All of it.")]] if which != "a turn with its results" else [[Call("look")]]
    async with bed(*scripts, [Say("Done.")], tools=[look], sessions=SlowSessions(held, slow)) as rig:
        task, _ = await rig.start()
        await asyncio.wait_for(held.entered.wait(), 5)
        task.cancel("enough")
        # Another turn of the same session, queued behind or started: whatever comes first.
        again, _ = await rig.start("next")
        await asyncio.sleep(0.2)
        assert not task.is_done, "the task is over, its write is not"
        held.go_on.set()
        await ended(task)
        await ended(again)
        kinds = [type(message).__name__ for message in await rig.log()]
        assert kinds[0] == "UserMessage"
        assert (await rig.log())[0] == UserMessage("go")


async def test_a_run_that_is_answered_while_its_question_is_being_shown_stays_known():
    """The reporter takes its time to post the question, and somebody answers at once."""
    held, done = Held(), []

    class Posting(RecordingReporter):
        async def emit(self, event):
            await super().emit(event)
            if isinstance(event, ApprovalRequested):
                await held.here()

    async with bed([Call("write", '{"text": "a"}')], tools=[asking(done)]) as rig:
        task, reporter = await rig.start(reporter=Posting())
        await asyncio.wait_for(held.entered.wait(), 5)
        [approval] = [e.approval for e in reporter.events if isinstance(e, ApprovalRequested)]
        deciding = asyncio.create_task(rig.runtime.decide(approval.id, "once", by="alice"))
        await asyncio.sleep(0.05)
        assert not done, "nothing runs while people are still being asked"
        held.go_on.set()
        await deciding
        await until(lambda: done)
        assert task in rig.runtime.live_tasks
        await rig.runtime.cancel_task("s", task.id, by="alice", reason="stop")
        assert await ended(task) is TaskStatus.CANCELED


async def test_nothing_follows_the_end_when_a_stop_comes_while_the_questions_are_being_shown():
    held, done = Held(), []

    class Posting(RecordingReporter):
        busy = 0

        async def emit(self, event):
            assert not self.busy, "two events at once"
            await super().emit(event)
            if isinstance(event, ApprovalRequested) and not held.entered.is_set():
                await held.here()

    calls = [Call("write", '{"text": "a"}'), Call("write", '{"text": "b"}')]
    async with bed(calls, tools=[asking(done)]) as rig:
        task, reporter = await rig.start(reporter=Posting())
        await asyncio.wait_for(held.entered.wait(), 5)
        stopping = asyncio.create_task(rig.runtime.cancel_task("s", task.id, by="alice", reason="stop"))
        await asyncio.sleep(0.05)
        held.go_on.set()
        await stopping
        await ended(task)
        await asyncio.sleep(0.05)
        the_end(reporter.events)
        assert not rig.runtime._parking._expiries, "a timer for a run that is over"


async def test_a_stop_that_was_taken_is_a_stop_also_at_the_last_step():
    """Task.cancel says True, `run:end` says completed and names who stopped it."""

    class AtLastStep(RecordingReporter):
        task = None
        taken = False

        async def emit(self, event):
            await super().emit(event)
            if event.kind == "step" and event.type == "finish":
                self.taken = self.task.cancel("enough", by="alice")

    async with bed([Say("All of it.")]) as rig:
        reporter = AtLastStep()
        task, _ = await rig.start(reporter=reporter)
        reporter.task = task
        await ended(task)
        end = the_end(reporter.events)
        assert (reporter.taken, end.status, end.stop_by) in [
            (True, TaskStatus.CANCELED, "alice"),
            (False, TaskStatus.COMPLETED, ""),
        ]
