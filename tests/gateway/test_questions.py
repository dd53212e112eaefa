"""The messages of questions: one at most, up to date in the end, and no run that waits for what nobody can see."""

from collections.abc import Sequence

import pytest

from bots.access import AccessRules
from bots.cards.strings.en import EN
from bots.errors import (
    ChatGone,
    MessageGone,
    NotAuthorised,
    PlatformError,
    QuestionTooLong,
    RateLimited,
    Refused,
    Unavailable,
)
from bots.gateway.questions import NOT_POSTED, TOO_LONG
from harness.admission import InProcessAdmission
from harness.messages import ToolResult
from harness.providers.script import Call, Say, Script
from harness.tools.base import Tool, tool
from tests.gateway.rig import Desk, Shared, desk, user

DONE: Script = [Say("Done.")]
WRITE: Script = [Call("write", '{"text": "a"}')]
CAROL = AccessRules(approvers=frozenset({"carol"}))


def pen(written: list[str]) -> list[Tool]:
    @tool(policy="ask")
    async def write(text: str) -> str:
        """Write something."""
        written.append(text)
        return "written"

    return [write]


def told(at: Desk) -> str:
    result = at.provider.requests[-1].messages[-1]
    assert isinstance(result, ToolResult)
    return result.content


AGAIN: dict[str, list[PlatformError]] = {
    "too many calls": [RateLimited("wait", seconds=0.01), RateLimited("wait", seconds=0.01)],
    "the platform failed": [Unavailable("503", ambiguous=False)],
    "the answer to the post was lost": [Unavailable("reset", ambiguous=True)],
}


@pytest.mark.parametrize("case", AGAIN)
async def test_a_post_that_fails_is_repeated_and_there_is_one_question(case: str) -> None:
    written: list[str] = []
    async with desk([WRITE, DONE], access=CAROL, tools=pen(written)) as at:
        at.platform.post_errors = list(AGAIN[case])
        await at.say("go")
        await at.question()
        assert list(at.platform.questions) == ["q1"]
        assert await at.handle(at.press("allow_once", user("carol"))) == "decided"
        await at.idle()
        assert written == ["a"]
        assert at.platform.questions["q1"].states[-1] == "once"


HOPELESS: dict[str, PlatformError] = {
    "refused": Refused("no", code="invalid_blocks"),
    "not authorised": NotAuthorised("no"),
    "the chat is gone": ChatGone("gone"),
    "away for too long": RateLimited("wait", seconds=3600),
}


@pytest.mark.parametrize("case", HOPELESS)
async def test_a_question_that_cannot_be_posted_is_a_denial_and_the_run_goes_on(case: str) -> None:
    written: list[str] = []
    async with desk([WRITE, DONE], access=CAROL, tools=pen(written)) as at:
        at.platform.post_errors = [HOPELESS[case]]
        await at.say("go")
        await at.until(lambda: len(at.provider.requests) == 2)
        await at.idle()
        assert NOT_POSTED in told(at)
        assert written == []
        assert at.platform.questions == {}
        assert await at.ledger.unfinished() == []


async def test_what_cannot_be_shown_whole_is_not_asked_and_people_and_model_hear_why() -> None:
    written: list[str] = []
    async with desk([WRITE, DONE], access=CAROL, tools=pen(written)) as at:
        at.platform.post_errors = [QuestionTooLong("too long")]
        await at.say("go")
        await at.until(lambda: len(at.provider.requests) == 2)
        await at.idle()
        assert TOO_LONG in told(at)
        assert written == []
        [(address, text)] = at.platform.said
        assert (address.thread, text) == ("m1", EN.question_too_long.format(tool="write"))


async def test_where_nobody_can_say_what_arrived_the_question_is_not_posted_twice() -> None:
    written: list[str] = []
    async with desk([WRITE, DONE], access=CAROL, tools=pen(written), post_deadline_s=0.1) as at:
        at.platform.post_errors = [Unavailable("reset", ambiguous=True)]
        at.platform.can_find = False
        await at.say("go")
        await at.until(lambda: len(at.provider.requests) == 2)
        await at.idle()
        assert NOT_POSTED in told(at)
        assert list(at.platform.questions) == ["q1"], "it had arrived"
        assert at.platform.questions["q1"].states == ["pending"]
        # When the platform can be read again, the buttons go.
        at.platform.can_find = True
        await at.questions.settle_left()
        await at.shown("denied")
        await at.idle()
        assert await at.ledger.unfinished() == []


EDITS: dict[str, Sequence[PlatformError]] = {
    "too many calls": [RateLimited("wait", seconds=0.01)] * 3,
    "the platform failed": [Unavailable("503", ambiguous=True)],
}


@pytest.mark.parametrize("case", EDITS)
async def test_an_edit_that_fails_is_repeated_and_the_run_does_not_wait_for_it(case: str) -> None:
    written: list[str] = []
    async with desk([WRITE, DONE], access=CAROL, tools=pen(written)) as at:
        await at.say("go")
        await at.question()
        at.platform.edit_errors = list(EDITS[case])
        assert await at.handle(at.press("allow_once", user("carol"))) == "decided"
        await at.until(lambda: written == ["a"])
        await at.shown("once")
        await at.idle()
        assert at.platform.questions["q1"].states == ["pending", "once"]


@pytest.mark.parametrize("error", [MessageGone("gone"), ChatGone("gone"), Refused("no"), NotAuthorised("no")])
async def test_an_edit_that_makes_no_sense_is_not_repeated(error: PlatformError) -> None:
    async with desk([WRITE, DONE], access=CAROL, tools=pen([])) as at:
        await at.say("go")
        await at.question()
        at.platform.edit_errors = [error]
        await at.handle(at.press("deny", user("carol")))
        await at.idle()
        assert at.platform.questions["q1"].states == ["pending"]
        assert await at.ledger.unfinished() == []


async def test_a_decided_question_is_edited_once_however_many_tell_of_it() -> None:
    async with desk([WRITE, DONE], access=CAROL, tools=pen([])) as at:
        await at.say("go")
        view = await at.question()
        await at.handle(at.press("allow_session", user("carol")))
        await at.idle()
        task = (await at.row(view.id)).task_id
        at.questions.settle(view.id, task)
        at.questions.settle_task(task)
        await at.questions.settle_left()
        await at.idle()
        assert at.platform.questions["q1"].states == ["pending", "session"]


async def test_a_question_that_is_told_of_again_is_not_posted_again() -> None:
    async with desk([WRITE, DONE], access=CAROL, tools=pen([])) as at:
        await at.say("go")
        view = await at.question()
        row, address = await at.row(view.id), at.platform.questions["q1"].address
        at.questions.ask(row, address, "en")
        at.questions.ask(row, address, "en")
        await at.idle()
        assert list(at.platform.questions) == ["q1"]
        assert (await at.row(view.id)).status == "pending"


async def test_another_replica_takes_the_answer_and_brings_the_message_up_to_date() -> None:
    written: list[str] = []
    common = Shared(InProcessAdmission())
    async with (
        desk([WRITE], access=CAROL, tools=pen(written), shared=common) as one,
        desk([DONE], access=CAROL, tools=pen(written), shared=common) as two,
    ):
        await one.say("go")
        view = await one.question()
        assert await two.handle(two.press("allow_once", user("bob"))) == "answered"
        assert await two.handle(two.press("allow_once", user("carol"))) == "decided"
        await two.shown("once")
        await two.idle()
        assert written == ["a"]
        assert await one.handle(one.press("deny", user("carol"), value=view.id)) == "answered"
        assert (await one.notices())[1] == [EN.approval_not_yours, EN.approval_decided]


async def test_a_decision_whose_process_died_before_the_edit_is_shown_by_the_next_round() -> None:
    common = Shared(InProcessAdmission())
    async with (
        desk([WRITE, DONE], access=CAROL, tools=pen([]), shared=common) as one,
        desk([], access=CAROL, tools=pen([]), shared=common) as two,
    ):
        await one.say("go")
        view = await one.question()
        await two.questions.settle_left()
        await two.idle()
        assert common.platform.questions["q1"].states == ["pending"], "still open"
        # Decided in the store, and nothing else.
        await common.parking.decide(view.id, "deny", by="slack:carol", now=0.0)
        await two.questions.settle_left()
        await two.shown("denied")


async def test_a_post_of_which_only_the_first_half_was_written_down_is_found_by_its_click() -> None:
    written: list[str] = []
    common = Shared(InProcessAdmission())
    async with desk([WRITE, DONE], access=CAROL, tools=pen(written), shared=common) as at:
        await at.say("go")
        view = await at.question()
        # The process that posted was killed before it could note where.
        await common.ledger.posted(view.id, "")
        assert await at.handle(at.press("allow_once", user("carol"), message="m9", value=view.id)) == "answered"
        assert await at.handle(at.press("allow_once", user("carol"))) == "decided"
        await at.shown("once")
        await at.idle()
        assert written == ["a"]


async def test_a_run_that_was_stopped_before_its_question_was_posted_posts_none() -> None:
    async with desk([WRITE, DONE], access=CAROL, tools=pen([])) as at:
        at.platform.post_errors = [RateLimited("wait", seconds=0.2)]
        await at.say("go")
        await at.until(lambda: not at.platform.post_errors)
        assert await at.say("stop") == "stopped"
        await at.idle()
        assert at.platform.questions == {}
        assert await at.ledger.unfinished() == []


async def test_the_card_waits_and_goes_on() -> None:
    async with desk([[Say("I will. "), *WRITE], DONE], access=CAROL, tools=pen([])) as at:
        await at.say("go")
        await at.question()
        [surface] = at.platform.surfaces.values()
        await at.until(lambda: surface.view is not None and surface.view.phase == "waiting")
        await at.handle(at.press("allow_once", user("carol")))
        await at.until(lambda: surface.view is not None and surface.view.phase == "done")
        assert surface.view is not None
        assert surface.view.text == "I will. \n\nDone."
        assert len(at.platform.surfaces) == 1
