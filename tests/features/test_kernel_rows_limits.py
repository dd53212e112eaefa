"""Feature rows S20, S21 and S24 as a user of the library sees them: failures, retries and limits."""

import asyncio
from typing import Any

import pytest

from harness.engine import Limits
from harness.errors import ERROR_KINDS, ErrorKind, ToolError
from harness.events import Event, ModelRetrying, ToolEnded
from harness.providers.script import Call, Cut, Fail, Hang, Say, Script
from harness.reporters.recording import RecordingReporter
from harness.status import StopReason, TaskStatus
from harness.tools.base import Tool, tool
from harness.tools.builtin.calculator import calculator
from tests.features.rig import OnlyForward, bed, collapsed, over, the_end

CALCULATE: Script = [Say("Let me see."), Call("calculator", '{"expression": "2*(3+4)"}')]
ANSWER: Script = [Say("It "), Say("is "), Say("14.")]


async def test_s20_each_retry_waits_as_long_as_it_says() -> None:
    async with bed(
        [Fail("overloaded", 503)], [Fail("rate_limit", 429, retry_after=0.3)], ANSWER
    ) as rig:  # fmt: skip
        task, reporter = await rig.run()
        assert task.result == "It is 14."
        waits = [event for event in reporter.events if isinstance(event, ModelRetrying)]
        assert [(event.attempt, event.reason) for event in waits] == [(1, "overloaded"), (2, "rate_limit")]
        sent = [record.started_at for record in rig.server.requests]
        for wait, before, after in zip(waits, sent, sent[1:], strict=False):
            assert after - before >= wait.delay_s - 0.01


# What ends a run by itself: (script of the model, limits, status, stop reason, error kind).
ENDINGS: dict[str, tuple[Script, Limits, TaskStatus, StopReason, ErrorKind | None]] = {
    "no first word": ([Hang()], Limits(first_delta_timeout_s=0.1, model_retries=0),
                      TaskStatus.FAILED, StopReason.FAILED, "timeout"),
    "silence": ([Say("a"), Hang()], Limits(idle_timeout_s=0.1, model_retries=0),
                TaskStatus.FAILED, StopReason.FAILED, "timeout"),
    "no time": ([Say("a"), Hang()], Limits(run_timeout_s=0.2), TaskStatus.TIMED_OUT, StopReason.TIMEOUT, None),
    "turns": (CALCULATE, Limits(max_turns=2), TaskStatus.FAILED, StopReason.MAX_TURNS, "max_turns"),
    "calls": (CALCULATE, Limits(max_tool_calls=1), TaskStatus.FAILED, StopReason.BUDGET, "budget"),
    "a bad key": ([Fail("auth", 401)], Limits(), TaskStatus.FAILED, StopReason.FAILED, "auth"),
}  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
async def test_s20_every_limit_and_failure_has_its_status_reason_and_kind(ending: str) -> None:
    script, limits, status, reason, kind = ENDINGS[ending]
    async with bed(answer=lambda _: script, tools=[calculator], limits=limits) as rig:
        task, reporter = await rig.run(reporter=OnlyForward())
        end = the_end(reporter.events)
        assert (end.status, end.stop_reason) == (status, reason)
        assert (end.error.kind if end.error else None) == kind
        if end.error is not None:
            assert end.error.message.endswith("."), "one sentence for people"
            assert ERROR_KINDS[end.error.kind].retryable == (kind == "timeout")
        for record in rig.server.requests:
            await over(record)
        assert rig.server.open_streams == 0
        assert task.error == end.error


async def test_s20_a_tool_has_a_time_of_its_own_and_the_run_goes_on() -> None:
    stopped: list[str] = []

    def slow(name: str, timeout_s: float | None) -> Tool:
        @tool(name=name, timeout_s=timeout_s, read_only=True)
        async def wait() -> str:
            """Wait."""
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(name)
            return ""

        return wait

    async with bed([Call("own"), Call("general")], ANSWER, tools=[slow("own", 0.05), slow("general", None)]) as rig:
        rig.runtime._engine._executor._timeout_s = 0.1
        task, reporter = await rig.run()
        assert task.result == "It is 14."
        results = {event.name: event.result for event in reporter.events if isinstance(event, ToolEnded)}
        assert ("0.05 s" in results["own"], "0.1 s" in results["general"]) == (True, True)
        assert sorted(stopped) == ["general", "own"]


@pytest.mark.parametrize("broken", [Cut(), Fail("overloaded", 500)])
async def test_s21_a_half_answer_is_never_followed_by_a_second_one_behind_it(broken: Any) -> None:
    half: Script = [Say("half "), Say("an answer"), broken]
    async with bed(half, ANSWER) as rig:
        task, forward = await rig.run(reporter=OnlyForward())
        assert (task.status, task.result, forward.text) == (TaskStatus.FAILED, "half an answer", "half an answer")
        assert len(rig.server.requests) == 1
    async with bed(half, ANSWER) as rig:
        task, reporter = await rig.run()
        shown = collapsed(reporter.kinds)
        assert shown[3:7] == ["model:delta", "message:retracted", "model:retry", "model:delta"]
        assert task.result == "It is 14.", "what was taken back is no part of the answer"


async def test_s24_calls_side_by_side_go_back_in_the_order_in_which_they_were_asked_for() -> None:
    order: list[str] = []
    last = asyncio.Event()

    @tool(read_only=True)
    async def look(where: str) -> str:
        """Look somewhere; what is asked for last is seen first."""
        if where == "c":
            last.set()
        await last.wait()
        await asyncio.sleep(0.01 * "cba".index(where))
        order.append(where)
        return f"saw {where}"

    async with bed([Call("look", f'{{"where": "{w}"}}') for w in "abc"], ANSWER, tools=[look]) as rig:
        await rig.run()
        assert order == ["c", "b", "a"]
        sent = [str(message["content"]) for message in rig.server.requests[1].messages if message["role"] == "tool"]
        assert sent == ["saw a", "saw b", "saw c"]


async def test_s24_the_same_failing_call_is_reminded_of_once_and_then_ended() -> None:
    @tool
    async def never() -> str:
        """Never works."""
        raise ToolError("no")

    def events(reporter: RecordingReporter) -> list[Event]:
        return [event for event in reporter.events if isinstance(event, ToolEnded)]

    async with bed(answer=lambda _: [Call("never")], tools=[never]) as rig:
        task, reporter = await rig.run()
        assert task.error is not None
        assert task.error.kind == "tool"
        assert len(events(reporter)) == len(rig.server.requests) == 4
        told = [str(m["content"]) for m in rig.server.requests[-1].messages if m["role"] == "tool"]
        assert ["failed several times" in text for text in told] == [False, False, True]
        again, _ = await rig.run("another", "other")
        assert len(rig.server.requests) == 8, "each run has a count of its own"
        assert again.error is not None
