"""Tokens of a run and of a conversation: counted honestly, also when an answer breaks off, and limited."""

import asyncio

import pytest

from harness.admission import InProcessAdmission
from harness.engine import Engine
from harness.events import RunEnded
from harness.limits import Limits
from harness.messages import AssistantMessage, Text, ToolCall, ToolResult, Usage
from harness.providers.base import ModelRequest
from harness.providers.profiles import PRESETS, ProviderProfile
from harness.providers.script import Call, Cut, Hang, Say, Script, Think
from harness.reporters.recording import RecordingReporter
from harness.runtime import Runtime, Started
from harness.settings import KernelSettings
from harness.status import StopReason, TaskStatus
from harness.stores.memory import MemorySessionStore
from harness.tools.base import by_name, tool
from harness.tools.executor import ToolExecutor
from tests.kernel.rig import kernel

CALL: Script = [Call("calculator", '{"expression": "1"}')]
HELLO: Script = [Say("Hello "), Say("there.")]


class Answers:
    """A model without streaming that gives these messages, one per request."""

    model = "answers"

    def __init__(self, *answers: AssistantMessage | None) -> None:
        self.requests: list[ModelRequest] = []
        self._answers = list(answers)

    async def generate(self, request: ModelRequest) -> AssistantMessage:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if answer is None:
            await asyncio.Event().wait()
        assert answer is not None
        return answer

    async def aclose(self) -> None:
        pass


def runtime_with(provider: Answers, limits: Limits | None = None) -> tuple[Runtime, list[str]]:
    ran: list[str] = []

    @tool
    async def write(path: str) -> str:
        """Write."""
        ran.append(path)
        return "written"

    engine = Engine(provider, ToolExecutor(by_name([write])), limits or Limits(), system="")
    return Runtime(engine, MemorySessionStore(), InProcessAdmission()), ran


async def ended(runtime: Runtime, prompt: str = "go") -> tuple[RunEnded, RecordingReporter]:
    reporter = RecordingReporter()
    outcome = await runtime.run("s", prompt, reporter)
    assert isinstance(outcome, Started)
    assert outcome.task.end is not None
    return outcome.task.end, reporter


def using(total: int, text: str = "ok", *calls: ToolCall) -> AssistantMessage:
    return AssistantMessage((Text(text), *calls), usage=Usage(total - 1, 1))


async def test_a_run_that_has_used_its_tokens_asks_the_model_no_further() -> None:
    call = ToolCall("c", "write", {"path": "a"}, '{"path": "a"}')
    model = Answers(using(60, "First.", call), using(60, "Second.", call), using(60))
    end, _ = await ended(runtime_with(model, Limits(max_run_tokens=100))[0])
    assert (end.status, end.stop_reason) == (TaskStatus.FAILED, StopReason.BUDGET)
    assert end.error is not None
    assert (end.error.kind, "120 of its 100" in end.error.message) == ("budget", True)
    assert end.answer == "First.\n\nSecond."
    assert len(model.requests) == 2


async def test_the_answer_that_crosses_the_limit_is_still_given() -> None:
    end, _ = await ended(runtime_with(Answers(using(500, "Long.")), Limits(max_run_tokens=100))[0])
    assert (end.status, end.answer, end.usage.total) == (TaskStatus.COMPLETED, "Long.", 500)


async def test_a_conversation_that_has_used_its_tokens_says_so_and_a_new_one_works() -> None:
    model = Answers(using(60), using(60), using(60))
    runtime, _ = runtime_with(model, Limits(max_session_tokens=100))
    assert [(await ended(runtime))[0].stop_reason for _ in range(3)] == [
        StopReason.FINISHED, StopReason.FINISHED, StopReason.BUDGET,
    ]  # fmt: skip
    await runtime.clear("s")
    assert (await ended(runtime))[0].status is TaskStatus.COMPLETED


async def test_zero_is_no_limit() -> None:
    model = Answers(using(10**9), using(10**9))
    runtime, _ = runtime_with(model)
    assert [(await ended(runtime))[0].status for _ in range(2)] == [TaskStatus.COMPLETED] * 2


@pytest.mark.parametrize("before", [[Say("half an answer ")], [Think("a long thought")]])
async def test_a_canceled_answer_counts_what_it_had_used(before: Script) -> None:
    rig = kernel([CALL, [*before, Hang()]])
    task, reporter = await rig.start("What is one?")
    while "model:reasoning" not in reporter.kinds and "model:delta" not in reporter.kinds:
        await asyncio.sleep(0)
    first = next(event.usage for event in reporter.events if event.kind == "usage")  # type: ignore[union-attr]
    task.cancel("enough")
    await task.wait()
    assert task.end is not None
    assert task.end.usage.total > first.total
    assert task.end.usage.estimated, "the server never named the figures of a canceled answer"


async def test_a_partial_answer_counts_towards_its_conversation() -> None:
    rig = kernel([[Say("word " * 400), Hang()]])
    task, reporter = await rig.start("go")
    while "model:delta" not in reporter.kinds:
        await asyncio.sleep(0)
    task.cancel("enough")
    await task.wait()
    (message,) = [m for m in (await rig.store.load("s")).messages if isinstance(m, AssistantMessage)]
    assert message.usage.output_tokens == 500


async def test_an_answer_that_was_taken_back_was_used_all_the_same() -> None:
    once, _ = await kernel([HELLO]).run("go")
    again, _ = await kernel([[Say("word " * 40), Cut()], HELLO]).run("go")
    assert once.end is not None
    assert again.end is not None
    assert again.end.usage.output_tokens == once.end.usage.output_tokens + 50


async def test_thinking_that_was_shown_is_not_silently_shown_again() -> None:
    rig = kernel([[Think("hm"), Cut()], HELLO])
    _, reporter = await rig.run("go")
    shown = [kind for kind in reporter.kinds if kind in ("model:reasoning", "message:retracted", "model:retry")]
    assert shown == ["model:reasoning", "message:retracted", "model:retry"]


CUT_CALL = ToolCall("cut", "write", None, '{"path": "a')
GOOD_CALL = ToolCall("good", "write", {"path": "b"}, '{"path": "b"}')


def cut_short(*calls: ToolCall) -> AssistantMessage:
    return AssistantMessage(calls, finish_reason="length")


async def test_a_call_that_the_token_limit_cut_never_runs_and_the_model_is_told_once() -> None:
    model = Answers(cut_short(GOOD_CALL, CUT_CALL), using(1, "Then without."))
    runtime, ran = runtime_with(model)
    end, _ = await ended(runtime)
    assert (end.status, end.answer, ran) == (TaskStatus.COMPLETED, "Then without.", ["b"])
    results = [m for m in model.requests[1].messages if isinstance(m, ToolResult)]
    assert [(result.call_id, "token limit" in result.content) for result in results] == [
        ("good", False), ("cut", True),
    ]  # fmt: skip


async def test_cut_twice_in_a_row_fails_instead_of_going_round() -> None:
    model = Answers(cut_short(CUT_CALL), cut_short(CUT_CALL), using(1))
    runtime, ran = runtime_with(model)
    end, _ = await ended(runtime)
    assert end.error is not None
    assert (end.error.kind, ran, len(model.requests)) == ("truncated", [], 2)


async def test_cut_again_later_is_told_again() -> None:
    model = Answers(cut_short(CUT_CALL), using(1, "", GOOD_CALL), cut_short(CUT_CALL), using(1, "Done."))
    assert (await ended(runtime_with(model)[0]))[0].answer == "Done."


async def test_a_model_without_streaming_that_never_answers_times_out() -> None:
    runtime, _ = runtime_with(Answers(None), Limits(whole_answer_timeout_s=0.05, model_retries=0))
    end, _ = await ended(runtime)
    assert end.error is not None
    assert end.error.kind == "timeout"


def limits(profile: ProviderProfile | None, **settings: float) -> tuple[float, float]:
    made = Limits.of(KernelSettings(_env_file=None, **settings), profile)  # type: ignore[call-arg,arg-type]
    return made.first_delta_timeout_s, made.idle_timeout_s


def test_a_server_known_to_be_slow_gets_longer_unless_the_settings_say_otherwise() -> None:
    slow = ProviderProfile(first_token_timeout=300.0, idle_timeout=200.0)
    assert limits(None) == (90, 60)
    assert limits(ProviderProfile()) == (90, 60)
    assert limits(slow) == (300, 200)
    assert limits(slow, first_delta_timeout_s=20, idle_timeout_s=10) == (20, 10)
    assert all(value > 0 for preset in PRESETS.values() for value in limits(preset))
