"""What the stores of tasks, events, calls and cards must do; see `store_suite`.

Inherit `RecordSuite` and `WholeSuite` (in `whole_suite`) and give them a fixture `stores`: an empty
`harness.stores.sql.Stores`, opened with `now=ticking_clock()`. `CardSuite` asks for its ledger alone.
"""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace

from harness.errors import InvalidTransition, StaleFence, StoreError
from harness.events import ModelDelta, RunEnded, RunError, RunStarted, StepTaken, TaskStateChanged
from harness.messages import AssistantMessage, Text, ToolCall, Usage, UserMessage
from harness.status import StopReason, TaskStatus
from harness.stores.base import CardLedger, Stores
from harness.stores.records import CALL_STEPS, CallRecord, CallState, CallStep, CardRecord, TaskRecord, TaskStep
from harness.task import TRANSITIONS
from harness.testing.store_suite import MANY, NOW, a_run, refused


def ticking_clock() -> Callable[[], float]:
    """Make a clock that is a second later each time it is looked at, so that nothing happens at the same moment."""
    return itertools.count(NOW).__next__


def a_task(name: str = "a", status: TaskStatus = TaskStatus.RUNNING, *, at: float = NOW, fence: int = 0) -> TaskRecord:
    """Make a task whose ids all follow from one name."""
    return TaskRecord(a_run(name), status, at, fence)


def a_call(name: str = "c", *, task: str = "task-a", side_effects: bool = True) -> CallRecord:
    """Make a call of a task."""
    call = ToolCall(name, "shell", {"command": "ls \u0000", "n": 10**30}, provider_id="p")
    return CallRecord(call, task, "test:T1:C1/thread", side_effects, NOW, digest="d")


class TaskSuite:
    """The contract of `TaskStore`, and of the list of conversations."""

    async def test_a_task_is_kept_whole(self, stores: Stores) -> None:
        """And a second `put`, as by a replica that takes it over, changes nothing."""
        task = replace(
            a_task(fence=3),
            model="m",
            answer="so far \u0000",
            usage=Usage(1, 2, estimated=True),
            stop_reason=StopReason.BUDGET,
            error=RunError("budget", "Spent."),
            started_at=NOW + 1,
            ended_at=NOW + 2,
        )
        await stores.tasks.put(task)
        await stores.tasks.put(replace(task, answer="other"))
        assert await stores.tasks.get("task-a") == task
        assert await stores.tasks.get("task-b") is None

    async def test_a_task_takes_the_steps_of_its_table_and_no_other(self, stores: Stores) -> None:
        """Every pair of states."""
        pairs = [(before, after) for before in TaskStatus for after in TaskStatus]
        for number, (before, after) in enumerate(pairs):
            await stores.tasks.put(replace(a_task(str(number), before), answer="as it was"))
            step = TaskStep(f"task-{number}", after, NOW + 9, answer="changed")
            if after in TRANSITIONS[before]:
                await stores.tasks.step(step)
            else:
                await refused(InvalidTransition, stores.tasks.step(step))
            found = await stores.tasks.get(f"task-{number}")
            assert found is not None
            expected = (after, "changed") if after in TRANSITIONS[before] else (before, "as it was")
            assert (found.status, found.answer) == expected
        await refused(StoreError, stores.tasks.step(TaskStep("unknown", TaskStatus.RUNNING, NOW)))

    async def test_a_task_gathers_what_its_steps_say(self, stores: Stores) -> None:
        """What a step leaves out stays, the first start is the start, the end is the end."""
        await stores.tasks.put(a_task(status=TaskStatus.QUEUED))
        steps = [
            TaskStep("task-a", TaskStatus.RUNNING, NOW + 1, fence=5, model="m"),
            TaskStep("task-a", TaskStatus.WAITING_APPROVAL, NOW + 2, fence=5, answer="May I?", usage=Usage(1, 1)),
            TaskStep("task-a", TaskStatus.RUNNING, NOW + 3, fence=6),
            TaskStep(
                "task-a",
                TaskStatus.FAILED,
                NOW + 4,
                fence=6,
                usage=Usage(2, 2),
                stop_reason=StopReason.FAILED,
                error=RunError("timeout", "The model went silent."),
            ),
        ]
        await stores.tasks.step(steps[0])
        await stores.commit(*steps[1:3])
        await stores.tasks.step(steps[3])
        assert await stores.tasks.get("task-a") == TaskRecord(
            run=a_run(),
            status=TaskStatus.FAILED,
            created_at=NOW,
            fence=6,
            model="m",
            answer="May I?",
            usage=Usage(2, 2),
            stop_reason=StopReason.FAILED,
            error=RunError("timeout", "The model went silent."),
            started_at=NOW + 1,
            ended_at=NOW + 4,
        )

    async def test_of_many_that_end_a_task_one_does(self, stores: Stores) -> None:
        """The owner, the sweeper and a stop may all try."""
        await stores.tasks.put(a_task())
        ends = [status for status in TaskStatus if status.is_terminal]
        steps = [TaskStep("task-a", ends[number % len(ends)], NOW, answer=str(number)) for number in range(MANY)]
        answers = await asyncio.gather(*map(stores.tasks.step, steps), return_exceptions=True)
        won = [number for number, answer in enumerate(answers) if answer is None]
        assert len(won) == 1
        assert all(isinstance(answer, InvalidTransition) for answer in answers if answer is not None)
        found = await stores.tasks.get("task-a")
        assert found is not None
        assert found.answer == str(won[0])

    async def test_an_owner_from_before_cannot_touch_the_task(self, stores: Stores) -> None:
        """Neither its state nor the text that people see."""
        await stores.tasks.put(a_task(fence=6))
        await refused(StaleFence, stores.tasks.step(TaskStep("task-a", TaskStatus.COMPLETED, NOW, fence=5)))
        await stores.tasks.show("task-a", "zombie", fence=5)
        assert await stores.tasks.get("task-a") == a_task(fence=6)

    async def test_the_shown_text_is_kept_until_the_end(self, stores: Stores) -> None:
        """What a crash leaves behind is what people saw last; the end has its own text."""
        await stores.tasks.put(a_task(fence=6))
        await stores.tasks.show("task-a", "so far", fence=6)
        shown = await stores.tasks.get("task-a")
        assert shown is not None
        assert shown.answer == "so far"
        await stores.tasks.step(TaskStep("task-a", TaskStatus.COMPLETED, NOW, fence=6, answer="all of it"))
        await stores.tasks.show("task-a", "late", fence=6)
        ended = await stores.tasks.get("task-a")
        assert ended is not None
        assert ended.answer == "all of it"

    async def test_tasks_are_listed_by_conversation_and_by_what_is_unfinished(self, stores: Stores) -> None:
        """Newest first in a conversation, oldest first for whoever has to take care of them."""
        states = {"a": TaskStatus.COMPLETED, "b": TaskStatus.RUNNING, "c": TaskStatus.QUEUED}
        for number, (name, status) in enumerate(states.items()):
            await stores.tasks.put(a_task(name, status, at=NOW + number))
        elsewhere = replace(a_task("d", at=NOW - 1), run=a_run("d", "elsewhere"))
        await stores.tasks.put(elsewhere)
        assert [task.id for task in await stores.tasks.of_session(a_run().session_key)] == [
            "task-c",
            "task-b",
            "task-a",
        ]
        assert [task.id for task in await stores.tasks.of_session(a_run().session_key, limit=1)] == ["task-c"]
        assert [task.id for task in await stores.tasks.unfinished()] == ["task-d", "task-b", "task-c"]

    async def test_conversations_are_listed_by_their_last_use(self, stores: Stores) -> None:
        """With the first prompt as title; an empty one is not listed, and the prefix is taken literally."""
        for key, prompts in {"a_1": ["first\n question", "second"], "ab1": ["x" * 200], "a_2": ["q"]}.items():
            session = await stores.sessions.load(key)
            for prompt in prompts:
                turn = [UserMessage(prompt), AssistantMessage((Text("answer"),))]
                session = await stores.sessions.append(session, turn)
        await stores.sessions.clear("a_2")
        listed = await stores.index.summaries()
        assert [(entry.key, entry.title, entry.turns) for entry in listed] == [
            ("ab1", "x" * 79 + "…", 1),
            ("a_1", "first question", 2),
        ]
        assert [entry.key for entry in await stores.index.summaries(prefix="a_")] == ["a_1"]
        assert [entry.key for entry in await stores.index.summaries(limit=1)] == ["ab1"]


class TraceSuite:
    """The contract of `TraceStore`."""

    async def test_the_stored_events_come_back_in_order(self, stores: Stores) -> None:
        """What is only published is not kept, and another task's events are its own."""
        started = RunStarted("t", 1, NOW, "s", "question")
        state = TaskStateChanged("t", 3, NOW, TaskStatus.QUEUED, TaskStatus.RUNNING)
        end = RunEnded("t", 4, NOW, TaskStatus.COMPLETED, StopReason.FINISHED, "answer", 1, Usage(1, 2))
        await stores.traces.append([started, ModelDelta("t", 2, NOW, "an")])
        await stores.traces.append([ModelDelta("t", 2, NOW, "swer")])
        await stores.traces.append([end])
        await stores.traces.append([state])
        await stores.traces.append([replace(started, task_id="u")])
        assert await stores.traces.read("t") == [started, state, end]
        assert await stores.traces.read("t", after=1) == [state, end]
        assert await stores.traces.read("t", limit=1) == [started]
        assert (await stores.traces.last_seq("t"), await stores.traces.last_seq("none")) == (4, 0)

    async def test_events_of_many_tasks_at_the_same_moment(self, stores: Stores) -> None:
        """None is lost and none is written twice."""

        async def work(name: str) -> None:
            for seq in range(1, 6):
                await stores.traces.append([StepTaken(name, seq, NOW, seq, "model", name)])

        await asyncio.gather(*(work(f"t{number}") for number in range(MANY)))
        for number in range(MANY):
            events = await stores.traces.read(f"t{number}")
            assert [(event.task_id, event.seq) for event in events] == [(f"t{number}", seq) for seq in range(1, 6)]

    async def test_a_number_is_written_once(self, stores: Stores) -> None:
        """Two owners of one task are noticed; the events beside the doubled one are not written either."""
        first, second = (StepTaken("t", seq, NOW, seq, "model", "owner") for seq in (1, 2))
        await stores.traces.append([first])
        await refused(StoreError, stores.traces.append([second, replace(first, summary="another owner")]))
        assert await stores.traces.read("t") == [first]


class JournalSuite:
    """The contract of `Journal`."""

    async def test_a_call_goes_its_way(self, stores: Stores) -> None:
        """With the times and the result of each step, in the order of the calls."""
        first, second = a_call("c2"), replace(a_call("c1", side_effects=False), state="approved")
        await stores.journal.propose([first, second])
        assert await stores.journal.of_task("task-a") == [first, second]
        await stores.journal.step([CallStep("task-a", "c1", "started", NOW + 1)])
        done = [
            CallStep("task-a", "c1", "finished", NOW + 2, result="out \u0000", is_error=True),
            CallStep("task-a", "c2", "denied", NOW + 3, result="Denied by U9."),
        ]
        await stores.journal.step(done)
        assert await stores.journal.of_task("task-a") == [
            replace(first, state="denied", result="Denied by U9.", ended_at=NOW + 3),
            replace(second, state="finished", result="out \u0000", is_error=True, started_at=NOW + 1, ended_at=NOW + 2),
        ]

    async def test_a_call_takes_the_steps_of_its_table_and_no_other(self, stores: Stores) -> None:
        """Every pair of states."""
        ways: dict[CallState, list[CallState]] = {state: _way_to(state) for state in CALL_STEPS if state is not None}
        for before, way in ways.items():
            for after in ways:
                name = f"{before}-{after}"
                await stores.journal.propose([replace(a_call(name), state=way[0])])
                for state in way[1:]:
                    await stores.journal.step([CallStep("task-a", name, state, NOW)])
                step = stores.journal.step([CallStep("task-a", name, after, NOW)])
                if after in CALL_STEPS[before]:
                    await step
                else:
                    await refused(InvalidTransition, step)
        states = {call.call.id: call.state for call in await stores.journal.of_task("task-a")}
        assert states == {
            f"{before}-{after}": after if after in CALL_STEPS[before] else before for before in ways for after in ways
        }

    async def test_steps_are_taken_all_or_none(self, stores: Stores) -> None:
        """A call that nobody has written down cannot be started."""
        await stores.journal.propose([replace(a_call(), state="approved")])
        steps = [CallStep("task-a", name, "started", NOW) for name in ("c", "unknown")]
        await refused(InvalidTransition, stores.journal.step(steps))
        assert [call.state for call in await stores.journal.of_task("task-a")] == ["approved"]
        await refused(StoreError, stores.journal.propose([a_call("new"), a_call()]))
        assert [call.call.id for call in await stores.journal.of_task("task-a")] == ["c"]
        await refused(InvalidTransition, stores.journal.propose([replace(a_call("new"), state="finished")]))

    async def test_what_was_started_and_not_finished_is_in_doubt(self, stores: Stores) -> None:
        """After a crash nobody knows; what never started, ended, or is another task's, is left alone."""
        names = ("open", "running", "ended")
        await stores.journal.propose([replace(a_call(name), state="approved") for name in names])
        await stores.journal.propose([replace(a_call("running", task="task-b"), state="approved")])
        begun = [("task-a", "running"), ("task-a", "ended"), ("task-b", "running")]
        await stores.journal.step([CallStep(task, name, "started", NOW) for task, name in begun])
        await stores.journal.step([CallStep("task-a", "ended", "finished", NOW)])
        found = await stores.journal.doubt("task-a", at=NOW + 9)
        assert [(call.call.id, call.state, call.ended_at) for call in found] == [("running", "in_doubt", NOW + 9)]
        assert await stores.journal.doubt("task-a", at=NOW + 10) == []
        states = {call.call.id: call.state for call in await stores.journal.of_task("task-a")}
        assert states == {"open": "approved", "running": "in_doubt", "ended": "finished"}
        assert [call.state for call in await stores.journal.of_task("task-b")] == ["started"]


class CardSuite:
    """The contract of `CardLedger`. Fixture: `cards`, empty."""

    card = CardRecord("k1", "task-a", "test:T1:C1/thread", NOW, {"channel": "C1", "ts": "1"})

    async def test_a_card_is_known_from_before_it_is_posted(self, cards: CardLedger) -> None:
        """Opening, open with its id and its last text, closed with its last word."""
        await cards.open(self.card)
        await cards.open(replace(self.card, task_id="task-b"))
        assert await cards.of_task("task-a") == [self.card]
        await cards.posted("k1", "m1")
        await cards.keep("k1", "so far")
        shown = replace(self.card, state="open", message_id="m1", text="so far")
        assert await cards.unfinished() == [shown]
        await cards.close("k1", "Done", at=NOW + 5)
        await cards.close("k1", "Interrupted", at=NOW + 6, text="another")
        await cards.keep("k1", "late")
        closed = replace(shown, state="closed", final="Done", closed_at=NOW + 5)
        assert await cards.of_task("task-a") == [closed]
        assert await cards.unfinished() == []

    async def test_the_answer_to_a_post_may_come_after_the_end(self, cards: CardLedger) -> None:
        """The id is worth keeping; the card stays closed."""
        await cards.open(self.card)
        await cards.close("k1", "Canceled", at=NOW, text="last")
        await cards.posted("k1", "m1")
        (card,) = await cards.of_task("task-a")
        assert (card.state, card.message_id, card.text) == ("closed", "m1", "last")

    async def test_a_card_that_is_not_known_is_passed_over(self, cards: CardLedger) -> None:
        """Retention may have been faster."""
        await cards.posted("gone", "m1")
        await cards.keep("gone", "text")
        await cards.close("gone", "Done", at=NOW)
        assert await cards.unfinished() == []

    async def test_unfinished_cards_come_oldest_first(self, cards: CardLedger) -> None:
        """Who waits longest is helped first."""
        for name, at in {"new": NOW + 1, "old": NOW - 1}.items():
            await cards.open(replace(self.card, key=name, opened_at=at))
        assert [card.key for card in await cards.unfinished()] == ["old", "new"]
        assert [card.key for card in await cards.unfinished(limit=1)] == ["old"]


class RecordSuite(TaskSuite, TraceSuite, JournalSuite, CardSuite):
    """All of it."""


def _way_to(state: CallState) -> list[CallState]:
    """Find the shortest way of a new call to a state."""
    ways: list[list[CallState]] = [[first] for first in CALL_STEPS[None]]
    for way in ways:
        if way[-1] == state:
            return way
        ways.extend([*way, following] for following in CALL_STEPS[way[-1]])
    raise AssertionError(f"nothing leads to {state}")
