"""Approvals: a call that needs a person parks the run; the answer, from anywhere, sets it going again once."""

import asyncio
from typing import Any

import pytest

from harness.admission import InProcessAdmission, Origin
from harness.approval import Approval, Decision, digest_of
from harness.engine import Limits
from harness.events import ApprovalDecided, ApprovalRequested, RunEnded, TaskStateChanged
from harness.gate import ApprovalGate
from harness.history import prepare_history
from harness.messages import ToolResult, UserMessage
from harness.providers.script import Call, Hang, Say, Script
from harness.reporters.recording import RecordingReporter
from harness.runtime import Queued, Started
from harness.status import StopReason, TaskStatus
from harness.stores.memory import MemoryGrantStore
from harness.task import Task
from harness.testing import FakeClock
from harness.tools.base import Tool, tool
from tests.kernel.rig import Kernel, kernel

DONE: Script = [Say("Done.")]


class Desk:
    """A tool with side effects, and what was written with it."""

    def __init__(self) -> None:
        self.written: list[str] = []

        @tool(policy="ask")
        async def write(text: str) -> str:
            """Write something down."""
            self.written.append(text)
            return f"wrote {text}"

        @tool(read_only=True)
        async def look() -> str:
            """Look around."""
            self.written.append("(looked)")
            return "nothing"

        self.tools: list[Tool] = [write, look]


def write_call(text: str) -> Call:
    return Call("write", f'{{"text": "{text}"}}')


def rig_with(desk: Desk, *scripts: Script, **options: Any) -> Kernel:
    return kernel(scripts, tools=desk.tools, **options)


async def asked(reporter: RecordingReporter, count: int = 1) -> list[Approval]:
    async with asyncio.timeout(5):
        while len(found := [e.approval for e in reporter.events if isinstance(e, ApprovalRequested)]) < count:
            await asyncio.sleep(0.001)
    return found


async def ended(task: Task) -> TaskStatus:
    return await asyncio.wait_for(task.wait(), 5)


async def test_a_call_that_needs_permission_parks_the_run_and_runs_once_after_the_answer() -> None:
    desk = Desk()
    rig = rig_with(desk, [Say("I will."), Call("look"), write_call("a")], DONE)
    task, reporter = await rig.start("write a")
    [approval] = await asked(reporter)
    assert task.status is TaskStatus.WAITING_APPROVAL
    assert (approval.tool, approval.arguments, len(approval.code)) == ("write", {"text": "a"}, 6)
    assert desk.written == [], "nothing of the turn has run, not even what needs no permission"
    assert [t for t in asyncio.all_tasks() if t.get_name().startswith("task ")] == [], "parked, not held"
    decided = await rig.runtime.decide(approval.id, "once", by="alice")
    assert decided is not None
    assert await ended(task) is TaskStatus.COMPLETED
    assert desk.written == ["(looked)", "a"]
    assert task.result == "I will.\n\nDone."
    states = [(e.from_, e.to) for e in reporter.events if isinstance(e, TaskStateChanged)]
    assert states == [
        (None, TaskStatus.RUNNING),
        (TaskStatus.RUNNING, TaskStatus.WAITING_APPROVAL),
        (TaskStatus.WAITING_APPROVAL, TaskStatus.RUNNING),
        (TaskStatus.RUNNING, TaskStatus.COMPLETED),
    ]
    [event] = [e for e in reporter.events if isinstance(e, ApprovalDecided)]
    assert (event.decision, event.by) == ("once", "alice")
    await rig.runtime.aclose()


async def test_of_many_answers_one_counts() -> None:
    desk = Desk()
    rig = rig_with(desk, [write_call("a")], DONE)
    task, reporter = await rig.start("go")
    [approval] = await asked(reporter)
    answers: list[Decision] = ["once", "deny", "always", "session"] * 5
    outcomes = await asyncio.gather(*(rig.runtime.decide(approval.id, answer, by="x") for answer in answers))
    assert len([outcome for outcome in outcomes if outcome is not None]) == 1
    await ended(task)
    assert desk.written == ["a"]
    assert await rig.runtime.decide(approval.id, "once", by="late") is None
    await rig.runtime.aclose()


async def test_a_denial_is_a_result_and_the_run_goes_on() -> None:
    desk = Desk()
    rig = rig_with(desk, [write_call("a")], DONE)
    task, reporter = await rig.start("go")
    [approval] = await asked(reporter)
    await rig.runtime.decide(approval.id, "deny", by="bob")
    assert await ended(task) is TaskStatus.COMPLETED
    assert desk.written == []
    result = rig.provider.requests[-1].messages[-1]
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert "Denied by bob" in result.content
    await rig.runtime.aclose()


async def test_several_calls_wait_for_all_their_answers() -> None:
    desk = Desk()
    rig = rig_with(desk, [write_call("a"), write_call("b"), write_call("c")], DONE)
    task, reporter = await rig.start("go")
    first, second, third = await asked(reporter, 3)
    await rig.runtime.decide(third.id, "once", by="x")
    await rig.runtime.decide(first.id, "once", by="x")
    assert task.status is TaskStatus.WAITING_APPROVAL
    await rig.runtime.decide(second.id, "deny", by="x")
    await ended(task)
    assert desk.written == ["a", "c"], "in the order of the calls"
    await rig.runtime.aclose()


async def test_a_grant_covers_the_same_call_by_the_same_person_and_nothing_else() -> None:
    desk = Desk()
    rig = rig_with(
        desk, [write_call("a")], DONE, [write_call("a")], DONE, [write_call("b")], DONE, [write_call("a")], DONE
    )
    alice, bob = Origin(requester="alice"), Origin(requester="bob")

    async def run(origin: Origin, answer: Decision | None, session: str = "chat/one") -> bool:
        """Whether a person was asked."""
        reporter = RecordingReporter()
        outcome = await rig.runtime.start(session, "go", reporter, origin=origin)
        assert isinstance(outcome, Started)
        if answer is not None:
            [approval] = await asked(reporter)
            await rig.runtime.decide(approval.id, answer, by="admin")
        await ended(outcome.task)
        return any(isinstance(e, ApprovalRequested) for e in reporter.events)

    assert await run(alice, "session")
    assert not await run(alice, None)
    assert await run(alice, "deny"), "other arguments"
    assert await run(bob, "deny"), "another person"
    gate = rig.runtime.gate
    [grant] = await gate.grants.list(now=0.0)
    assert (grant.tool, grant.user, grant.granted_by) == ("write", "alice", "admin")
    assert await gate.grants.revoke(grant.id)
    assert not await gate.grants.revoke(grant.id)
    assert await gate.grants.list(now=0.0) == []
    await rig.runtime.aclose()


async def test_a_grant_for_the_session_ends_with_it_and_one_for_always_does_not() -> None:
    grants = MemoryGrantStore()
    clock = FakeClock()
    gate = ApprovalGate(grants, now=clock)
    approval = Approval("i", "c", "t", {}, 0.0, session_key="chat/one", requester="alice", digest="d")
    await gate.remember(approval, "once", "x")
    assert await grants.list(now=0.0) == []

    async def covered(session: str, user: str = "alice") -> bool:
        chat = session.partition("/")[0]
        return await grants.find("d", chat=chat, user=user, session_key=session, now=clock()) is not None

    await gate.remember(approval, "session", "x")
    assert await covered("chat/one")
    assert not await covered("chat/two")
    await gate.remember(approval, "always", "x")
    assert await covered("chat/two")
    assert not await covered("other/one")
    assert not await covered("chat/two", "bob")
    clock.advance(31 * 24 * 3600)
    assert not await covered("chat/two")


async def test_nobody_answers_in_time() -> None:
    desk = Desk()
    gate = ApprovalGate(MemoryGrantStore(), timeout_s=0.05)
    rig = kernel([[write_call("a")], DONE], tools=desk.tools, gate=gate)
    task, reporter = await rig.start("go")
    [approval] = await asked(reporter)
    assert await ended(task) is TaskStatus.COMPLETED
    assert desk.written == []
    told = rig.provider.requests[-1].messages[-1]
    assert isinstance(told, ToolResult)
    assert "in time" in told.content
    assert await rig.runtime.decide(approval.id, "once", by="late") is None
    await rig.runtime.aclose()


async def test_an_answer_that_comes_when_the_time_is_up_is_too_late() -> None:
    desk, clock = Desk(), FakeClock()
    gate = ApprovalGate(MemoryGrantStore(), timeout_s=600, now=clock)
    rig = kernel([[write_call("a")], DONE], tools=desk.tools, gate=gate, now=clock)
    task, reporter = await rig.start("go")
    [approval] = await asked(reporter)
    assert approval.expires_at == clock.advance(599) + 1
    clock.advance(1)
    assert await rig.runtime.decide(approval.id, "once", by="late") is None
    assert task.status is TaskStatus.WAITING_APPROVAL
    await rig.runtime.aclose()
    assert desk.written == []


async def test_the_clock_of_the_run_stands_while_it_waits() -> None:
    desk = Desk()
    rig = rig_with(desk, [write_call("a")], DONE, limits=Limits(run_timeout_s=0.3))
    task, reporter = await rig.start("go")
    [approval] = await asked(reporter)
    await asyncio.sleep(0.4)
    await rig.runtime.decide(approval.id, "once", by="x")
    assert await ended(task) is TaskStatus.COMPLETED
    await rig.runtime.aclose()


async def test_a_message_that_comes_meanwhile_waits_and_runs_afterwards() -> None:
    desk = Desk()
    rig = rig_with(desk, [write_call("a")], DONE, DONE)
    task, reporter = await rig.start("go")
    [approval] = await asked(reporter)
    outcome = await rig.runtime.start("s", "next")
    assert isinstance(outcome, Queued)
    await rig.runtime.decide(approval.id, "once", by="x")
    await ended(task)
    assert await ended(outcome.task) is TaskStatus.COMPLETED
    assert rig.provider.requests[-1].messages[-1] == UserMessage("next")
    await rig.runtime.aclose()


@pytest.mark.parametrize("how", ["stop", "recall", "shutdown"])
async def test_a_waiting_run_can_be_ended_and_its_call_never_runs(how: str) -> None:
    desk = Desk()
    rig = rig_with(desk, [Say("I will."), write_call("a")], DONE)
    reporter = RecordingReporter()
    outcome = await rig.runtime.start("s", "go", reporter, origin=Origin(message_id="m1"))
    assert isinstance(outcome, Started)
    [approval] = await asked(reporter)
    match how:
        case "stop":
            await rig.runtime.cancel_task("s", outcome.task.id, by="alice", reason="stop")
        case "recall":
            await rig.runtime.cancel_message("s", "m1", by="", reason="recalled")
        case _:
            await rig.runtime.aclose()
    status = await ended(outcome.task)
    assert status is (TaskStatus.INTERRUPTED if how == "shutdown" else TaskStatus.CANCELED)
    assert outcome.task.result == "I will."
    assert desk.written == []
    assert await rig.runtime.decide(approval.id, "once", by="late") is None
    assert len([e for e in reporter.events if isinstance(e, RunEnded)]) == 1
    if how != "shutdown":
        again, _ = await rig.run("and now?")
        assert again.status is TaskStatus.COMPLETED
        sent = rig.provider.requests[-1].messages
        assert list(sent) == prepare_history(sent)
    await rig.runtime.aclose()


async def test_a_cancel_while_the_run_is_being_parked_is_not_lost() -> None:
    desk = Desk()

    class Slow(InProcessAdmission):
        async def park(self, lease: Any) -> None:
            entered.set()
            await go_on.wait()
            await super().park(lease)

    entered, go_on = asyncio.Event(), asyncio.Event()
    rig = rig_with(desk, [write_call("a")], DONE, admission=Slow())
    task, _ = await rig.start("go")
    await asyncio.wait_for(entered.wait(), 5)
    task.cancel("enough", by="alice")
    go_on.set()
    assert await ended(task) is TaskStatus.CANCELED
    assert desk.written == []
    await rig.runtime.aclose()


async def test_what_policy_refuses_does_not_run_and_nobody_is_asked() -> None:
    desk = Desk()
    gate = ApprovalGate(MemoryGrantStore(), overrides={"write": "deny"})
    rig = kernel([[write_call("a"), Call("look")], DONE], tools=desk.tools, gate=gate)
    task, reporter = await rig.run("go")
    assert task.status is TaskStatus.COMPLETED
    assert desk.written == ["(looked)"]
    assert "approval:request" not in reporter.kinds


async def test_three_denials_in_a_row_end_the_run() -> None:
    desk = Desk()
    rig = rig_with(desk, *[[write_call(str(n))] for n in range(5)])
    task, reporter = await rig.start("go")
    for n in range(3):
        approvals = await asked(reporter, n + 1)
        await rig.runtime.decide(approvals[n].id, "deny", by="x")
    assert await ended(task) is TaskStatus.FAILED
    assert task.error is not None
    assert task.error.kind == "tool"
    assert task.end is not None
    assert task.end.stop_reason is StopReason.FAILED
    await rig.runtime.aclose()


async def test_the_same_failing_call_gets_a_reminder_and_then_an_end() -> None:
    rig = kernel([[Call("calculator", '{"expression": "1/0"}')]] * 6)
    task, _ = await rig.run("go")
    assert task.error is not None
    assert task.error.kind == "tool"
    results = [m.content for m in rig.provider.requests[-1].messages if isinstance(m, ToolResult)]
    assert [("several times" in content) for content in results] == [False, False, True]


async def test_other_calls_in_between_start_the_count_anew() -> None:
    failing, fine = [Call("calculator", '{"expression": "1/0"}')], [Call("calculator", '{"expression": "1"}')]
    rig = kernel([failing, failing, fine, failing, failing, DONE])
    task, _ = await rig.run("go")
    assert task.status is TaskStatus.COMPLETED


def test_a_digest_minds_tool_schema_and_arguments_but_not_their_order() -> None:
    digest = digest_of("t", {"type": "object"}, {"a": 1, "b": [1, 2]})
    assert digest == digest_of("t", {"type": "object"}, {"b": [1, 2], "a": 1})
    others = [
        digest_of("u", {"type": "object"}, {"a": 1, "b": [1, 2]}),
        digest_of("t", {"type": "object", "x": 1}, {"a": 1, "b": [1, 2]}),
        digest_of("t", {"type": "object"}, {"a": 1, "b": [2, 1]}),
        digest_of("t", {"type": "object"}, {"a": "1", "b": [1, 2]}),
    ]
    assert len({digest, *others}) == 5


async def test_a_held_run_elsewhere_is_untouched_by_the_parked_one() -> None:
    desk = Desk()
    rig = rig_with(desk, [write_call("a")], [Say("x"), Hang()], DONE)
    waiting, waiting_events = await rig.start("go", "one")
    [approval] = await asked(waiting_events)
    other, _ = await rig.start("talk", "two")
    await rig.runtime.decide(approval.id, "once", by="x")
    assert await ended(waiting) is TaskStatus.COMPLETED
    assert not other.is_done
    other.cancel()
    await ended(other)
    await rig.runtime.aclose()
