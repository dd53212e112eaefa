"""What holds across all stores of one database: units of work, and deletion; see `record_suite`."""

import asyncio
from dataclasses import replace
from typing import Final

from harness.approval import Grant
from harness.errors import InvalidTransition, StoreError, VersionConflict
from harness.events import ModelDelta, StepTaken
from harness.messages import AssistantMessage, ToolResult, UserMessage
from harness.status import TaskStatus
from harness.stores.base import AppendMessages, Change, Stores
from harness.stores.records import CallStep, TaskStep
from harness.testing.record_suite import CardSuite, a_call, a_task
from harness.testing.store_suite import NOW, a_parked_run, a_run, refused

_CARD: Final = CardSuite.card


class UnitSuite:
    """The contract of `UnitOfWork`."""

    async def test_a_turn_is_written_as_one(self, stores: Stores) -> None:
        """The answer with its calls and results, the journal, the task, the events, a card."""
        session = await stores.sessions.load("s")
        call = replace(a_call(), state="approved")
        await stores.commit(a_task(), call, _CARD)
        turn = (AssistantMessage((call.call,)), ToolResult("c", "shell", "out"))
        append = AppendMessages(session, turn, fence=4)
        started, end = (CallStep("task-a", "c", "started", NOW), CallStep("task-a", "c", "finished", NOW, "out"))
        events = StepTaken("task-a", 1, NOW, 1, "tool", "shell"), ModelDelta("task-a", 2, NOW, "piece")
        await stores.commit(append, started, end, TaskStep("task-a", TaskStatus.COMPLETED, NOW), *events)
        assert await stores.sessions.load("s") == append.after
        assert [found.state for found in await stores.journal.of_task("task-a")] == ["finished"]
        assert await stores.traces.read("task-a") == [events[0]]
        assert await stores.tasks.unfinished() == []
        await stores.commit()

    async def test_one_refused_change_undoes_the_whole_unit(self, stores: Stores) -> None:
        """Whichever it is, and beside others that succeed at the same moment."""
        session = await stores.sessions.load("s")
        await stores.commit(a_task(), replace(a_call(), state="approved"))
        fine: tuple[Change, ...] = (
            AppendMessages(session, (UserMessage("not kept"),)),
            CallStep("task-a", "c", "started", NOW),
            TaskStep("task-a", TaskStatus.WAITING_APPROVAL, NOW),
            a_parked_run(),
            StepTaken("task-a", 1, NOW, 1, "tool", "shell"),
            replace(_CARD, key="never"),
        )
        spoilers: list[tuple[Change, type[StoreError | InvalidTransition]]] = [
            (AppendMessages(replace(await stores.sessions.load("t"), version=8), ()), VersionConflict),
            (CallStep("task-a", "unknown", "started", NOW), InvalidTransition),
            (TaskStep("unknown", TaskStatus.RUNNING, NOW), StoreError),
            (a_call(), StoreError),
        ]
        others = [stores.sessions.append(await stores.sessions.load(f"o{n}"), [UserMessage("kept")]) for n in range(3)]
        units = [stores.commit(*fine, spoiler) for spoiler, _ in spoilers]
        answers = await asyncio.gather(*units, *others, return_exceptions=True)
        assert [isinstance(answer, kind) for answer, (_, kind) in zip(answers, spoilers, strict=False)] == [True] * 4
        for number in range(3):
            assert (await stores.sessions.load(f"o{number}")).messages == (UserMessage("kept"),)
        assert await stores.sessions.load("s") == session
        assert [call.state for call in await stores.journal.of_task("task-a")] == ["approved"]
        assert await stores.tasks.get("task-a") == a_task()
        assert await stores.parking.parked("task-a") is None
        assert await stores.parking.find("approval-q") is None
        assert await stores.traces.read("task-a") == []
        assert await stores.cards.unfinished() == []

    async def test_a_session_is_appended_to_once_per_unit(self, stores: Stores) -> None:
        """The second append would have to know the first."""
        session = await stores.sessions.load("s")
        append = AppendMessages(session, (UserMessage("one"),))
        await refused(StoreError, stores.commit(append, AppendMessages(append.after, (UserMessage("two"),))))
        assert await stores.sessions.load("s") == session


class RetentionSuite:
    """The contract of `Retention`."""

    async def test_what_is_old_and_over_is_deleted_with_all_that_hangs_on_it(self, stores: Stores) -> None:
        """What is still at work stays whole, however old."""
        await _fill(stores, "old", "s-old", TaskStatus.COMPLETED)
        await _fill(stores, "live", "s-live", TaskStatus.RUNNING)
        await stores.grants.add(Grant("g", "shell", "d", "C1", "U1", "", "U9", 0, NOW - 9))
        assert await stores.retention.purge(before=NOW - 1) == 0, "nothing is that old"
        assert await stores.retention.purge(before=NOW + 100) == 2
        assert await _left(stores, "old", "s-old") == []
        assert await _left(stores, "live", "s-live") == _ALL_OF_IT
        assert await stores.grants.list(now=0) == []

    async def test_a_forgotten_session_leaves_nothing(self, stores: Stores) -> None:
        """And the one beside it everything."""
        await _fill(stores, "a", "s-a", TaskStatus.RUNNING)
        await _fill(stores, "b", "s-b", TaskStatus.RUNNING)
        await stores.grants.add(Grant("g", "shell", "d", "C1", "U1", "s-a", "U9", NOW, NOW + 9))
        await stores.retention.forget_session("s-a")
        assert await _left(stores, "a", "s-a") == []
        assert await _left(stores, "b", "s-b") == _ALL_OF_IT
        assert await stores.grants.list(now=NOW) == []

    async def test_a_forgotten_person_leaves_nothing(self, stores: Stores) -> None:
        """A conversation they took part in goes whole; the tasks of others stay."""
        await _fill(stores, "mine", "shared", TaskStatus.COMPLETED, requester="U1")
        await stores.commit(replace(a_task("theirs"), run=a_run("theirs", "shared", "U2")))
        await _fill(stores, "other", "s-other", TaskStatus.COMPLETED, requester="U2")
        for user in ("U1", "U2"):
            await stores.grants.add(Grant(f"g-{user}", "shell", "d", "C1", user, "", "U9", NOW, NOW + 9))
        await stores.retention.forget_user("")
        await stores.retention.forget_user("U1")
        assert await _left(stores, "mine", "shared") == []
        assert await _left(stores, "other", "s-other") == _ALL_OF_IT
        assert [task.id for task in await stores.tasks.of_session("shared")] == ["task-theirs"]
        assert [grant.user for grant in await stores.grants.list(now=NOW)] == ["U2"]


class WholeSuite(UnitSuite, RetentionSuite):
    """All of it."""


_ALL_OF_IT = ["messages", "task", "events", "journal", "cards", "approval", "parked run"]


async def _fill(stores: Stores, name: str, key: str, status: TaskStatus, *, requester: str = "U1") -> None:
    """Write one of everything for a task."""
    run = a_run(name, key, requester)
    parked = replace(a_parked_run(name, questions=(name,)), run=run)
    await stores.commit(
        AppendMessages(await stores.sessions.load(key), (UserMessage("hello"),)),
        replace(a_task(name, status), run=run),
        replace(a_call(task=run.task_id), session_key=key),
        StepTaken(run.task_id, 1, NOW, 1, "model", "summary"),
        replace(_CARD, key=f"card-{name}", task_id=run.task_id, session_key=key),
        replace(parked, approvals=tuple(replace(asked, session_key=key) for asked in parked.approvals)),
    )


async def _left(stores: Stores, name: str, key: str) -> list[str]:
    """Tell what is still there of a task."""
    task_id = f"task-{name}"
    found = [
        (await stores.sessions.load(key)).messages,
        await stores.tasks.get(task_id),
        await stores.traces.read(task_id),
        await stores.journal.of_task(task_id),
        await stores.cards.of_task(task_id),
        await stores.parking.find(f"approval-{name}"),
        await stores.parking.parked(task_id),
    ]
    return [what for what, value in zip(_ALL_OF_IT, found, strict=True) if value]
