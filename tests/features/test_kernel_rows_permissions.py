"""Feature row S22, and S14 in the library: who is asked, what an answer is good for, and for how long."""

import time
from dataclasses import dataclass, replace

import pytest

from harness.admission import Origin
from harness.approval import Decision, Policy
from harness.gate import ApprovalGate
from harness.messages import ToolResult
from harness.providers.script import Call, Say, Script
from harness.reporters.recording import RecordingReporter
from harness.runtime import Queued, Started
from harness.status import TaskStatus
from harness.stores.memory import MemoryGrantStore
from harness.tools.base import Tool, tool
from tests.features.rig import bed, ended, questions, until

ANSWER: Script = [Say("Done.")]
HOUR = 3600.0


def noting(noted: list[str]) -> Tool:
    @tool(name="note", policy="ask")
    async def note(text: str, to: str = "me") -> str:
        """Note something."""
        noted.append(f"{text} to {to}")
        return "noted"

    return note


def noting_more(noted: list[str]) -> Tool:
    @tool(name="note", policy="ask")
    async def note(text: str, to: str = "me", loudly: bool = False) -> str:
        """Note something."""
        noted.append(f"{text} to {to} {loudly}")
        return "noted"

    return note


@dataclass(frozen=True)
class Asking:
    """One call of `note`: by whom, where, when, and with what."""

    session: str = "chat/1"
    user: str = "alice"
    arguments: str = '{"text": "a", "to": "bob"}'
    later_s: float = 0.0
    changed: bool = False


async def asked(grants: MemoryGrantStore, how: Asking, answer: Decision = "deny") -> bool:
    """Run the call in a kernel of its own with these standing permissions; whether a person was asked."""
    noted: list[str] = []
    gate = ApprovalGate(grants, now=lambda: time.time() + how.later_s)
    made = noting_more(noted) if how.changed else noting(noted)
    async with bed([Call("note", how.arguments)], ANSWER, tools=[made], gate=gate) as rig:
        reporter = RecordingReporter()
        outcome = await rig.runtime.start(how.session, "go", reporter, origin=Origin(requester=how.user))
        assert isinstance(outcome, Started)
        await until(lambda: questions(reporter.events) or outcome.task.is_done)
        for approval in questions(reporter.events):
            assert noted == [], "nothing runs before the answer"
            assert await rig.runtime.decide(approval.id, answer, by="admin")
        assert await ended(outcome.task) is TaskStatus.COMPLETED
        was_asked = bool(questions(reporter.events))
        assert len(noted) == (0 if was_asked and answer == "deny" else 1)
        return was_asked


SAME = Asking()
# What the second call is like, and after which answers to the first nobody is asked about it.
SECOND: dict[str, tuple[Asking, set[Decision]]] = {
    "the same": (SAME, {"session", "always"}),
    "its arguments in another order": (replace(SAME, arguments='{"to":"bob","text":"a"}'), {"session", "always"}),
    "other arguments": (replace(SAME, arguments='{"text": "a", "to": "eve"}'), set()),
    "fewer arguments": (replace(SAME, arguments='{"text": "a"}'), set()),
    "in another conversation of the chat": (replace(SAME, session="chat/2"), {"always"}),
    "in another chat": (replace(SAME, session="other/1"), set()),
    "for another person": (replace(SAME, user="bob"), set()),
    "a day and an hour later": (replace(SAME, later_s=25 * HOUR), {"always"}),
    "31 days later": (replace(SAME, later_s=31 * 24 * HOUR), set()),
    "after the tool has changed": (replace(SAME, changed=True), set()),
}
ANSWERS: list[Decision] = ["once", "session", "always", "deny"]


@pytest.mark.parametrize("case", SECOND)
async def test_s22_a_permission_covers_just_what_was_permitted(case: str) -> None:
    second, quiet_after = SECOND[case]
    for answer in ANSWERS:
        grants = MemoryGrantStore()
        assert await asked(grants, SAME, answer)
        assert await asked(grants, second) == (answer not in quiet_after), answer


async def test_s22_a_permission_is_listed_until_it_is_taken_back() -> None:
    grants = MemoryGrantStore()
    assert await asked(grants, SAME, "always")
    [grant] = await grants.list(now=time.time(), chat="chat", user="alice")
    assert (grant.tool, dict(grant.arguments), grant.granted_by) == ("note", {"text": "a", "to": "bob"}, "admin")
    assert await grants.list(now=time.time(), chat="chat", user="bob") == []
    assert not await asked(grants, SAME)
    assert await grants.revoke(grant.id)
    assert await asked(grants, SAME), "asked again"
    assert await grants.list(now=time.time()) == []


@pytest.mark.parametrize(("policy", "runs", "is_asked"), [("allow", 1, 0), ("ask", 1, 1), ("deny", 0, 0)])
async def test_s22_policy_comes_first(policy: Policy, runs: int, is_asked: int) -> None:
    noted: list[str] = []
    gate = ApprovalGate(MemoryGrantStore(), overrides={"note": policy})
    async with bed([Call("note", '{"text": "a"}')], ANSWER, tools=[noting(noted)], gate=gate) as rig:
        task, reporter = await rig.start()
        await until(lambda: questions(reporter.events) or task.is_done)
        for approval in questions(reporter.events):
            await rig.runtime.decide(approval.id, "once", by="admin")
        assert await ended(task) is TaskStatus.COMPLETED
        assert (len(noted), len(questions(reporter.events))) == (runs, is_asked)
        [result] = [message for message in await rig.log() if isinstance(message, ToolResult)]
        assert result.is_error == (policy == "deny")


async def test_s22_a_question_that_nobody_answers_is_a_denial_and_cannot_be_answered_any_more() -> None:
    noted: list[str] = []
    gate = ApprovalGate(MemoryGrantStore(), timeout_s=0.1)
    async with bed([Call("note", '{"text": "a"}')], ANSWER, tools=[noting(noted)], gate=gate) as rig:
        task, reporter = await rig.start()
        assert await ended(task) is TaskStatus.COMPLETED
        [approval] = questions(reporter.events)
        for decision in ANSWERS:
            assert await rig.runtime.decide(approval.id, decision, by="late") is None
        assert noted == []
        assert "permission in time" in str(rig.server.requests[-1].messages[-1]["content"])


async def test_s14_while_a_run_waits_for_an_answer_a_message_is_a_message() -> None:
    noted: list[str] = []
    async with bed([Call("note", '{"text": "a"}')], ANSWER, [Say("You said yes.")], tools=[noting(noted)]) as rig:
        task, reporter = await rig.start()
        await until(lambda: questions(reporter.events))
        [approval] = questions(reporter.events)
        outcome = await rig.runtime.start("s", "yes, once, always, y")
        assert isinstance(outcome, Queued)
        assert task.status is TaskStatus.WAITING_APPROVAL
        assert len(rig.server.requests) == 1
        await rig.runtime.decide(approval.id, "deny", by="admin")
        assert await ended(task) is TaskStatus.COMPLETED
        await ended(outcome.task)
        assert (outcome.task.result, noted) == ("You said yes.", [])
