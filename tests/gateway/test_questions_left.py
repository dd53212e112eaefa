"""A question that a process wanted to post when it died is posted by the next one, and stands once."""

import time

import pytest

from bots.gateway.questions import Questions
from harness.stores.records import CardRecord
from tests.cards.memory_ledger import MemoryCardLedger
from tests.gateway.rig import Desk, desk, user
from tests.gateway.test_questions import CAROL, DONE, WRITE, pen

DEADLINE_S = 5.0


async def left_by_another(at: Desk, *, seconds_ago: float) -> tuple[Questions, MemoryCardLedger]:
    """What the next process finds of the question that waits: it was about to be posted, so long ago."""
    [known] = await at.ledger.unfinished()
    ledger = MemoryCardLedger()
    opened_at = time.time() - seconds_ago
    await ledger.open(CardRecord(known.key, known.task_id, known.session_key, opened_at, known.place))
    return Questions({"slack": at.platform}, ledger, at.runtime, post_deadline_s=DEADLINE_S), ledger


async def after_a_sweep(at: Desk, questions: Questions) -> None:
    await questions.settle_left()
    await at.until(lambda: not len(questions))
    await questions.aclose()


@pytest.mark.parametrize("had_arrived", [True, False], ids=["posted before the end", "not posted"])
async def test_it_is_asked_again_unless_it_stands_already(had_arrived: bool) -> None:
    written: list[str] = []
    async with desk([WRITE, DONE], access=CAROL, tools=pen(written)) as at:
        await at.say("go")
        before = await at.question()
        questions, ledger = await left_by_another(at, seconds_ago=2 * DEADLINE_S)
        if not had_arrived:
            at.platform.questions.clear()
        await after_a_sweep(at, questions)
        [(message, posted)] = at.platform.questions.items()
        assert posted.view.id == before.id
        [record] = await ledger.unfinished()
        assert (record.state, record.message_id) == ("open", message)
        assert written == []
        assert await at.handle(at.press("allow_once", user("carol"))) == "decided"
        await at.idle()
        assert written == ["a"]


async def test_it_is_left_alone_while_whoever_posts_it_may_still_be_at_it() -> None:
    async with desk([WRITE, DONE], access=CAROL, tools=pen([])) as at:
        await at.say("go")
        await at.question()
        questions, ledger = await left_by_another(at, seconds_ago=0)
        at.platform.questions.clear()
        await after_a_sweep(at, questions)
        assert at.platform.questions == {}
        assert [record.state for record in await ledger.unfinished()] == ["opening"]
