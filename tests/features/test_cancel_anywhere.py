"""Cancel at every event of a whole run, at arbitrary moments of many, and after the last word."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from harness.events import Event
from harness.history import prepare_history
from harness.live import STATUS_OF
from harness.messages import AssistantMessage, ToolResult
from harness.providers.script import Fail, Say, Script, Think
from harness.reporters.recording import RecordingReporter
from harness.status import StopReason, TaskStatus
from harness.task import Task
from harness.testing.wire import WireRequest
from harness.tools.base import Tool, tool
from tests.features.cancel_rig import DONE, call
from tests.features.rig import Bed, bed, ended, flaws, over, the_end


class Stopper(RecordingReporter):
    """Stops the task when it is shown its event number `at`, counted from 1."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.task: Task | None = None
        self.taken = False
        self._at = at

    async def emit(self, event: Event) -> None:
        await super().emit(event)
        if event.seq == self._at and self.task is not None:
            self.taken = self.task.cancel("enough", by="alice")


class Effects:
    """Tools with and without side effects, and which of the effects were begun and ended."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []

        @tool(read_only=True)
        async def look(where: str) -> str:
            """Look somewhere."""
            await asyncio.sleep(0.003)
            return f"saw {where}"

        @tool
        async def change(what: str) -> str:
            """Change something."""
            self.begun.append(what)
            await asyncio.sleep(0.003)
            self.ended.append(what)
            return f"changed {what}"

        self.tools: list[Tool] = [look, change]


def whole_run(name: str, pause_s: float) -> Callable[[WireRequest], Script]:
    """A run of three turns with thinking, text, calls of both kinds and a retry; every other question is answered."""
    failed: list[bool] = []

    def answer(request: WireRequest) -> Script:
        heard = request.heard
        if heard.user_texts[-1] != "go":
            return DONE
        match len(heard.results):
            case 0:
                looks = [call("look", where=where) for where in "ab"]
                return [Think("Hm. ", pause_s), Say("First ", pause_s), Say("this. ", pause_s), *looks]
            case 2 if not failed:
                failed.append(True)
                return [Fail("overloaded", 503, retry_after=pause_s)]
            case 2:
                more = [call("change", what=f"{name}-{n}") for n in (1, 2)]
                return [Say("Then that. ", pause_s), *more, call("look", where="c")]
            case _:
                return [Say("All ", pause_s), Say("done.", pause_s)]

    return answer


async def check_effects(rig: Bed, effects: Effects, session: str) -> None:
    """Each effect that was begun is in the conversation; what the log says of its result is true."""
    log = await rig.log(session)
    assert flaws(prepare_history(log)) == []
    calls = {
        call.id: str((call.arguments or {}).get("what"))
        for message in log
        if isinstance(message, AssistantMessage)
        for call in message.tool_calls
        if call.name == "change"
    }
    assert set(effects.begun) <= set(calls.values()), "an effect that nobody will ever hear of"
    assert len(effects.begun) == len(set(effects.begun)), "an effect twice"
    for message in log:
        if isinstance(message, ToolResult) and message.name == "change" and not message.is_error:
            assert calls[message.call_id] in effects.ended


async def test_a_stop_at_any_event_of_a_whole_run() -> None:
    count = 0
    while True:
        count += 1
        effects, reporter = Effects(), Stopper(count)
        async with bed(answer=whole_run("x", 0.0), tools=effects.tools) as rig:
            task, _ = await rig.start("go", reporter=reporter)
            reporter.task = task
            await ended(task)
            end = the_end(reporter.events)
            canceled = end.status is TaskStatus.CANCELED
            # At the last step there is nothing left to interrupt: then both are honest.
            last_step = reporter.kinds[count - 1 : count + 1] == ["step", "task:state"]
            assert canceled == reporter.taken or last_step, reporter.kinds[count - 1 :]
            begun = list(effects.begun)
            again, _ = await rig.run("and now?")
            assert again.result == "Done."
            assert effects.begun == begun, "nothing goes on behind the end"
            assert effects.begun == effects.ended or canceled
            await check_effects(rig, effects, "s")
            assert rig.server.open_streams == 0
        if len(reporter.kinds) < count:
            break  # the run was over before
    assert count > 30, "a whole run has more events than that"
    assert end.status is TaskStatus.COMPLETED


@pytest.mark.parametrize("seed", range(3))
async def test_a_stop_at_any_moment_of_a_whole_run(seed: int) -> None:
    """Many conversations at once, each stopped at a moment of its own, some by their deadline or twice."""
    random_ = random.Random(seed)
    names = [f"n{n}" for n in range(24)]
    answers = {name: whole_run(name, 0.004) for name in names}

    def answer(request: WireRequest) -> Script:
        name, _, question = request.heard.user_texts[-1].partition(" ")
        heard = replace(request.heard, user_texts=[question])
        return answers[name](replace(request, heard=heard))

    statuses: list[TaskStatus] = []
    effects = Effects()
    async with bed(answer=answer, tools=effects.tools) as rig:

        async def one(name: str) -> None:
            task, reporter = await rig.start(f"{name} go", name)
            # The last is what the deadline does; whoever is taken first decides.
            reasons = random_.choice([[StopReason.CANCELED], [StopReason.CANCELED] * 2, [StopReason.TIMEOUT]])
            taken: list[StopReason] = []
            for reason in reasons:
                await asyncio.sleep(random_.uniform(0.0, 0.25))
                if task.cancel("enough", by="alice", stop=reason):
                    taken.append(reason)
            status = await ended(task)
            statuses.append(status)
            assert the_end(reporter.events).status is status
            assert [STATUS_OF[reason] for reason in taken] == ([] if status is TaskStatus.COMPLETED else [status])
            again, _ = await rig.run(f"{name} next", name)
            assert again.result == "Done.", again.error
            assert flaws(prepare_history(await rig.log(name))) == []

        await asyncio.gather(*(one(name) for name in names))
        for name in names:
            await check_effects(rig, _of(effects, name), name)
        for record in rig.server.requests:
            await over(record)
        assert rig.server.open_streams == 0
    assert statuses.count(TaskStatus.CANCELED) > 5, f"too few to prove anything: {statuses}"


def _of(effects: Effects, name: str) -> Effects:
    """The effects of one conversation."""
    mine = Effects()
    mine.begun = [what for what in effects.begun if what.startswith(f"{name}-")]
    mine.ended = [what for what in effects.ended if what.startswith(f"{name}-")]
    return mine


# --- at the very end ---

LAST = [Say("All "), Say("of it.")]


@pytest.mark.parametrize("kind", ["model:delta", "model:end", "usage", "step", "task:state", "run:end"])
async def test_a_stop_after_the_last_word_keeps_the_whole_answer(kind: str) -> None:
    class AtTheEnd(Stopper):
        async def emit(self, event: Event) -> None:
            await RecordingReporter.emit(self, event)
            if event.kind == kind and self.text == "All of it." and not self.taken and self.task is not None:
                self.taken = self.task.cancel("enough")

    reporter = AtTheEnd(0)
    async with bed(LAST, DONE) as rig:
        task, _ = await rig.start("go", reporter=reporter)
        reporter.task = task
        await ended(task)
        end = the_end(reporter.events)
        too_late = kind in ("task:state", "run:end")
        assert reporter.taken is not too_late
        assert end.status is (TaskStatus.COMPLETED if too_late else TaskStatus.CANCELED)
        assert end.answer == "All of it."
        again, _ = await rig.run("next")
        assert again.result == "Done."
        [said, _] = [message for message in await rig.log() if isinstance(message, AssistantMessage)]
        assert said.text == "All of it."
        assert said.state != "failed"
