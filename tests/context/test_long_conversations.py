"""Conversations that outgrow the model's context window, through the whole kernel."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.admission import InProcessAdmission
from harness.context.compactor import Compactor
from harness.engine import Engine
from harness.events import ApprovalRequested, RunEnded, StepTaken, UsageReported
from harness.history import newest_mark, prepare_history
from harness.limits import Limits
from harness.messages import AssistantMessage, SummaryMessage, ToolResult, Usage, UserMessage
from harness.pricing import Price
from harness.providers.base import ModelRequest
from harness.providers.script import Fail, Say
from harness.providers.scripted import ScriptedProvider
from harness.reporters.recording import RecordingReporter
from harness.runtime import Runtime, Started
from harness.status import StopReason, TaskStatus
from harness.stores.memory import MemorySessionStore
from harness.stores.sql import open_stores
from harness.task import Task
from harness.tools.base import by_name, tool
from harness.tools.executor import ToolExecutor
from tests.context.models import Model, calls, says, text_of
from tests.kernel.test_history import assert_valid


@dataclass
class Rig:
    runtime: Runtime
    store: MemorySessionStore
    ended: list[RunEnded] = field(default_factory=list[RunEnded])

    async def start(self, prompt: str) -> tuple[Task, RecordingReporter]:
        reporter = RecordingReporter()
        outcome = await self.runtime.start("s", prompt, reporter)
        assert isinstance(outcome, Started)
        return outcome.task, reporter

    async def run(self, prompt: str) -> tuple[RunEnded, RecordingReporter]:
        task, reporter = await self.start(prompt)
        await task.wait()
        assert task.end is not None
        return task.end, reporter

    async def log(self) -> list[object]:
        return list((await self.store.load("s")).messages)


def rig(
    model: Model | ScriptedProvider,
    *,
    window: int = 2_000,
    limits: Limits | None = None,
    prices: dict[str, Price] | None = None,
) -> Rig:
    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        return "seen " * 200

    executor = ToolExecutor(by_name([look]))
    engine = Engine(model, executor, limits or Limits(), system="Be brief.", compactor=Compactor(window), prices=prices)
    store = MemorySessionStore()
    return Rig(Runtime(engine, store, InProcessAdmission()), store)


def echo(request: ModelRequest) -> AssistantMessage:
    """Looks first when the last question wants it, then answers."""
    last = request.messages[-1]
    if isinstance(last, UserMessage) and "look" in last.text:
        return calls("look", used(request))
    return says("Noted.", used(request))


def used(request: ModelRequest) -> Usage:
    return Usage(request.estimated_tokens, 10)


def remembers(*words: str) -> Callable[[ModelRequest], AssistantMessage]:
    """Notes that keep these words, when they stand in what is to be summed up."""

    def notes(request: ModelRequest) -> AssistantMessage:
        kept = [word for word in words if word in text_of(request)]
        return says(f"Known: {' '.join(kept)}.", Usage(500, 10))

    return notes


async def test_a_conversation_of_five_hundred_turns_still_knows_how_it_began() -> None:
    model = Model(echo, remembers("The password is xyzzy", "blue"))
    talk = rig(model)
    for number in range(500):
        prompt = {0: "The password is xyzzy.", 250: "My colour is blue."}.get(number, f"Please look at {number}.")
        end, _ = await talk.run(prompt)
        assert end.status is TaskStatus.COMPLETED
    last = model.turns[-1]
    assert_valid(list(last.messages))
    assert "xyzzy" in text_of(last)
    assert "blue" in text_of(last)
    asked = [m.text for m in last.messages if isinstance(m, UserMessage)]
    assert len(asked) >= 2
    assert asked == [f"Please look at {number}." for number in range(500 - len(asked), 500)]
    assert max(request.estimated_tokens for request in model.turns) < 2_000
    log = await talk.log()
    assert [m.text for m in log if isinstance(m, UserMessage)][:2] == ["The password is xyzzy.", "Please look at 1."]
    assert sum(isinstance(m, ToolResult) and len(m.content) == 1000 for m in log) == 498, "the stored log stays whole"
    assert len(model.summaries) > 10


async def test_between_two_compactions_each_prompt_begins_with_the_one_before() -> None:
    model = Model(echo, remembers("start"))
    talk = rig(model)
    for number in range(60):
        await talk.run(f"Now look at {number}, from the start.")
    firsts = 0
    for before, after in zip(model.turns, model.turns[1:], strict=False):
        if list(after.messages[: len(before.messages)]) != list(before.messages):
            firsts += 1
    marks = [m for m in await talk.log() if isinstance(m, SummaryMessage)]
    assert firsts == len(marks) > 2


async def test_one_long_run_is_compacted_in_its_middle_and_keeps_its_task() -> None:
    steps = 30

    def answer(request: ModelRequest) -> AssistantMessage:
        return calls("look") if len(model.turns) <= steps else says("Found.")

    model = Model(answer, remembers("needle"))
    end, reporter = await rig(model, limits=Limits(max_turns=50)).run("Find the needle.")
    assert end.answer == "Found."
    for request in model.turns:
        assert_valid(list(request.messages))
        assert UserMessage("Find the needle.") in request.messages
    summed_up = [e for e in reporter.events if isinstance(e, StepTaken) and e.summary.startswith("compacted")]
    assert summed_up
    assert {step.type for step in summed_up} == {"model"}
    assert end.steps == [e.n for e in reporter.events if isinstance(e, StepTaken)][-1]


async def test_a_compaction_shows_as_a_step_and_never_as_text() -> None:
    talk = rig(Model(echo, lambda _: says("secret notes")))
    texts: list[str] = []
    for number in range(40):
        end, reporter = await talk.run("word " * 60 + str(number))
        texts += [end.answer, *[e.text for e in reporter.events if e.kind == "model:delta"]]  # type: ignore[union-attr]
        if newest_mark((await talk.store.load("s")).messages):
            break
    else:
        pytest.fail("nothing was compacted")
    assert "secret notes" not in "".join(texts)
    kinds = reporter.kinds
    assert kinds.index("step") < kinds.index("model:start")


async def test_what_a_summary_used_counts_in_the_run_and_its_budget() -> None:
    talk = rig(Model(echo, lambda _: says("notes", Usage(700, 50))), limits=Limits(max_run_tokens=740))
    for _ in range(40):
        end, _ = await talk.run("word " * 60)
        if end.status is TaskStatus.FAILED:
            break
    assert end.stop_reason is StopReason.BUDGET
    assert end.usage.total == 750
    end, _ = await talk.run("again")
    assert end.status is TaskStatus.COMPLETED, "the summary was kept, so it is not made again"


@pytest.mark.parametrize("fails", [Fail("overloaded", 503), Fail("auth", 401)])
async def test_a_summary_that_fails_stops_nothing(fails: Fail) -> None:
    # Too few answers would fail the last run, too many the check at the end: exactly one summary is asked for.
    long_enough = 20
    script = [[Say("word " * 60)] for _ in range(long_enough)]
    model = ScriptedProvider([*script, [fails], [Say("Still here.")]])
    talk = rig(model)
    for _ in range(long_enough):
        end, _ = await talk.run("word " * 14)
        assert end.status is TaskStatus.COMPLETED
    while not any("write the notes" in request.system for request in model.requests):
        end, _ = await talk.run("word " * 14)
    assert end.answer == "Still here."
    model.assert_complete()


async def test_a_server_that_refuses_the_length_is_asked_once_more_with_less() -> None:
    model = Model(echo, remembers("alpha"), limit=1_000)
    talk = rig(model, window=128_000)
    await talk.run("alpha is the first word")
    for number in range(30):
        end, reporter = await talk.run("word " * 30 + str(number))
        assert end.status is TaskStatus.COMPLETED
        if model.refusals:
            break
    retries = [e for e in reporter.events if e.kind == "model:retry"]
    assert [(e.attempt, e.delay_s, e.reason) for e in retries] == [(1, 0.0, "context_length")]  # type: ignore[union-attr]
    assert "alpha" in text_of(model.turns[-1])
    assert model.turns[-1].messages[-1] == UserMessage("word " * 30 + str(number))


async def test_a_question_that_is_too_long_by_itself_fails_and_says_so() -> None:
    model = Model(echo, remembers(), limit=500)
    talk = rig(model)
    end, _ = await talk.run("word " * 2_000)
    assert end.error is not None
    assert end.error.kind == "context_length"
    assert model.refusals == 1, "nothing is asked again that cannot be made shorter"
    end, _ = await talk.run("short")
    assert end.status is TaskStatus.COMPLETED


async def test_a_cancel_during_the_summary_ends_the_run_and_leaves_the_log_as_it_was() -> None:
    began = asyncio.Event()
    stop = asyncio.Event()

    class Slow(Model):
        async def generate(self, request: ModelRequest) -> AssistantMessage:
            if request.system.startswith("You write the notes"):
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    stop.set()
            return await super().generate(request)

    talk = rig(Slow(echo, remembers()))
    while not began.is_set():
        before = await talk.log()
        task, _ = await talk.start("word " * 60)
        waiting = [asyncio.ensure_future(began.wait()), asyncio.ensure_future(task.wait())]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    task.cancel("enough")
    await task.wait()
    assert stop.is_set(), "the request was really given up"
    assert (task.status, await talk.log()) == (TaskStatus.CANCELED, [*before, UserMessage("word " * 60)])


async def test_the_cost_of_each_answer_and_summary_is_added_up() -> None:
    def answer(request: ModelRequest) -> AssistantMessage:
        return says("word " * 60, Usage(1_000, 100))

    model = Model(answer, lambda _: says("notes", Usage(2_000, 200)))
    talk = rig(model, window=1_200, prices={"small-*": Price(input=1.0, output=10.0)})
    first, reporter = await talk.run("go")
    assert first.usage.cost == pytest.approx(0.002)
    assert [e.cost for e in reporter.events if isinstance(e, UsageReported)] == [first.usage.cost]
    while not model.summaries:
        end, _ = await talk.run("go")
    assert end.usage.cost == pytest.approx(0.006)
    stored = [m for m in await talk.log() if isinstance(m, AssistantMessage | SummaryMessage) and m.usage.total]
    assert all(m.usage.cost for m in stored)


async def test_without_a_price_the_cost_is_unknown_and_not_zero() -> None:
    model = Model(lambda _: says("Yes.", Usage(10, 1)), remembers())
    end, _ = await rig(model, prices={"large-*": Price(input=1.0, output=10.0)}).run("go")
    assert end.usage == Usage(10, 1)
    assert end.usage.cost is None


async def test_a_prompt_that_is_made_for_each_run_holds_for_the_whole_run() -> None:
    made: list[str] = []

    async def system(caller: object) -> str:
        made.append(f"Prompt {len(made)}.")
        return made[-1]

    model = Model(echo, remembers())
    engine = Engine(model, ToolExecutor({}), Limits(), system=system)
    runtime = Runtime(engine, MemorySessionStore(), InProcessAdmission())
    await runtime.run("s", "look")
    await runtime.run("s", "go")
    assert [request.system for request in model.turns] == ["Prompt 0.", "Prompt 0.", "Prompt 1."]


async def test_a_mark_means_the_same_in_a_database(tmp_path: Path) -> None:
    """There results are written as they come, side by side, and what waited for permission goes on later."""
    done = asyncio.Event()

    @tool(read_only=True)
    async def slow() -> str:
        """Look slowly."""
        await done.wait()
        return "slow " * 100

    @tool(read_only=True)
    async def quick() -> str:
        """Look quickly."""
        done.set()
        return "quick " * 100

    @tool(policy="ask")
    async def change() -> str:
        """Change."""
        return "changed"

    def answer(request: ModelRequest) -> AssistantMessage:
        last = request.messages[-1]
        if not isinstance(last, UserMessage):
            return says("Done.", used(request))
        done.clear()
        parts = calls("change").parts if last.text.startswith("change") else calls("slow").parts + calls("quick").parts
        return AssistantMessage(parts, finish_reason="tool_calls", usage=used(request))

    model = Model(answer, remembers("alpha"))
    executor = ToolExecutor(by_name([slow, quick, change]))
    async with open_stores("sqlite:///:memory:", tmp_path) as stores:
        engine = Engine(model, executor, Limits(), system="Be brief.", compactor=Compactor(1_500))
        runtime = Runtime(engine, stores.sessions, InProcessAdmission(), parking=stores.parking, records=stores)
        for number in range(30):
            reporter = RecordingReporter()
            outcome = await runtime.start("s", ("change" if number % 3 else "look") + f" alpha {number}", reporter)
            assert isinstance(outcome, Started)
            waiting = asyncio.ensure_future(outcome.task.wait())
            while not waiting.done():
                await asyncio.sleep(0.001)
                for event in reporter.events:
                    if isinstance(event, ApprovalRequested):
                        await runtime.decide(event.approval.id, "once", by="alice")
            assert outcome.task.status is TaskStatus.COMPLETED
            # The stored log, read again, gives the very history with which the run ended.
            log = (await stores.sessions.load("s")).messages
            assert_valid(prepare_history(log))
            assert prepare_history(log)[: len(model.turns[-1].messages)] == list(model.turns[-1].messages)
        assert len(model.summaries) > 2
        assert "alpha" in text_of(model.turns[-1])
        await runtime.aclose()
