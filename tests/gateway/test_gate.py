"""One gate: every kind of event, every reason to let it through or not, with the real runtime behind it."""

import asyncio
from typing import Any

import pytest

from bots.access import AccessRules
from bots.cards.strings.en import EN
from bots.cards.strings.zh import ZH
from bots.coordination.keys import session_key
from bots.errors import NotAuthorised, RateLimited
from bots.gateway import TOO_OLD_S
from bots.inbound import (
    BotRemoved,
    Inbound,
    MessageEdited,
    MessageRecalled,
    MessageRef,
    StopRequested,
)
from harness.errors import AdmissionUnavailable, Closed
from harness.messages import UserMessage
from harness.providers.script import Say
from harness.status import TaskStatus
from tests.gateway.rig import Desk, chat, desk, user

ONLY_ALICE = AccessRules(users=frozenset({"alice"}))
BOB_IS_ADMIN = AccessRules(admins=frozenset({"slack:bob"}))
ENGAGED = session_key("slack", "T", "C1", "m1")

# Messages: (rules, message, outcome, said to all, said privately).
MESSAGES: dict[str, tuple[AccessRules, dict[str, Any], str, list[str], list[str]]] = {
    "a mention": (AccessRules(), {}, "started", [], []),
    "no mention": (AccessRules(), {"mention": False}, "ignored", [], []),
    "no mention, none required": (AccessRules(require_mention=False), {"mention": False}, "started", [], []),
    "a direct message": (AccessRules(), {"kind": "dm", "mention": False}, "started", [], []),
    "a thread without the bot": (
        AccessRules(),
        {"mention": False, "in_thread": True, "thread": "m9"},
        "ignored",
        [],
        [],
    ),
    "a thread with the bot": (AccessRules(), {"mention": False, "in_thread": True}, "started", [], []),
    "the root of a thread with the bot": (AccessRules(), {"mention": False}, "ignored", [], []),
    "a bot": (AccessRules(), {"who": user("other", bot=True)}, "ignored", [], []),
    "a bot in a direct message": (AccessRules(), {"who": user("other", bot=True), "kind": "dm"}, "ignored", [], []),
    "a bot that says stop": (AccessRules(), {"who": user("other", bot=True), "text": "stop"}, "ignored", [], []),
    "from outside": (AccessRules(), {"who": user("eve", external=True)}, "refused", [], []),
    "from outside, direct": (AccessRules(), {"who": user("eve", external=True), "kind": "dm"}, "refused", [], []),
    "from outside, allowed": (AccessRules(allow_external=True), {"who": user("eve", external=True)}, "started", [], []),
    "from outside, no mention": (
        AccessRules(),
        {"who": user("eve", external=True), "mention": False},
        "ignored",
        [],
        [],
    ),
    "a stranger": (ONLY_ALICE, {"who": user("mallory")}, "refused", [], []),
    "a stranger, direct": (ONLY_ALICE, {"who": user("mallory"), "kind": "dm"}, "refused", [], [EN.no_access]),
    "a stranger in a thread": (
        ONLY_ALICE,
        {"who": user("mallory"), "mention": False, "in_thread": True},
        "refused",
        [],
        [],
    ),
    "a stranger asks for help": (ONLY_ALICE, {"who": user("mallory"), "text": "/help"}, "refused", [], []),
    "a chat that is not listed": (AccessRules(chats=frozenset({"C2"})), {}, "refused", [], []),
    "a direct message with a list of chats": (AccessRules(chats=frozenset({"C2"})), {"kind": "dm"}, "started", [], []),
    "an administrator anywhere": (
        AccessRules(frozenset({"alice"}), frozenset({"C2"}), frozenset({"bob"})),
        {"who": user("bob")},
        "started",
        [],
        [],
    ),
    "a mention and no text": (AccessRules(), {"text": ""}, "answered", [EN.help], []),
    "help": (AccessRules(), {"text": "/help"}, "answered", [EN.help], []),
    "a voice message": (AccessRules(), {"text": "", "unsupported": "audio"}, "answered", [EN.unsupported], []),
    "a picture with a text": (AccessRules(), {"text": "what is this?", "unsupported": "image"}, "started", [], []),
    "a voice message for others": (
        AccessRules(),
        {"text": "", "unsupported": "audio", "mention": False},
        "ignored",
        [],
        [],
    ),
    "too old": (AccessRules(), {"age": TOO_OLD_S + 1}, "answered", [EN.too_old], []),
    "just in time": (AccessRules(), {"age": TOO_OLD_S - 1}, "started", [], []),
    "from a clock ahead of ours": (AccessRules(), {"age": -3600}, "started", [], []),
    "too old, for others": (AccessRules(), {"age": TOO_OLD_S + 1, "mention": False}, "ignored", [], []),
    "status": (AccessRules(), {"text": "/status"}, "answered", [EN.status_idle], []),
    "new": (AccessRules(), {"text": "/new"}, "answered", [EN.conversation_cleared], []),
    "new, for others": (AccessRules(), {"text": "/new", "mention": False}, "ignored", [], []),
    "stop, nothing to stop": (AccessRules(), {"text": "stop"}, "answered", [], [EN.nothing_to_stop]),
    "stop, for others": (AccessRules(), {"text": "stop", "mention": False}, "ignored", [], []),
    "stop the music": (AccessRules(), {"text": "stop the music"}, "started", [], []),
}


@pytest.mark.parametrize("case", MESSAGES)
async def test_messages(case: str) -> None:
    access, message, outcome, said, whispered = MESSAGES[case]
    async with desk(access=access) as at:
        at.memory.threads.add(ENGAGED)
        assert await at.say(**message) == outcome
        assert await at.notices() == (said, whispered)
        tasks = at.runtime.live_tasks
        assert len(tasks) == (outcome == "started")
        # The same event once more: nothing may happen twice.
        again = await at.handle(at.sent[0])
        assert again == "duplicate" if outcome in ("started", "answered") else again in (outcome, "duplicate")
        assert await at.notices() == (said, whispered)
        assert list(at.runtime.live_tasks) == list(tasks)


# Everybody but those who may: (rules, who, may stop what alice asked for).
WHO = {
    "the requester": (AccessRules(), user("alice"), True),
    "somebody else": (AccessRules(), user("mallory"), False),
    "from outside": (AccessRules(), user("eve", external=True), False),
    "a bot": (AccessRules(), user("alice", bot=True), False),
    "an administrator": (BOB_IS_ADMIN, user("bob"), True),
    "an administrator who is a bot": (BOB_IS_ADMIN, user("bob", bot=True), False),
    "the requester, not allowed to talk any more": (AccessRules(users=frozenset({"bob"})), user("alice"), True),
}


@pytest.mark.parametrize("case", WHO)
async def test_who_may_press_stop(case: str) -> None:
    access, who, may = WHO[case]
    async with desk(access=access) as at:
        (task,) = await _alice_runs(at)
        outcome = await at.handle(at.click(task.id, who))
        if may:
            assert outcome == "stopped"
            assert await at.statuses(task) == [TaskStatus.CANCELED]
            assert task.stopped_by == who.id
            assert (await at.notices())[1] == []
            return
        assert outcome == ("ignored" if who.is_bot else "answered")
        assert (await at.notices())[1] == ([] if who.is_bot else [EN.not_yours])
        assert not task.is_done


@pytest.mark.parametrize("mention", [False, True])
@pytest.mark.parametrize("case", WHO)
async def test_who_may_say_stop(case: str, mention: bool) -> None:
    access, who, may = WHO[case]
    async with desk(access=access) as at:
        (task,) = await _alice_runs(at)
        outcome = await at.say("Stop!", who=who, mention=mention)
        if may and (not mention or access.may_talk(who, chat())):
            assert outcome == "stopped"
            assert await at.statuses(task) == [TaskStatus.CANCELED]
            assert at.platform.whispered == []
            return
        assert outcome != "stopped"
        assert not task.is_done
        said, whispered = await at.notices()
        assert said == []
        # Without a mention it was a word among others; with one, whoever may talk is told why not.
        assert whispered == ([EN.not_yours] if mention and access.may_talk(who, chat()) else [])


@pytest.mark.parametrize("case", [name for name in WHO if "bot" not in name])
async def test_who_may_use_the_platforms_own_stop(case: str) -> None:
    access, who, may = WHO[case]
    async with desk(access=access) as at:
        (task,) = await _alice_runs(at)
        outcome = await at.handle(StopRequested(chat(thread="m1"), who))
        assert (outcome == "stopped") is may
        assert (await at.notices())[1] == ([] if may else [EN.not_yours])
        if may:
            assert await at.statuses(task) == [TaskStatus.CANCELED]


# What a click does when it is not a stop of something live.
CLICKS = {
    "an unknown verb": (lambda at, task: at.click(task.id, user(), action="launch"), "ignored", []),
    "an unknown task": (lambda at, task: at.click("nobody", user()), "answered", [EN.nothing_to_stop]),
    "no task": (lambda at, task: at.click("", user()), "answered", [EN.nothing_to_stop]),
    "in another session": (
        lambda at, task: at.click(task.id, user(), scope="m7"),
        "answered",
        [EN.nothing_to_stop],
    ),
    "by a bot": (lambda at, task: at.click(task.id, user("alice", bot=True)), "ignored", []),
}  # fmt: skip


@pytest.mark.parametrize("case", CLICKS)
async def test_other_clicks_stop_nothing(case: str) -> None:
    make, outcome, whispered = CLICKS[case]
    async with desk() as at:
        (task,) = await _alice_runs(at)
        assert await at.handle(make(at, task)) == outcome
        assert (await at.notices())[1] == whispered
        assert not task.is_done


async def test_a_click_after_the_end_says_so() -> None:
    async with desk([[Say("done")]]) as at:
        await at.say()
        (task,) = at.runtime.live_tasks
        await at.statuses(task)
        assert await at.handle(at.click(task.id, user())) == "answered"
        assert (await at.notices())[1] == [EN.nothing_to_stop]


# --- queue ---


async def test_messages_of_one_thread_wait_for_each_other_and_threads_do_not() -> None:
    async with desk() as at:
        assert await at.say("one") == "started"
        assert await at.say("two") == "queued"
        assert await at.say("other", thread="m9") == "started"
        assert await at.say("direct", kind="dm") == "started"
        await at.running(3)
        assert sorted(at.asked) == ["direct", "one", "other"]


async def test_a_click_takes_a_waiting_message_out() -> None:
    async with desk() as at:
        await _alice_runs(at)
        await at.say("second", who=user("bob"))
        waiting = (await at.runtime.activity(ENGAGED)).waiting[0]
        assert await at.handle(at.click(waiting.task_id, user("mallory"))) == "answered"
        assert await at.handle(at.click(waiting.task_id, user("bob"))) == "stopped"
        assert (await at.runtime.activity(ENGAGED)).waiting == ()


async def test_stop_ends_what_runs_and_said_again_drops_ones_own_waiting_messages() -> None:
    async with desk() as at:
        (first,) = await _alice_runs(at)
        await at.say("second")
        await at.say("bobs", who=user("bob"))
        await at.say("third")
        assert await at.say("stop", mention=False) == "stopped"
        assert await at.statuses(first) == [TaskStatus.CANCELED]
        await at.running(2)
        assert await at.say("stop", mention=False) == "stopped"
        await at.running(3)
        assert (await at.notices())[1] == [EN.queue_cleared.format(count=1)]
        assert at.asked == ["hello", "second", "bobs"], "bob's message was not alice's to drop"


async def test_who_only_waits_leaves_the_queue_with_one_stop_and_stops_nobody_else() -> None:
    async with desk() as at:
        (first,) = await _alice_runs(at)
        await at.say("bobs", who=user("bob"))
        assert await at.say("stop", who=user("bob"), mention=False) == "stopped"
        assert (await at.notices())[1] == [EN.queue_cleared.format(count=1)]
        assert not first.is_done
        assert (await at.runtime.activity(ENGAGED)).waiting == ()


async def test_a_full_queue_and_a_busy_thread_say_so_once() -> None:
    async with desk(queue_cap=1) as at:
        await _alice_runs(at)
        assert await at.say("second") == "queued"
        assert await at.say("third") == "refused"
        assert await at.handle(at.sent[-1]) == "duplicate"
        assert (await at.notices())[0] == [EN.queue_full]
    async with desk(busy_policy="reject") as at:
        await _alice_runs(at)
        assert await at.say("second") == "refused"
        assert (await at.notices())[0] == [EN.busy]


# --- recall, edit, removal ---


async def test_a_recall_stops_a_running_task_drops_a_waiting_one_and_is_remembered_for_one_to_come() -> None:
    async with desk() as at:
        (first,) = await _alice_runs(at)
        await at.say("second")
        late = at.message("late")
        assert await at.handle(MessageRecalled(at.sent[1].ref)) == "stopped"
        assert (await at.runtime.activity(ENGAGED)).waiting == ()
        # A recall names no thread.
        assert await at.handle(MessageRecalled(MessageRef(chat(), at.sent[0].ref.message))) == "stopped"
        assert await at.statuses(first) == [TaskStatus.CANCELED]
        assert first.cancel_reason == "recalled"
        assert await at.handle(MessageRecalled(late.ref)) == "ignored"
        assert await at.handle(late) == "ignored"
        assert await at.notices() == ([], [])
        assert at.asked == ["hello"]


async def test_a_recall_of_the_same_message_id_in_another_chat_stops_nothing() -> None:
    async with desk() as at:
        (task,) = await _alice_runs(at)
        elsewhere = MessageRef(chat(id="C2"), at.sent[0].ref.message)
        assert await at.handle(MessageRecalled(elsewhere)) == "ignored"
        assert not task.is_done


async def test_an_edit_changes_nothing() -> None:
    async with desk() as at:
        (task,) = await _alice_runs(at)
        assert await at.handle(MessageEdited(at.sent[0].ref, user(), "stop")) == "ignored"
        assert not task.is_done


async def test_a_bot_that_was_removed_stops_what_runs_in_that_chat_only() -> None:
    async with desk() as at:
        await at.say("here")
        await at.say("elsewhere", where="C11")
        here, elsewhere = await at.running(2)
        assert await at.handle(BotRemoved(chat())) == "stopped"
        assert await at.statuses(here) == [TaskStatus.CANCELED]
        assert not elsewhere.is_done
        assert await at.handle(BotRemoved(chat(id="C9"))) == "ignored"


# --- commands with something running ---


async def test_new_forgets_and_waits_for_nobody() -> None:
    async with desk([[Say("Hi Ada")], [Say("?")]]) as at:
        await at.say("I am Ada")
        await at.statuses(*at.runtime.live_tasks)
        assert await at.say("/new") == "answered"
        await at.say("who am I?")
        await at.running(2)
        assert list(at.provider.requests[-1].messages) == [UserMessage("who am I?", "alice")]
    async with desk() as at:
        await _alice_runs(at)
        await at.say("!new")
        assert (await at.notices())[0] == [EN.busy]


async def test_status_counts_who_waits() -> None:
    async with desk() as at:
        await _alice_runs(at)
        await at.say("second")
        await at.say("/status", who=user("bob"))
        assert (await at.notices())[0] == [EN.status_running.format(waiting=1)]


@pytest.mark.parametrize(
    ("scope", "second", "outcome"),
    [
        (None, {"thread": "m9"}, "started"),
        ("thread", {"thread": "m9"}, "started"),
        ("chat", {"thread": "m9"}, "queued"),
        ("user", {"thread": "m9"}, "queued"),
        ("user", {"who": user("bob")}, "started"),
        ("chat", {"who": user("bob")}, "queued"),
        ("chat", {"where": "C2"}, "started"),
    ],
)
async def test_the_scope_says_what_one_conversation_is(scope: Any, second: dict[str, Any], outcome: str) -> None:
    async with desk(scope=scope) as at:
        await at.say("first")
        assert await at.say("second", **second) == outcome


async def test_the_configured_language_wins_over_the_platforms() -> None:
    async with desk(language="zh") as at:
        await at.say("/help")
        assert (await at.notices())[0] == [ZH.help]


async def test_in_a_group_the_model_knows_who_speaks_and_the_task_knows_where_to_answer() -> None:
    async with desk() as at:
        await at.say("hi", thread="m5")
        (task,) = await at.running()
        origin = task.run_input.origin
        assert (origin.requester, origin.speaker, origin.message_id) == ("slack:alice", "alice", "m1")
        assert origin.reply_to["thread"] == "m5"
        await at.say("hi", kind="dm")
        assert (await at.running(2))[1].run_input.origin.speaker == ""


# --- when something fails ---

EVENTS_THAT_ASK_THE_MEMORY: dict[str, dict[str, Any]] = {
    "a thread": {"mention": False, "in_thread": True},
    "help": {"text": "/help"},
    "a stop": {"text": "stop"},
    "a stranger, direct": {"who": user("mallory"), "kind": "dm"},
}


@pytest.mark.parametrize("case", EVENTS_THAT_ASK_THE_MEMORY)
async def test_without_the_coordinator_the_platform_has_to_deliver_again(case: str) -> None:
    async with desk(access=ONLY_ALICE) as at:
        event = at.message(**EVENTS_THAT_ASK_THE_MEMORY[case])
        at.memory.error = AdmissionUnavailable("down")
        with pytest.raises(AdmissionUnavailable):
            await at.handle(event)
        at.memory.error = None
        assert await at.handle(event) != "duplicate", "the second delivery is the first that counts"


async def test_a_stop_that_failed_on_the_way_works_when_it_is_delivered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with desk() as at:
        (task,) = await _alice_runs(at)
        stop = at.message("stop", mention=False)

        async def down(_key: str) -> None:
            raise AdmissionUnavailable("down")

        with monkeypatch.context() as broken:
            broken.setattr(at.runtime, "activity", down)
            with pytest.raises(AdmissionUnavailable):
                await at.handle(stop)
        assert await at.handle(stop) == "stopped"
        assert await at.statuses(task) == [TaskStatus.CANCELED]


async def test_while_shutting_down_messages_are_left_to_the_next() -> None:
    async with desk() as at:
        await at.runtime.aclose()
        with pytest.raises(Closed):
            await at.say()


async def test_a_notice_waits_for_its_turn_and_its_failure_disturbs_nobody() -> None:
    async with desk() as at:
        at.platform.errors = [RateLimited("429", seconds=0.001), RateLimited("429", seconds=0.001)]
        assert await at.say("/help") == "answered"
        assert await at.notices() == ([EN.help], [])
        at.platform.errors = [NotAuthorised("no scope")]
        assert await at.say("/help") == "answered"
        assert await at.notices() == ([EN.help], [])


async def test_a_stranger_is_told_once_an_hour() -> None:
    async with desk(access=ONLY_ALICE) as at:
        for _ in range(3):
            assert await at.say(who=user("mallory"), kind="dm") == "refused"
        assert (await at.notices())[1] == [EN.no_access]


async def test_control_events_do_not_wait_behind_the_queue() -> None:
    async with desk(queue_cap=1) as at:
        (task,) = await _alice_runs(at)
        await at.say("second")
        await at.say("third")
        events: list[Inbound] = [at.click("nobody", user()), MessageRecalled(MessageRef(chat(), "m77"))]
        for event in events:
            await asyncio.wait_for(at.handle(event), 1)
        assert await asyncio.wait_for(at.handle(at.click(task.id, user())), 1) == "stopped"


async def _alice_runs(at: Desk) -> list[Any]:
    assert await at.say("hello", who=user("alice") if _may(at) else None) in ("started", "refused")
    if not at.runtime.live_tasks:
        # She asked while she still might.
        rules = at.gateway._rules
        at.gateway._rules = type(rules)(AccessRules(), rules.scope, rules.language)
        assert await at.say("hello", who=user("alice")) == "started"
        at.gateway._rules = rules
    return await at.running()


def _may(at: Desk) -> bool:
    return at.gateway._rules.access.may_talk(user("alice"), chat())


def test_every_kind_of_event_is_named_here() -> None:
    """A new kind needs its cases above."""
    assert {kind.__name__ for kind in Inbound.__args__} == {
        "MessageReceived", "MessageEdited", "MessageRecalled", "ButtonClicked", "StopRequested", "BotRemoved",
    }  # fmt: skip
