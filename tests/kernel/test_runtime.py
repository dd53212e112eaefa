"""One way in, one way to stop, one end, whatever happens on the way."""

import asyncio
import json

import pytest

from harness.admission import InProcessAdmission, Origin
from harness.engine import Limits
from harness.errors import ToolError
from harness.events import Event, ModelEnded, RunEnded, TaskStateChanged, ToolEnded, to_json
from harness.history import prepare_history
from harness.messages import AssistantMessage, ToolResult, UserMessage
from harness.providers.script import Call, Cut, Fail, Hang, Say, Script
from harness.reporters.recording import RecordingReporter
from harness.runtime import Queued, Refused, Started
from harness.status import StopReason, TaskStatus
from harness.testing import FakeClock
from harness.tools.base import ToolContext, tool
from tests.kernel.rig import kernel

HELLO = [Say("Hello "), Say("there.")]


def the_end(reporter: RecordingReporter) -> RunEnded:
    """The one `run:end`, which must be the last event."""
    ends = [event for event in reporter.events if isinstance(event, RunEnded)]
    assert len(ends) == 1
    assert reporter.events[-1] is ends[0]
    return ends[0]


async def until(reporter: RecordingReporter, kind: str, count: int = 1) -> Event:
    async with asyncio.timeout(5):
        while [event.kind for event in reporter.events].count(kind) < count:
            await asyncio.sleep(0.001)
    return next(event for event in reporter.events if event.kind == kind)


async def test_an_answer_streams_and_the_session_keeps_the_whole_message() -> None:
    rig = kernel([HELLO])
    task, reporter = await rig.run("hi")
    assert task.status is TaskStatus.COMPLETED
    assert task.result == reporter.text == "Hello there."
    assert reporter.kinds == [
        "task:state", "run:start", "model:start", "model:delta", "model:delta", "model:end", "usage", "step", "step",
        "task:state", "run:end",
    ]  # fmt: skip
    assert [event.seq for event in reporter.events] == list(range(1, len(reporter.events) + 1))
    session = await rig.store.load("s")
    assert session.messages[0] == UserMessage("hi")
    assert isinstance(session.messages[1], AssistantMessage)
    assert session.messages[1].text == "Hello there."


async def test_run_is_start_and_wait() -> None:
    rig = kernel([HELLO])
    outcome = await rig.runtime.run("s", "hi")
    assert isinstance(outcome, Started)
    assert outcome.task.result == "Hello there."


async def test_without_streaming_the_reporter_gets_the_whole_message_at_the_end_of_the_turn() -> None:
    rig = kernel([HELLO], limits=Limits(stream=False))
    task, reporter = await rig.run("hi")
    assert "model:delta" not in reporter.kinds
    assert next(event for event in reporter.events if isinstance(event, ModelEnded)).text == "Hello there."
    assert task.result == "Hello there."


async def test_a_tool_call_runs_and_its_result_goes_back_to_the_model() -> None:
    rig = kernel([[Say("Let me see."), Call("calculator", '{"expression": "2*(3+4)"}')], [Say("It is 14.")]])
    task, reporter = await rig.run("calc")
    ended = await until(reporter, "tool:end")
    assert isinstance(ended, ToolEnded)
    assert (ended.result, ended.is_error) == ("14", False)
    asked = rig.provider.requests[1].messages
    assert isinstance(asked[-1], ToolResult)
    assert asked[-1].content == "14"
    assert task.result == "Let me see.\n\nIt is 14."
    assert the_end(reporter).answer == task.result


async def test_start_right_after_wait_always_works() -> None:
    rig = kernel([HELLO] * 20)
    for _ in range(20):
        outcome = await rig.runtime.start("s", "hi")
        assert isinstance(outcome, Started)
        await outcome.task.wait()


async def test_messages_of_one_session_run_one_by_one_in_order_with_visible_positions() -> None:
    rig = kernel([HELLO] * 4)
    started = [await rig.start(f"question {n}") for n in range(4)]
    assert [task.status for task, _ in started] == [TaskStatus.RUNNING] + [TaskStatus.QUEUED] * 3
    for task, _ in started:
        await task.wait()
    asked = [request.messages[-1] for request in rig.provider.requests]
    assert asked == [UserMessage(f"question {n}") for n in range(4)]
    positions = [event.position for event in started[3][1].events if isinstance(event, TaskStateChanged)]
    assert positions == [3, 2, 1, 0, 0]


async def test_two_sessions_run_side_by_side() -> None:
    rig = kernel([[Say("a"), Hang()], HELLO])
    slow, slow_events = await rig.start("wait", "one")
    await until(slow_events, "model:delta")
    quick, _ = await rig.run("hi", "two")
    assert quick.status is TaskStatus.COMPLETED
    assert not slow.is_done
    slow.cancel()
    await slow.wait()


@pytest.mark.parametrize("prompt", ["", "  \n "])
async def test_an_empty_prompt_is_refused_and_writes_nothing(prompt: str) -> None:
    rig = kernel([HELLO])
    with pytest.raises(ValueError, match="empty"):
        await rig.runtime.start("s", prompt)
    assert (await rig.store.load("s")).messages == ()


async def test_a_full_queue_and_a_busy_session_refuse() -> None:
    rig = kernel([[Hang()]], admission=InProcessAdmission(queue_cap=1))
    task, _ = await rig.start("first")
    assert isinstance(await rig.runtime.start("s", "second"), Queued)
    assert await rig.runtime.start("s", "third") == Refused("full")
    task.cancel()
    await rig.runtime.aclose()

    strict = kernel([[Hang()]], admission=InProcessAdmission(busy_policy="reject"))
    task, _ = await strict.start("first")
    assert await strict.runtime.start("s", "second") == Refused("busy")
    await strict.runtime.aclose()


async def test_the_same_request_twice_is_one_task_and_a_recalled_one_none() -> None:
    rig = kernel([HELLO])
    origin = Origin("m1", "d1")
    assert isinstance(await rig.runtime.run("s", "hi", origin=origin), Started)
    assert await rig.runtime.start("s", "hi", origin=origin) == Refused("duplicate")
    await rig.runtime.cancel_message("s", "m2", by="", reason="recalled")
    assert await rig.runtime.start("s", "hi", origin=Origin("m2", "d2")) == Refused("recalled")


# How a run can be canceled: (script, the event to wait for before cancelling).
CANCEL_POINTS = {
    "before the first word": ([[Hang()]], "model:start"),
    "in the middle of the answer": ([[Say("half "), Hang()]], "model:delta"),
    "during a tool": ([[Call("forever", "{}")]], "tool:start"),
    "while waiting for a retry": ([[Fail("overloaded", retry_after=60.0)]], "model:retry"),
}


@pytest.mark.parametrize("point", CANCEL_POINTS)
async def test_cancel_ends_the_run_once_and_leaves_a_valid_history(point: str) -> None:
    @tool
    async def forever() -> str:
        """Never returns."""
        await asyncio.Event().wait()
        return ""

    script, kind = CANCEL_POINTS[point]
    rig = kernel([*script, HELLO], tools=[forever])
    task, reporter = await rig.start("go")
    await until(reporter, kind)
    assert task.cancel("enough", by="alice")
    assert not task.cancel("again"), "the first call decides"
    assert await asyncio.wait_for(task.wait(), 2) is TaskStatus.CANCELED
    end = the_end(reporter)
    assert (end.stop_reason, end.stop_by) == (StopReason.CANCELED, "alice")

    again, _ = await rig.run("next")
    assert again.status is TaskStatus.COMPLETED
    sent = rig.provider.requests[-1].messages
    assert list(sent) == prepare_history(sent), "what was sent needs no further repair"
    assert sent[-1] == UserMessage("next")


async def test_cancel_before_the_worker_has_taken_its_first_step_frees_the_session() -> None:
    rig = kernel([HELLO, HELLO])
    outcome = await rig.runtime.start("s", "hi")
    assert isinstance(outcome, Started)
    outcome.task.cancel()
    assert await asyncio.wait_for(outcome.task.wait(), 2) is TaskStatus.CANCELED
    task, _ = await rig.run("hi")
    assert task.status is TaskStatus.COMPLETED


async def test_a_stopped_answer_keeps_its_text_for_the_next_turn() -> None:
    rig = kernel([[Say("The first half"), Hang()], HELLO])
    task, reporter = await rig.start("tell me")
    await until(reporter, "model:delta")
    task.cancel()
    await task.wait()
    assert task.result == "The first half"
    await rig.run("go on")
    said = rig.provider.requests[-1].messages[1]
    assert isinstance(said, AssistantMessage)
    assert said.text.startswith("The first half")
    assert "stopped" in said.text


async def test_cancelling_a_queued_request_takes_it_out_and_moves_the_others_up() -> None:
    rig = kernel([[Hang()], HELLO])
    first, _ = await rig.start("first")
    outcome = await rig.runtime.start("s", "second", origin=Origin("m2"))
    assert isinstance(outcome, Queued)
    third, third_events = await rig.start("third")
    await rig.runtime.cancel_message("s", "m2", by="alice", reason="recalled")
    assert await outcome.task.wait() is TaskStatus.CANCELED
    assert [e.position for e in third_events.events if isinstance(e, TaskStateChanged)] == [2, 1]
    first.cancel()
    assert await third.wait() is TaskStatus.COMPLETED
    assert len(rig.provider.requests) == 2, "the removed request never reached the model"


async def test_a_request_that_waited_more_than_half_an_hour_is_not_run_and_says_so() -> None:
    clock = FakeClock()
    rig = kernel([[Hang()], HELLO], admission=InProcessAdmission(wall_clock=clock), now=clock)
    first, _ = await rig.start("first")
    old, old_events = await rig.start("second")
    clock.advance(31 * 60)
    fresh, _ = await rig.start("third")
    first.cancel()
    assert await old.wait() is TaskStatus.CANCELED
    assert [e.reason for e in old_events.events if isinstance(e, TaskStateChanged)][-1] == "expired"
    assert await fresh.wait() is TaskStatus.COMPLETED
    assert len(rig.provider.requests) == 2


@pytest.mark.parametrize(
    ("script", "kind", "answer"),
    [
        ([Fail("rate_limit", status=429)], "rate_limit", ""),
        ([Fail("auth", status=401)], "auth", ""),
        ([Say("half"), Cut()], "truncated", "half"),
        ([Say("half"), Fail("overloaded")], "overloaded", "half"),
    ],
)
async def test_a_failing_model_ends_the_task_with_its_kind_and_keeps_the_partial_text(
    script: list, kind: str, answer: str
) -> None:
    rig = kernel([script, HELLO], limits=Limits(model_retries=0))
    task, reporter = await rig.run("go")
    assert task.status is TaskStatus.FAILED
    assert task.error is not None
    assert task.error.kind == kind
    assert the_end(reporter).answer == answer
    again, _ = await rig.run("and now?")
    assert again.status is TaskStatus.COMPLETED
    texts = [m.text for m in rig.provider.requests[-1].messages if isinstance(m, AssistantMessage)]
    assert texts == [], "a broken answer is not sent back to the model"


async def test_a_retry_is_visible_and_happens_only_before_anything_was_shown() -> None:
    rig = kernel([[Fail("overloaded", retry_after=0.0)], HELLO])
    task, reporter = await rig.run("go")
    assert task.result == "Hello there."
    assert reporter.kinds.count("model:retry") == 1


class OnlyForward:
    """A surface that cannot take back what it has shown, as a terminal."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    async def emit(self, event: Event) -> None:
        self.kinds.append(event.kind)


async def test_after_text_was_shown_there_is_no_silent_second_attempt() -> None:
    rig = kernel([[Say("half"), Fail("overloaded", retry_after=0.0)], HELLO])
    reporter = OnlyForward()
    outcome = await rig.runtime.run("s", "go", reporter)
    assert isinstance(outcome, Started)
    assert outcome.task.status is TaskStatus.FAILED
    assert outcome.task.result == "half"
    assert not {"model:retry", "message:retracted"} & set(reporter.kinds)
    assert len(rig.provider.requests) == 1


async def test_a_surface_that_can_take_text_back_gets_one_announced_replay() -> None:
    broken: Script = [Say("half"), Cut()]
    rig = kernel([broken, HELLO])
    task, reporter = await rig.run("go")
    assert task.result == "Hello there."
    kinds = [kind for kind in reporter.kinds if kind in ("model:delta", "message:retracted", "model:retry")]
    assert kinds == ["model:delta", "message:retracted", "model:retry", "model:delta", "model:delta"]
    saved = [m.text for m in (await rig.store.load("s")).messages if isinstance(m, AssistantMessage)]
    assert saved == ["Hello there."], "what was taken back is not in the conversation"

    twice = kernel([broken, broken, HELLO])
    task, reporter = await twice.run("go")
    assert task.status is TaskStatus.FAILED
    assert task.result == "half"
    assert reporter.kinds.count("message:retracted") == 1


async def test_a_wait_longer_than_the_task_may_take_fails_at_once_and_says_so() -> None:
    rig = kernel([[Fail("rate_limit", retry_after=3600.0)]])
    task, _ = await rig.run("go")
    assert task.error is not None
    assert task.error.kind == "rate_limit"
    assert "3600" in task.error.message


@pytest.mark.parametrize(("script", "where"), [([Hang()], "did not start"), ([Say("a"), Hang()], "went silent")])
async def test_a_silent_model_times_out(script: list, where: str) -> None:
    limits = Limits(first_delta_timeout_s=0.05, idle_timeout_s=0.05, model_retries=0)
    task, _ = await kernel([script], limits=limits).run("go")
    assert task.error is not None
    assert task.error.kind == "timeout"
    assert where in task.error.message


async def test_a_run_that_takes_too_long_is_timed_out() -> None:
    task, reporter = await kernel([[Say("a"), Hang()]], limits=Limits(run_timeout_s=0.05)).run("go")
    assert task.status is TaskStatus.TIMED_OUT
    assert the_end(reporter).stop_reason is StopReason.TIMEOUT


async def test_turns_and_tool_calls_are_limited() -> None:
    call = [Call("calculator", '{"expression": "1"}')]
    task, _ = await kernel([call] * 9, limits=Limits(max_turns=3)).run("loop")
    assert task.error is not None
    assert (task.error.kind, task.end and task.end.stop_reason) == ("max_turns", StopReason.MAX_TURNS)
    task, _ = await kernel([call * 5], limits=Limits(max_tool_calls=4)).run("many")
    assert task.error is not None
    assert (task.error.kind, task.end and task.end.stop_reason) == ("budget", StopReason.BUDGET)


async def test_a_crash_inside_the_engine_fails_the_task_and_frees_the_session() -> None:
    rig = kernel([HELLO])

    class Broken(Exception):
        pass

    async def load(key: str) -> None:
        raise Broken

    good, rig.store.load = rig.store.load, load  # type: ignore[method-assign]
    task, reporter = await rig.run("go")
    assert task.error is not None
    assert task.error.kind == "internal"
    the_end(reporter)
    rig.store.load = good  # type: ignore[method-assign]
    again, _ = await rig.run("go")
    assert again.status is TaskStatus.COMPLETED


async def test_a_reporter_that_raises_does_not_disturb_the_run() -> None:
    class Broken:
        async def emit(self, event: Event) -> None:
            raise RuntimeError("no screen")

    rig = kernel([HELLO])
    outcome = await rig.runtime.run("s", "hi", Broken())
    assert isinstance(outcome, Started)
    assert outcome.task.result == "Hello there."


async def test_a_shutdown_lets_tasks_finish_within_the_grace_and_interrupts_the_rest() -> None:
    rig = kernel([[Say("a"), Say("b", 0.05)], [Say("half"), Hang()]], speed=1.0)
    quick, _ = await rig.start("quick", "one")
    stuck, events = await rig.start("stuck", "two")
    await until(events, "model:delta")
    await rig.runtime.aclose(drain_s=0.3)
    assert quick.status is TaskStatus.COMPLETED
    assert stuck.status is TaskStatus.INTERRUPTED
    assert stuck.result == "half"
    assert await rig.runtime.start("s", "late") == Refused("closed")


async def test_cleared_means_forgotten() -> None:
    rig = kernel([HELLO, HELLO])
    await rig.run("my name is Ada")
    await rig.runtime.clear("s")
    await rig.run("what is my name?")
    assert list(rig.provider.requests[-1].messages) == [UserMessage("what is my name?")]


async def test_read_only_tools_run_side_by_side_and_results_keep_call_order() -> None:
    running: list[str] = []
    most: list[int] = []

    @tool(read_only=True)
    async def look(name: str) -> str:
        """Look."""
        running.append(name)
        await asyncio.sleep(0.02 if name == "a" else 0.0)
        most.append(len(running))
        running.remove(name)
        return name

    @tool
    async def change(name: str) -> str:
        """Change something."""
        assert not running, "a tool that changes something runs alone"
        return name

    calls = [Call("look", json.dumps({"name": n})) for n in "ab"]
    calls += [Call("change", '{"name": "c"}'), Call("look", '{"name": "d"}')]
    rig = kernel([calls, HELLO], tools=[look, change])
    await rig.run("go")
    assert max(most) == 2
    results = [m.content for m in rig.provider.requests[-1].messages if isinstance(m, ToolResult)]
    assert results == ["a", "b", "c", "d"]


async def test_whatever_a_tool_does_the_model_is_told_and_the_run_goes_on() -> None:
    @tool
    async def refuses() -> str:
        """Refuses."""
        raise ToolError("not today")

    @tool
    async def breaks() -> str:
        """Breaks."""
        raise KeyError("oops")

    @tool(timeout_s=0.02)
    async def hangs() -> str:
        """Hangs."""
        await asyncio.Event().wait()
        return ""

    @tool
    async def talks(context: ToolContext) -> str:
        """Reports progress, then says too much."""
        await context.progress("half way")
        return "x" * 20_000

    calls = [Call("refuses"), Call("breaks"), Call("hangs"), Call("talks"), Call("nobody"), Call("refuses", '{"a": 1}')]
    calls.append(Call("refuses", '{"a": '))
    rig = kernel([calls, HELLO], tools=[refuses, breaks, hangs, talks])
    task, reporter = await rig.run("go")
    assert task.status is TaskStatus.COMPLETED
    told = [m for m in rig.provider.requests[-1].messages if isinstance(m, ToolResult)]
    assert [m.is_error for m in told] == [True, True, True, False, True, True, True]
    assert told[0].content == "not today"
    assert "KeyError" in told[1].content
    assert "0.02 s" in told[2].content
    assert len(told[3].content) < 16_200
    assert "characters left out" in told[3].content
    assert "refuses, breaks, hangs, talks" in told[4].content
    assert "a: " in told[5].content
    assert "not one JSON object" in told[6].content
    assert "tool:progress" in reporter.kinds


async def test_every_event_has_its_public_form() -> None:
    rig = kernel([[Say("hm"), Call("calculator", '{"expression": "1+1"}')], [Say("2")]])
    _, reporter = await rig.run("go")
    lines = [to_json(event) for event in reporter.events]
    by_kind = {line["kind"]: set(line) - {"task_id", "seq", "at", "kind"} for line in lines}
    assert by_kind["run:start"] == {"session", "input"}
    assert by_kind["model:end"] == {"text", "tool_calls", "finish_reason", "usage"}
    assert by_kind["tool:end"] == {"call_id", "name", "result", "is_error", "duration_ms"}
    assert by_kind["usage"] == {"input_tokens", "output_tokens", "estimated", "cost"}
    assert {"from", "to", "reason"} <= by_kind["task:state"]
    assert {"status", "stop_reason", "answer", "steps", "usage", "error"} <= by_kind["run:end"]
    call = next(line for line in lines if line["kind"] == "tool:start")["call"]
    assert set(call) == {"id", "name", "arguments"}
    json.dumps(lines)
