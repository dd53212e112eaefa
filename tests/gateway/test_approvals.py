"""Who may answer a question for permission, where and until when; and that an answer counts once."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bots.access import AccessRules
from bots.cards.approval import QuestionState
from bots.cards.strings.en import EN
from bots.cards.strings.zh import ZH
from bots.gateway import TOO_OLD_S
from bots.inbound import MessageRecalled, MessageRef, UserRef
from harness.messages import ToolResult
from harness.providers.script import Call, Say, Script
from harness.tools.base import Tool, tool
from tests.gateway.rig import Desk, chat, desk, user

DONE: Script = [Say("Done.")]
ANYBODY = AccessRules(requester_approves=True)
CAROL = AccessRules(approvers=frozenset({"carol"}))


class Shelf:
    """One tool that only looks and one that writes, both with a question; and what they were called with."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @tool(policy="ask", read_only=True)
        async def look(text: str) -> str:
            """Look at something."""
            self.calls.append(f"look {text}")
            return "seen"

        @tool(policy="ask")
        async def write(text: str) -> str:
            """Write something."""
            self.calls.append(f"write {text}")
            return "written"

        self.tools: list[Tool] = [look, write]


def call(name: str = "write", text: str = "a") -> Script:
    return [Call(name, f'{{"text": "{text}"}}')]


def told(at: Desk) -> str:
    """What the model was told about its call."""
    result = at.provider.requests[-1].messages[-1]
    assert isinstance(result, ToolResult)
    return result.content


RULES: dict[str, AccessRules] = {
    "nobody set": AccessRules(),
    "carol approves": CAROL,
    "by platform": AccessRules(approvers=frozenset({"slack:carol"})),
    "of another platform": AccessRules(approvers=frozenset({"feishu:carol"})),
    "dave administers": AccessRules(admins=frozenset({"dave"})),
    "the requester approves": ANYBODY,
    "only alice and bob may talk": AccessRules(
        users=frozenset({"alice", "bob"}), approvers=frozenset({"carol"}), requester_approves=True
    ),
    "outsiders may talk": AccessRules(approvers=frozenset({"carol"}), allow_external=True, requester_approves=True),
}
PEOPLE: dict[str, UserRef] = {
    "alice": user("alice"),
    "bob": user("bob"),
    "carol": user("carol"),
    "dave": user("dave"),
    "carol from outside": user("carol", external=True),
    "alice from outside": user("alice", external=True),
    "a bot called carol": user("carol", bot=True),
    "a bot called alice": user("alice", bot=True),
}
# What alice asked for: (rules, tool) -> who of PEOPLE may answer. Nobody else may.
MAY: dict[tuple[str, str], set[str]] = {
    ("nobody set", "look"): {"alice"},
    ("nobody set", "write"): set(),
    ("carol approves", "look"): {"alice", "carol"},
    ("carol approves", "write"): {"carol"},
    ("by platform", "look"): {"alice", "carol"},
    ("by platform", "write"): {"carol"},
    ("of another platform", "look"): {"alice"},
    ("of another platform", "write"): set(),
    ("dave administers", "look"): {"alice", "dave"},
    ("dave administers", "write"): {"dave"},
    ("the requester approves", "look"): {"alice"},
    ("the requester approves", "write"): {"alice"},
    ("only alice and bob may talk", "look"): {"alice", "carol"},
    ("only alice and bob may talk", "write"): {"alice", "carol"},
    ("outsiders may talk", "look"): {"alice", "carol"},
    ("outsiders may talk", "write"): {"alice", "carol"},
}


@pytest.mark.parametrize("kind", ["group", "dm"])
@pytest.mark.parametrize(("rules", "name"), MAY)
async def test_who_may_answer_which_question(rules: str, name: str, kind: Any) -> None:
    shelf = Shelf()
    async with desk([call(name), DONE], access=RULES[rules], tools=shelf.tools) as at:
        assert await at.say("go", kind=kind) == "started"
        await at.question()
        for who in sorted(set(PEOPLE) - MAY[rules, name]):
            is_bot = PEOPLE[who].is_bot
            before = len(at.platform.whispered)
            assert await at.handle(at.press("allow_once", PEOPLE[who])) == ("ignored" if is_bot else "answered"), who
            _, whispered = await at.notices()
            assert whispered[before:] == ([] if is_bot else [EN.approval_not_yours]), who
        assert shelf.calls == []
        for who in sorted(MAY[rules, name])[:1]:
            assert await at.handle(at.press("allow_once", PEOPLE[who])) == "decided"
            await at.idle()
            assert shelf.calls == [f"{name} a"]
            assert (await at.shown("once")).decided_by == PEOPLE[who].id


@pytest.mark.parametrize(("rules", "name"), MAY)
async def test_each_of_those_who_may_can(rules: str, name: str) -> None:
    for who in sorted(MAY[rules, name]):
        shelf = Shelf()
        async with desk([call(name), DONE], access=RULES[rules], tools=shelf.tools) as at:
            await at.say("go")
            await at.question()
            assert await at.handle(at.press("allow_once", PEOPLE[who])) == "decided", who
            await at.idle()
            assert shelf.calls == [f"{name} a"]


async def test_a_direct_message_is_not_judged_by_the_list_of_chats() -> None:
    shelf = Shelf()
    rules = AccessRules(chats=frozenset({"C9"}), requester_approves=True)
    async with desk([call(), DONE], access=rules, tools=shelf.tools) as at:
        await at.say("go", kind="dm")
        await at.question()
        assert await at.handle(at.press("allow_once", user())) == "decided"
        await at.idle()
        assert shelf.calls == ["write a"]


# Button -> (what is shown, calls of the same kind by alice in this thread and in another that run without a question).
BUTTONS = {
    "allow_once": ("once", False, False),
    "allow_session": ("session", True, False),
    "allow_always": ("always", True, True),
}


@pytest.mark.parametrize("action", BUTTONS)
async def test_how_far_each_permission_reaches(action: str) -> None:
    state, here, elsewhere = BUTTONS[action]
    shelf = Shelf()
    async with desk([call(), DONE] * 3, access=CAROL, tools=shelf.tools) as at:
        await at.say("go")
        await at.question()
        assert await at.handle(at.press(action, user("carol"))) == "decided"
        await at.idle()
        await at.shown(state)
        for thread, free in (("m1", here), ("m7", elsewhere)):
            ran, asked = len(shelf.calls), len(at.platform.questions)
            await at.say("again", thread=thread)
            await at.until(lambda ran=ran, asked=asked: len(shelf.calls) > ran or len(at.platform.questions) > asked)
            assert (len(shelf.calls) > ran) is free
            if not free:
                await at.question(f"q{asked + 1}")
                await at.handle(at.press("deny", user("carol"), message=f"q{asked + 1}"))
            await at.idle()


async def test_a_denial_is_told_to_the_model_and_the_run_goes_on() -> None:
    shelf = Shelf()
    async with desk([call(), DONE], access=CAROL, tools=shelf.tools) as at:
        await at.say("go")
        await at.question()
        assert await at.handle(at.press("deny", user("carol"))) == "decided"
        await at.idle()
        assert shelf.calls == []
        assert "Denied by slack:carol." in told(at)
        shown = await at.shown("denied")
        assert (shown.decided_by, shown.reason) == ("slack:carol", "")


async def test_of_many_clicks_at_once_one_counts_and_the_others_hear_so() -> None:
    shelf = Shelf()
    async with desk([call(), DONE], access=CAROL, tools=shelf.tools) as at:
        await at.say("go")
        await at.question()
        actions = ["allow_once", "deny", "allow_always", "allow_session", "allow_once"]
        outcomes = await asyncio.gather(*(at.handle(at.press(action, user("carol"))) for action in actions))
        assert sorted(outcomes) == ["answered"] * 4 + ["decided"]
        _, whispered = await at.notices()
        assert whispered == [EN.approval_decided] * 4
        await at.idle()
        winner = actions[outcomes.index("decided")]
        assert shelf.calls == ([] if winner == "deny" else ["write a"])


async def test_a_late_click_is_told_what_became_of_the_question() -> None:
    async with desk([call(), DONE], access=CAROL, tools=Shelf().tools, approval_timeout_s=0.05) as at:
        await at.say("go")
        await at.shown_after_posting("expired")
        click = at.press("allow_once", user("carol"))
        assert await at.handle(click) == "answered"
        assert await at.handle(replace(click, user=user("mallory"))) == "answered"
        _, whispered = await at.notices()
        assert whispered == [EN.approval_expired] * 2
        await at.idle()
        assert "in time" in told(at)


async def test_a_click_after_the_time_is_up_counts_for_nothing_although_nobody_has_noted_it_yet() -> None:
    shelf = Shelf()
    async with desk([call(), DONE], access=CAROL, tools=shelf.tools) as at:
        await at.say("go")
        view = await at.question()
        at.shared.ahead[0] = 601.0
        assert (await at.row(view.id)).status == "pending"
        assert await at.handle(at.press("allow_once", user("carol"))) == "answered"
        assert (await at.notices())[1] == [EN.approval_expired]
        assert shelf.calls == []


FOREIGN: dict[str, dict[str, Any]] = {
    "a forwarded copy in the same chat": {"message": "m77"},
    "a forwarded copy in another chat": {"place": chat(id="C2", thread="m1")},
    "a copy in a direct message": {"place": chat("dm")},
    "another workspace": {"place": replace(chat(thread="m1"), tenant="T2")},
    "no message at all": {"message": ""},
}


@pytest.mark.parametrize("case", FOREIGN)
async def test_a_button_counts_only_where_the_question_was_asked(case: str) -> None:
    shelf = Shelf()
    async with desk([call(), DONE], access=CAROL, tools=shelf.tools) as at:
        await at.say("go")
        view = await at.question()
        click = at.press("allow_once", user("carol"), value=view.id, **FOREIGN[case])
        assert await at.handle(click) == "answered"
        assert (await at.notices())[1] == [EN.approval_elsewhere]
        assert (await at.row(view.id)).status == "pending"
        assert await at.handle(at.press("allow_once", user("carol"))) == "decided"
        await at.idle()
        assert shelf.calls == ["write a"]


@pytest.mark.parametrize("value", ["", "0" * 32, "x", "../q1", "{code}"])
async def test_a_forged_value_is_no_question(value: str) -> None:
    async with desk([call(), DONE], access=CAROL, tools=Shelf().tools) as at:
        await at.say("go")
        view = await at.question()
        # The code is for people who type: a button that carries it was not made by us.
        click = at.press("allow_once", user("carol"), value=value.format(code=view.code))
        assert await at.handle(click) == "answered"
        assert (await at.notices())[1] == [EN.approval_unknown]
        assert (await at.row(view.id)).status == "pending"


async def test_an_unknown_verb_is_ignored() -> None:
    async with desk([call(), DONE], access=CAROL, tools=Shelf().tools) as at:
        await at.say("go")
        view = await at.question()
        for verb in ("allow", "once", "allow_onces", ""):
            assert await at.handle(at.press(verb, user("carol"))) == "ignored"
        assert (await at.row(view.id)).status == "pending"


# Typed answers: (message, outcome, decision). {code} is the question's.
TYPED: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "approve": ({"text": "/approve {code}"}, "decided", "once"),
    "approve with an exclamation mark": ({"text": "!approve {code}"}, "decided", "once"),
    "lower case, as people type": ({"text": "!APPROVE {lower}"}, "decided", "once"),
    "the code as it was shown": ({"text": "!approve `{code}`"}, "decided", "once"),
    "deny": ({"text": "/deny {code}"}, "decided", "deny"),
    "deny with a reason": ({"text": "!deny {code} not\nthat file: mine"}, "decided", "deny"),
    "without a mention, in the thread": (
        {"text": "!approve {code}", "mention": False, "in_thread": True}, "decided", "once",
    ),
    "without a mention, elsewhere in the chat": (
        {"text": "!approve {code}", "mention": False, "thread": "m9"}, "decided", "once",
    ),
    "as a slash command, which has no thread": ({"text": "/approve {code}", "thread": ""}, "decided", "once"),
    "in another chat": ({"text": "!approve {code}", "where": "C2"}, "answered", None),
    "in another chat, without a mention": (
        {"text": "!approve {code}", "where": "C2", "mention": False}, "ignored", None,
    ),
    "in a direct message": ({"text": "!approve {code}", "kind": "dm"}, "answered", None),
    "no code": ({"text": "!approve"}, "answered", None),
    "another code": ({"text": "!approve AAAAAA"}, "answered", None),
    "another code, without a mention": ({"text": "!approve AAAAAA", "mention": False}, "ignored", None),
    "the id is not for typing": ({"text": "!approve {id}"}, "answered", None),
    "by somebody who may not": ({"text": "!approve {code}", "who": user("bob")}, "answered", None),
    "by the requester": ({"text": "!approve {code}", "who": user("alice")}, "answered", None),
    "by a bot": ({"text": "!approve {code}", "who": user("carol", bot=True)}, "ignored", None),
    "by an outsider": ({"text": "!approve {code}", "who": user("carol", external=True)}, "answered", None),
    "much too late": ({"text": "!approve {code}", "age": TOO_OLD_S + 1}, "answered", None),
    "much too late, without a mention": (
        {"text": "!approve {code}", "age": TOO_OLD_S + 1, "mention": False}, "ignored", None,
    ),
    "as part of a sentence": ({"text": "please !approve {code}"}, "queued", None),
}  # fmt: skip


@pytest.mark.parametrize("case", TYPED)
async def test_typed_answers(case: str) -> None:
    options, outcome, decision = TYPED[case]
    shelf = Shelf()
    async with desk([call(), DONE], access=CAROL, tools=shelf.tools) as at:
        await at.say("go")
        view = await at.question()
        text = options["text"].format(code=view.code, lower=view.code.lower(), id=view.id)
        assert await at.say(**{"who": user("carol"), **options, "text": text}) == outcome
        row = await at.row(view.id)
        assert row.decision == decision
        if decision:
            await at.idle()
            assert shelf.calls == (["write a"] if decision == "once" else [])
            # The same message once more: an answer to nobody.
            whispered = (await at.notices())[1]
            assert await at.handle(at.sent[-1]) == "duplicate"
            assert (await at.notices())[1] == whispered == []


async def test_the_reason_of_a_denial_is_told_to_the_model_and_shown() -> None:
    async with desk([call(), DONE], access=CAROL, tools=Shelf().tools) as at:
        await at.say("go")
        view = await at.question()
        await at.say(f"!deny {view.code} not  that\nfile: it is mine", who=user("carol"))
        await at.idle()
        assert "Denied by slack:carol: not that file: it is mine." in told(at)
        shown = await at.shown("denied")
        assert (shown.decided_by, shown.reason) == ("slack:carol", "not that file: it is mine")


async def test_who_may_not_talk_may_still_answer_when_listed_and_nobody_else_learns_anything() -> None:
    access = AccessRules(users=frozenset({"alice"}), approvers=frozenset({"carol"}))
    async with desk([call(), DONE], access=access, tools=Shelf().tools) as at:
        await at.say("go")
        view = await at.question()
        assert await at.say(f"!approve {view.code}", who=user("mallory")) == "refused"
        assert await at.notices() == ([], [])
        assert await at.say(f"!approve {view.code}", who=user("carol")) == "decided"


async def test_notices_speak_the_language_of_the_question() -> None:
    async with desk([call(), DONE], access=CAROL, tools=Shelf().tools, language="zh") as at:
        await at.say("go")
        await at.question()
        assert at.platform.questions["q1"].language == "zh"
        await at.handle(at.press("allow_once", user("bob")))
        assert (await at.notices())[1] == [ZH.approval_not_yours]


# How a run that waits is ended: by whom, and how.
async def _stop_word(at: Desk) -> None:
    assert await at.say("stop") == "stopped"


async def _recall(at: Desk) -> None:
    assert await at.handle(MessageRecalled(MessageRef(chat(thread="m1"), "m1"))) == "stopped"


async def _shutdown(at: Desk) -> None:
    await at.runtime.aclose()


@pytest.mark.parametrize("end", [_stop_word, _recall, _shutdown])
async def test_a_run_that_is_ended_takes_its_question_along(end: Any) -> None:
    shelf = Shelf()
    async with desk([call(), DONE], access=CAROL, tools=shelf.tools) as at:
        await at.say("go")
        view = await at.question()
        await end(at)
        await at.shown("void")
        assert await at.handle(at.press("allow_once", user("carol"))) == "answered"
        assert await at.say(f"!approve {view.code}", who=user("carol")) == "answered"
        assert (await at.notices())[1] == [EN.approval_void] * 2
        await at.idle()
        assert shelf.calls == []


async def test_with_the_answer_the_question_goes_too_when_a_recall_deletes_replies() -> None:
    async with desk([call(), DONE], access=CAROL, tools=Shelf().tools, remove_on_recall=True) as at:
        await at.say("go")
        await at.question()
        await _recall(at)
        await at.until(lambda: not at.platform.questions)
        await at.idle()
        assert await at.ledger.unfinished() == []


async def test_several_calls_have_a_question_each_and_run_when_all_are_answered() -> None:
    shelf = Shelf()
    two: Script = [Call("write", '{"text": "a"}'), Call("write", '{"text": "b"}')]
    async with desk([two, DONE], access=CAROL, tools=shelf.tools) as at:
        await at.say("go")
        await at.question("q2")
        by_text = {str(p.view.arguments[0].value): name for name, p in at.platform.questions.items()}
        await at.handle(at.press("allow_once", user("carol"), message=by_text["b"]))
        # The button of one question does nothing for the other.
        crossed = at.press("allow_once", user("carol"), message=by_text["a"])
        crossed = replace(crossed, value=at.platform.questions[by_text["b"]].view.id)
        assert await at.handle(crossed) == "answered"
        assert shelf.calls == []
        await at.handle(at.press("deny", user("carol"), message=by_text["a"]))
        await at.idle()
        assert shelf.calls == ["write b"]
        assert [p.view.state for p in at.platform.questions.values()] != [QuestionState.PENDING] * 2
