"""Callbacks: the few methods that a subclass overrides are called with everything they need, each text once."""

from typing import Any

import pytest

from harness.approval import Approval
from harness.engine import Limits
from harness.events import RunEnded
from harness.messages import ToolCall, ToolResult
from harness.providers.script import Call, Cut, Fail, Hang, Say, Script, Think
from harness.reporters.callback import CallbackReporter
from harness.runtime import Started
from harness.status import TaskStatus
from harness.task import Task
from harness.tools.base import Tool, ToolContext, tool
from tests.kernel.rig import kernel


class Whole(CallbackReporter):
    """Everything but the pieces. Its own `__init__` calls no other."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    async def on_thinking(self, text: str) -> None:
        self.seen.append(("thinking", text))

    async def on_text_complete(self, text: str) -> None:
        self.seen.append(("complete", text))

    async def on_message(self, text: str) -> None:
        self.seen.append(("message", text))

    async def on_tool_call(self, call: ToolCall) -> None:
        self.seen.append(("call", (call.name, call.arguments)))

    async def on_tool_progress(self, call_id: str, text: str) -> None:
        self.seen.append(("progress", text))

    async def on_tool_result(self, result: ToolResult) -> None:
        self.seen.append(("result", (result.name, result.content, result.is_error)))

    async def on_end(self, end: RunEnded) -> None:
        self.seen.append(("end", (end.status, end.answer)))


class Pieces(Whole):
    async def on_text_delta(self, text: str) -> None:
        self.seen.append(("delta", text))


class Editable(Pieces):
    async def on_retracted(self) -> None:
        self.seen.append(("retracted", None))


@tool
async def look(context: ToolContext, where: str) -> str:
    """Look somewhere."""
    await context.progress("looking")
    return f"nothing in {where}"


LOOKING: Script = [Think("Hm."), Say("I will "), Say("look."), Call("look", '{"where": "the box"}')]
FOUND: Script = [Say("There is "), Say("nothing.")]
IN_THE_MIDDLE = [("call", ("look", {"where": "the box"})), ("progress", "looking")]
IN_THE_MIDDLE += [("result", ("look", "nothing in the box", False))]
END = ("end", (TaskStatus.COMPLETED, "I will look.\n\nThere is nothing."))


async def shown(reporter: Whole, *scripts: Script, tools: list[Tool] | None = None, **options: Any) -> Task:
    rig = kernel(scripts, tools=tools, **options)
    outcome = await rig.runtime.run("s", "go", reporter)
    assert isinstance(outcome, Started)
    await rig.runtime.aclose()
    return outcome.task


async def test_without_the_delta_callback_the_whole_text_of_each_turn_comes_at_its_end() -> None:
    reporter = Whole()
    await shown(reporter, LOOKING, FOUND, tools=[look])
    assert reporter.seen == [
        ("thinking", "Hm."), ("message", "I will look."), *IN_THE_MIDDLE, ("message", "There is nothing."), END,
    ]  # fmt: skip


async def test_with_it_the_pieces_come_and_then_that_they_are_complete_and_no_text_comes_twice() -> None:
    reporter = Pieces()
    await shown(reporter, LOOKING, FOUND, tools=[look])
    assert reporter.seen == [
        ("thinking", "Hm."), ("delta", "I will "), ("delta", "look."), ("complete", "I will look."),
        *IN_THE_MIDDLE,
        ("delta", "There is "), ("delta", "nothing."), ("complete", "There is nothing."), END,
    ]  # fmt: skip


async def test_a_model_that_does_not_stream_gives_one_piece() -> None:
    reporter = Pieces()
    await shown(reporter, FOUND, limits=Limits(stream=False))
    text = "There is nothing."
    assert reporter.seen == [("delta", text), ("complete", text), ("end", (TaskStatus.COMPLETED, text))]


@pytest.mark.parametrize("kind", [Whole, Pieces])
async def test_a_turn_without_text_calls_nothing_for_it(kind: type[Whole]) -> None:
    reporter = kind()
    await shown(reporter, [Call("look", '{"where": "the box"}')], [Say("No.")], tools=[look])
    texts = [name for name, _ in reporter.seen if name in ("delta", "complete", "message")]
    assert texts == (["message"] if kind is Whole else ["delta", "complete"])


async def test_a_run_that_fails_in_the_middle_of_a_turn_still_shows_what_was_written() -> None:
    script: Script = [Say("The first "), Say("half"), Fail("auth", 401)]
    whole, pieces = Whole(), Pieces()
    for reporter in (whole, pieces):
        task = await shown(reporter, script)
        assert task.status is TaskStatus.FAILED
    end = ("end", (TaskStatus.FAILED, "The first half"))
    assert whole.seen == [("message", "The first half"), end]
    assert pieces.seen == [("delta", "The first "), ("delta", "half"), end], "and nothing says that it is complete"


async def test_a_canceled_run_shows_what_was_written_too() -> None:
    rig = kernel([[Say("The first "), Hang()]])
    reporter = Whole()
    outcome = await rig.runtime.start("s", "go", reporter)
    assert isinstance(outcome, Started)
    async for event in outcome.task.events():
        if event.kind == "model:delta":
            outcome.task.cancel("stop")
    assert reporter.seen == [("message", "The first "), ("end", (TaskStatus.CANCELED, "The first "))]
    await rig.runtime.aclose()


BROKEN: Script = [Say("Wro"), Cut()]


async def test_pieces_that_cannot_be_taken_back_are_never_followed_by_another_version() -> None:
    reporter = Pieces()
    task = await shown(reporter, BROKEN, FOUND)
    assert task.status is TaskStatus.FAILED
    assert reporter.seen == [("delta", "Wro"), ("end", (TaskStatus.FAILED, "Wro"))]


async def test_pieces_are_taken_back_by_whoever_can() -> None:
    reporter = Editable()
    await shown(reporter, BROKEN, FOUND)
    text = "There is nothing."
    assert reporter.seen == [
        ("delta", "Wro"), ("retracted", None), ("delta", "There is "), ("delta", "nothing."), ("complete", text),
        ("end", (TaskStatus.COMPLETED, text)),
    ]  # fmt: skip


async def test_text_that_was_taken_back_before_it_was_shown_is_never_shown() -> None:
    reporter = Whole()
    await shown(reporter, BROKEN, FOUND)
    text = "There is nothing."
    assert reporter.seen == [("message", text), ("end", (TaskStatus.COMPLETED, text))]


async def test_a_question_reaches_the_program_and_its_answer_the_run() -> None:
    asked: list[Approval] = []

    class Asking(CallbackReporter):
        async def on_approval(self, approval: Approval) -> None:
            asked.append(approval)

    @tool(policy="ask")
    async def write(text: str) -> str:
        """Write."""
        return f"wrote {text}"

    rig = kernel([[Call("write", '{"text": "a"}')], [Say("Done.")]], tools=[write])
    outcome = await rig.runtime.start("s", "go", Asking())
    assert isinstance(outcome, Started)
    async for event in outcome.task.events():
        if event.kind == "approval:request":
            assert await rig.runtime.decide(asked[0].id, "once", by="me")
    assert outcome.task.result == "Done."
    await rig.runtime.aclose()


async def test_a_base_class_that_overrides_nothing_shows_nothing_and_breaks_nothing() -> None:
    rig = kernel([LOOKING, FOUND], tools=[look])
    outcome = await rig.runtime.run("s", "go", CallbackReporter())
    assert isinstance(outcome, Started)
    assert outcome.task.status is TaskStatus.COMPLETED
    await rig.runtime.aclose()
