"""Retry: the last request of a conversation once more, by whoever made it, until the next one."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bots.access import AccessRules
from bots.cards.strings.en import EN
from bots.gateway import Gateway, GatewayRules
from bots.gateway.answers import Answers
from bots.gateway.questions import Questions
from bots.inbound import UserRef
from bots.settings import SessionScope
from harness.admission import InProcessAdmission
from harness.engine import Engine, Limits
from harness.errors import AdmissionUnavailable, Closed
from harness.messages import UserMessage
from harness.providers.script import Fail, Say, Script
from harness.providers.scripted import ScriptedProvider
from harness.runtime import Runtime
from harness.status import TaskStatus
from harness.stores.records import TaskRecord
from harness.stores.sql import SqlStores, open_stores
from harness.tools.executor import ToolExecutor
from tests.cards.memory_ledger import MemoryCardLedger
from tests.gateway.rig import BUSY, Desk, Memory, Platform, Shared, user

FAILED: Script = [Fail("bad_request", 400)]
ANSWER: Script = [Say("Here it is.")]
TOO_LATE = EN.nothing_to_retry


class Desks(Desk):
    """A desk whose tasks are written down."""

    stores: SqlStores

    async def tasks(self) -> list[TaskRecord]:
        """The tasks of every conversation, the oldest first."""
        found = [
            task
            for summary in await self.stores.index.summaries()
            for task in await self.stores.tasks.of_session(summary.key)
        ]
        return sorted(found, key=lambda task: task.created_at)

    async def retry(self, task: TaskRecord, who: UserRef | None = None, **where: str) -> str:
        """Press Retry on the card of this task."""
        return await self.handle(self.click(task.id, who or user(), action="retry", **where))

    async def told(self) -> list[str]:
        return (await self.notices())[1]


@asynccontextmanager
async def desk(
    answers: Iterable[Script],
    folder: Path | None = None,
    *,
    access: AccessRules | None = None,
    scope: SessionScope | None = None,
) -> AsyncIterator[Desks]:
    provider, shared = ScriptedProvider(answers), Shared(InProcessAdmission())
    platform, memory, ledger = Platform(), Memory(), MemoryCardLedger()
    rules = GatewayRules(access or AccessRules(), scope)
    async with open_stores(None if folder else "sqlite:///:memory:", folder or Path()) as stores:
        engine = Engine(provider, ToolExecutor({}), Limits(), system="")
        runtime = Runtime(engine, stores.sessions, shared.admission, parking=stores.parking, records=stores)
        questions = Questions({"slack": platform}, ledger, runtime)
        deciding = Answers(runtime, questions, rules.access, lambda _name: True)
        gateway = Gateway({"slack": platform}, runtime, memory, rules, deciding, now=lambda: shared.clock[0])
        made = Desks(
            gateway, runtime, platform, memory, provider, shared.store, shared.clock, questions, ledger, shared
        )  # fmt: skip
        made.stores = stores
        try:
            yield made
        finally:
            await runtime.aclose()
            await questions.aclose()
            await gateway.aclose()


async def test_the_requester_gets_a_new_task_with_the_same_request() -> None:
    async with desk([FAILED, ANSWER]) as d:
        await d.say("Where is it?")
        await d.idle()
        [failed] = await d.tasks()
        assert await d.retry(failed) == "started"
        await d.idle()
        first, second = await d.tasks()
        assert (first.status, second.status) == (TaskStatus.FAILED, TaskStatus.COMPLETED)
        assert d.asked == ["Where is it?"] * 2
        assert second.id != first.id
        assert second.run.origin.reply_to == first.run.origin.reply_to
        assert await d.told() == []


async def test_a_second_click_does_nothing_twice_whether_it_comes_at_once_or_later() -> None:
    async with desk([FAILED, BUSY]) as d:
        await d.say()
        await d.idle()
        [failed] = await d.tasks()
        outcomes = await asyncio.gather(*(d.retry(failed) for _ in range(3)))
        assert outcomes.count("started") == 1
        await d.running(2)
        assert await d.retry(failed) != "started"
        assert len(d.provider.requests) == 2
        assert len(await d.tasks()) == 2


async def test_somebody_else_is_refused_privately() -> None:
    async with desk([FAILED]) as d:
        await d.say(who=user("alice"))
        await d.idle()
        [failed] = await d.tasks()
        assert await d.retry(failed, user("bob")) == "answered"
        assert await d.notices() == ([], [TOO_LATE])
        assert len(await d.tasks()) == 1


async def test_who_may_not_talk_here_gets_no_answer_at_all() -> None:
    async with desk([FAILED], access=AccessRules(users=frozenset({user("alice").id}))) as d:
        await d.say(who=user("alice"))
        await d.idle()
        [failed] = await d.tasks()
        assert await d.retry(failed, user("mallory")) == "refused"
        assert await d.retry(failed, user("robot", bot=True)) == "ignored"
        assert await d.notices() == ([], [])
        assert len(await d.tasks()) == 1


async def test_after_the_next_request_it_is_too_late_even_while_that_one_runs() -> None:
    async with desk([FAILED, BUSY]) as d:
        await d.say()
        await d.idle()
        [failed] = await d.tasks()
        await d.say("the next one", who=user("bob"))
        await d.running(2)
        assert await d.retry(failed) == "answered"
        assert await d.told() == [TOO_LATE]
        assert len(await d.tasks()) == 2


async def test_a_retry_that_fails_can_be_retried_by_its_own_card_and_not_by_the_old_one() -> None:
    async with desk([FAILED, FAILED, ANSWER]) as d:
        await d.say()
        await d.idle()
        [first] = await d.tasks()
        await d.retry(first)
        await d.idle()
        _, second = await d.tasks()
        assert await d.retry(first) == "answered"
        assert await d.retry(second) == "started"
        await d.idle()
        assert [task.status for task in await d.tasks()][2:] == [TaskStatus.COMPLETED]
        assert await d.told() == [TOO_LATE]


async def test_the_word_retries_the_last_request_once_however_often_it_is_delivered() -> None:
    async with desk([FAILED, ANSWER]) as d:
        await d.say("Where is it?")
        await d.idle()
        again = d.message("!retry")
        assert await d.handle(again) == "started"
        await d.idle()
        assert await d.handle(again) == "duplicate"
        assert d.asked == ["Where is it?"] * 2


async def test_the_word_where_nothing_can_be_retried_is_answered_privately() -> None:
    async with desk([BUSY]) as d:
        assert await d.say("!retry") == "answered"
        await d.say("work")
        await d.running()
        assert await d.say("!retry") == "answered"
        assert await d.notices() == ([], [TOO_LATE] * 2)
        assert d.asked == ["work"]


async def test_with_a_session_per_person_the_button_still_names_the_right_one() -> None:
    async with desk([FAILED, FAILED, ANSWER], scope="user") as d:
        await d.say("hers", who=user("alice"))
        await d.say("his", who=user("bob"))
        await d.idle()
        hers = next(task for task in await d.tasks() if task.run.prompt == "hers")
        assert await d.retry(hers, user("alice"), scope="@alice") == "started"
        await d.idle()
        assert d.asked[2:] == ["hers"]


async def test_while_the_service_stops_the_click_is_not_taken() -> None:
    async with desk([FAILED]) as d:
        await d.say()
        await d.idle()
        [failed] = await d.tasks()
        await d.runtime.aclose()
        with pytest.raises(Closed):
            await d.retry(failed)


async def test_the_failed_answer_stays_in_the_conversation_and_the_request_is_asked_again() -> None:
    async with desk([[Say("Half an "), Fail("content_filter", 400)], ANSWER]) as d:
        await d.say("Where is it?")
        await d.idle()
        [failed] = await d.tasks()
        await d.retry(failed)
        await d.idle()
        log = (await d.stores.sessions.load(failed.session_key)).messages
        assert [m.text for m in log if isinstance(m, UserMessage)] == ["Where is it?"] * 2
        assert any("Half an " in getattr(m, "text", "") for m in log)


async def test_a_word_that_the_store_cannot_serve_is_left_for_a_later_delivery(tmp_path: Path) -> None:
    async with desk([FAILED, ANSWER], tmp_path) as d:
        await d.say("Where is it?")
        await d.idle()
        again = d.message("!retry")
        written_by(tmp_path, version=99)
        with pytest.raises(AdmissionUnavailable, match="upgrade the program"):
            await d.handle(again)
        written_by(tmp_path, version=1)
        assert await d.handle(again) == "started"
        await d.idle()
        assert d.asked == ["Where is it?"] * 2


def written_by(folder: Path, *, version: int) -> None:
    """Make the tasks look as if this version of the program had written them."""
    connection = sqlite3.connect(folder / "harness.db")
    with connection:
        connection.execute("UPDATE harness_tasks SET v = ?", (version,))
    connection.close()
