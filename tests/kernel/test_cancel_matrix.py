"""Cancel at each point of a run: the request is closed, nothing runs on, the conversation goes on, one end.

A point says how to get there and what else must hold; one driver cancels, and checks what must hold everywhere.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from harness.approval import Policy
from harness.engine import Limits
from harness.gate import ApprovalGate
from harness.history import prepare_history
from harness.messages import AssistantMessage, UserMessage
from harness.providers.script import Call, Fail, Hang, Say, Script, Think
from harness.status import StopReason, TaskStatus
from harness.stores.memory import MemoryGrantStore
from harness.tools.base import Tool, by_name
from harness.tools.builtin.shell import shell_tool
from harness.tools.executor import ToolExecutor
from harness.tools.workspace import Workspace
from tests.features.cancel_rig import (
    DONE,
    IN_DOUBT,
    NEVER_RAN,
    NO_EFFECT,
    Desk,
    Point,
    Scene,
    SlowAdmission,
    SlowParking,
    call,
    is_slow,
)
from tests.features.rig import Held, SlowSessions, bed, ended, flaws, over, questions, the_end, until
from tests.tools.test_shell import STUBBORN, alive


async def nothing_ran(scene: Scene) -> None:
    assert scene.desk.seen == []


async def looks_were_stopped(scene: Scene) -> None:
    assert sorted(scene.desk.seen) == sorted(
        ["look a began", "look near began", "look near ended", "look b began", "look a stopped", "look b stopped"]
    )


async def only_the_first_change_began(scene: Scene) -> None:
    assert scene.desk.seen == ["change quick began", "change quick ended", "change a began", "change a stopped"]


async def stubborn_is_left_behind(scene: Scene) -> None:
    assert scene.desk.seen == ["stubborn began", "stubborn was told"], "it still runs, and nobody waits for it"
    before = await scene.bed.log()
    scene.desk.let_go.set()
    await scene.did("stubborn ended")
    await asyncio.sleep(0)
    assert await scene.bed.log() == before, "what comes too late changes nothing"


async def command_is_dead(scene: Scene) -> None:
    assert alive(scene.mark) == []


async def cannot_be_answered(scene: Scene) -> None:
    [approval] = questions(scene.reporter.events)
    assert await scene.bed.runtime.decide(approval.id, "once", by="late") is None
    assert scene.desk.seen == []


async def written_once(scene: Scene) -> None:
    texts = [message.text for message in await scene.bed.log() if isinstance(message, AssistantMessage)]
    assert len(texts) == len(set(texts))
    questions = [message.text for message in await scene.bed.log() if isinstance(message, UserMessage)]
    assert questions == ["go", "next"]


WRITE: Script = [Say("I will."), call("write", text="a")]
POINTS = {
    "before the headers": Point(
        [], lambda s: s.requested(), open_request=True, fault={"latency_ms": 60_000}, also=nothing_ran
    ),
    "before the first word": Point([[Hang()]], lambda s: s.chunks(1), open_request=True),
    "in the middle of the text": Point(
        [[Say("half "), Hang()]], lambda s: s.event("model:delta"), open_request=True, answer="half "
    ),
    "in the middle of the reasoning": Point(
        [[Think("Hm. "), Hang()]], lambda s: s.event("model:reasoning"), open_request=True
    ),
    "in the middle of a call's arguments": Point(
        [[Say("So: "), Call("change", '{"what": "qui'), Hang()]],
        lambda s: s.half_a_call(),
        open_request=True,
        answer="So: ",
        also=nothing_ran,
    ),
    "during the back-off": Point([[Fail("overloaded", 503, retry_after=60.0)]], lambda s: s.event("model:retry")),
    "during a batch of read-only calls": Point(
        [[Say("Let me see."), call("look", where="a"), call("look", where="near"), call("look", where="b")]],
        lambda s: s.event("tool:end"),
        answer="Let me see.",
        told=[NO_EFFECT, "result of look near", NO_EFFECT],
        also=looks_were_stopped,
    ),
    "during a call with side effects": Point(
        [[call("change", what="quick"), call("change", what="a"), call("change", what="b")]],
        lambda s: s.did("change a began"),
        told=["result of change quick", IN_DOUBT, NEVER_RAN],
        also=only_the_first_change_began,
    ),
    "during a command in the shell": Point(
        [[Call("shell", "{command}")]],
        lambda s: s.shell_runs(),
        told=[IN_DOUBT],
        also=command_is_dead,
        shell=True,
    ),
    "during a tool that ignores it": Point(
        [[Call("stubborn")]], lambda s: s.did("stubborn began"), told=[IN_DOUBT], also=stubborn_is_left_behind
    ),
    "while a person is asked": Point(
        [WRITE], lambda s: s.event("approval:request"), answer="I will.", told=[NEVER_RAN], also=cannot_be_answered
    ),
    "while the waiting run is being stored": Point(
        [WRITE], lambda s: s.held_up(), answer="I will.", told=[NEVER_RAN], also=nothing_ran, slow="parking"
    ),
    "while the waiting run gives its lease back": Point(
        [WRITE], lambda s: s.held_up(), answer="I will.", told=[NEVER_RAN], also=nothing_ran, slow="admission"
    ),
    "while the question is being stored": Point(
        [], lambda s: s.held_up(), also=written_once, slow="question"
    ),
    "while the calls are being stored": Point(
        [[call("change", what="quick")]], lambda s: s.held_up(), told=[NEVER_RAN], also=nothing_ran, slow="calls"
    ),
    "while a result is being stored": Point(
        [[call("change", what="quick")]],
        lambda s: s.held_up(),
        told=["result of change quick"],
        also=written_once,
        slow="result",
    ),
    "while the answer is being stored": Point(
        [[Say("All of it.")]], lambda s: s.held_up(), answer="All of it.", also=written_once, slow="answer"
    ),
}  # fmt: skip


async def _tools(point: Point, desk: Desk, folder: Path) -> list[Tool]:
    if not point.shell:
        return desk.tools
    shell, why_not = await shell_tool(Workspace(folder))
    if shell is None:
        pytest.skip(why_not)
    return [*desk.tools, shell]


Cancel = Callable[[Scene], Awaitable[None]]


async def play(point: Point, folder: Path, cancel: Cancel, **limits: float) -> Scene:
    """Bring a run to the point, cancel it there, and check all that must hold wherever that was."""
    desk, held, mark = Desk(), Held(), uuid.uuid4().hex
    command = STUBBORN.format(mark=mark).replace('"', '\\"')
    scripts = [
        [
            Call("shell", f'{{"command": "{command}"}}') if step == Call("shell", "{command}") else step
            for step in script
        ]
        for script in point.scripts
    ]
    allowed: dict[str, Policy] = {"shell": "allow"}
    async with bed(
        *scripts,
        DONE,
        sessions=SlowSessions(held, lambda messages: is_slow(point.slow, messages)),
        parking=SlowParking(held) if point.slow == "parking" else None,
        admission=SlowAdmission(held) if point.slow == "admission" else None,
        gate=ApprovalGate(MemoryGrantStore(), overrides=allowed),
        executor=ToolExecutor(by_name(await _tools(point, desk, folder)), stop_grace_s=0.05),
        limits=Limits(**limits),  # type: ignore[arg-type]
    ) as rig:
        if point.fault:
            rig.server.set_fault(point.fault)
        task, reporter = await rig.start("go")
        scene = Scene(rig, desk, held, mark, task, reporter)
        await point.reach(scene)
        await cancel(scene)
        held.go_on.set()
        await ended(task)
        assert the_end(reporter.events).answer == point.answer
        await _check_requests(scene, point)
        await _check_conversation(scene, point)
        await point.also(scene)
        desk.let_go.set()
        await until(lambda: "stubborn began" not in desk.seen or "stubborn ended" in desk.seen)
        return scene


async def _check_requests(scene: Scene, point: Point) -> None:
    """The server has seen the end of each exchange, and of the open one that it was we who left."""
    requests = scene.bed.server.requests
    for record in requests:
        await over(record)
    assert [record.closed_by_client for record in requests[-1:]] == ([point.open_request] if requests else [])
    assert not any(record.closed_by_client for record in requests[:-1])
    assert scene.bed.server.open_streams == 0


async def _check_conversation(scene: Scene, point: Point) -> None:
    """What is stored makes a valid history, and the next turn of the session goes on from there."""
    asked = len(scene.bed.server.requests)
    again, _ = await scene.bed.run("next")
    assert again.status is TaskStatus.COMPLETED, again.error
    assert again.result == "Done."
    assert len(scene.bed.server.requests) == asked + 1
    log = await scene.bed.log()
    assert flaws(prepare_history(log)) == []
    told = [str(m["content"]) for m in scene.bed.server.requests[-1].messages if m["role"] == "tool"]
    assert len(told) == len(point.told), told
    assert all(expected in text for expected, text in zip(point.told, told, strict=True)), told
    assert log[0] == UserMessage("go")
    assert log[-2:] == (UserMessage("next"), log[-1])


async def by_task(scene: Scene) -> None:
    assert scene.task.cancel("enough", by="alice")
    assert not scene.task.cancel("too much", by="bob"), "the first one decides"


async def by_runtime(scene: Scene) -> None:
    await scene.bed.runtime.cancel_task("s", scene.task.id, by="alice", reason="enough")


@pytest.mark.parametrize("point", POINTS)
async def test_a_stop_at_any_point_ends_the_run_once_and_the_next_turn_works(point: str, tmp_path: Path) -> None:
    # A run that is parked has left `Task.cancel` behind: the runtime finds it.
    cancel = by_runtime if point == "while a person is asked" else by_task
    scene = await play(POINTS[point], tmp_path, cancel)
    end = the_end(scene.reporter.events)
    assert (end.status, end.stop_reason, end.stop_by) == (TaskStatus.CANCELED, StopReason.CANCELED, "alice")
    assert (end.error, scene.task.cancel_reason) == (None, "enough")


# --- several at once ---


async def twice(scene: Scene) -> None:
    """Two stops, the second while the first is being obeyed."""
    await by_runtime(scene)
    await asyncio.sleep(0)
    await by_runtime(scene)
    scene.task.cancel("again")


async def with_the_worker_canceled(scene: Scene) -> None:
    """As when the event loop is shut down in the same moment."""
    worker = scene.task._worker
    await by_runtime(scene)
    for _ in range(3):
        if worker is not None:
            worker.cancel()
        await asyncio.sleep(0)


BUSY = [
    "before the headers",
    "in the middle of the text",
    "during the back-off",
    "during a batch of read-only calls",
    "during a tool that ignores it",
    "while a person is asked",
    "while a result is being stored",
]


@pytest.mark.parametrize("cancel", [twice, with_the_worker_canceled])
@pytest.mark.parametrize("point", BUSY)
async def test_more_than_one_cancellation_is_one_end(point: str, cancel: Cancel, tmp_path: Path) -> None:
    scene = await play(POINTS[point], tmp_path, cancel)
    end = the_end(scene.reporter.events)
    assert (end.status, end.stop_by) == (TaskStatus.CANCELED, "alice")


async def stop_then_deadline(scene: Scene) -> None:
    assert scene.task.cancel("enough", by="alice")
    assert not scene.task.cancel("out of time", stop=StopReason.TIMEOUT)


async def deadline_then_stop(scene: Scene) -> None:
    assert scene.task.cancel("out of time", stop=StopReason.TIMEOUT)
    await by_runtime(scene)


# While a person is asked the clock of the run stands.
@pytest.mark.parametrize("point", [point for point in BUSY if point != "while a person is asked"])
async def test_a_stop_and_the_deadline_at_once_are_one_end_by_whoever_came_first(point: str, tmp_path: Path) -> None:
    for cancel, status in ((stop_then_deadline, TaskStatus.CANCELED), (deadline_then_stop, TaskStatus.TIMED_OUT)):
        scene = await play(POINTS[point], tmp_path, cancel)
        assert the_end(scene.reporter.events).status is status


SILENCE_S = 0.1


@pytest.mark.parametrize("early_s", [0.003, 0.001, 0.0, -0.001])
async def test_a_stop_in_the_moment_in_which_the_model_is_given_up_is_one_end(early_s: float, tmp_path: Path) -> None:
    accepted: list[bool] = []

    async def in_that_moment(scene: Scene) -> None:
        await asyncio.sleep(scene.reporter.events[-1].at + SILENCE_S - early_s - time.time())
        accepted.append(scene.task.cancel("enough", by="alice"))

    point = POINTS["in the middle of the text"]
    scene = await play(point, tmp_path, in_that_moment, idle_timeout_s=SILENCE_S, model_retries=0)
    end = the_end(scene.reporter.events)
    if accepted[0]:
        assert (end.status, end.error) == (TaskStatus.CANCELED, None), "a stop that was taken is a stop"
    else:
        assert end.status is TaskStatus.FAILED
        assert end.error is not None
        assert end.error.kind == "timeout"
