"""What people see in a Slack channel and in a direct message, end to end."""

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bed import bed
from tests.e2e.standing import Standing

STRICT = {
    "ADMINS": "slack:U0CAROL0001",
    "ALLOWED_USERS": "U0ALICE0001,U0CAROL0001",
    "QUEUE_CAP": "1",
    "RECALL_DELETES_REPLY": "true",
}
"""Settings that do not touch each other, for one service that stands."""


def markdown_of(messages: list[dict[str, Any]]) -> str:
    """The model's text as it was sent to Slack: the markdown blocks of all messages of a card."""
    blocks = [block for message in messages for block in message["raw"].get("blocks", [])]
    return "\n\n".join(block["text"] for block in blocks if block["type"] == "markdown")


def grows(states: list[str]) -> int:
    """How often a card became longer."""
    return sum(len(after) > len(before) for before, after in itertools.pairwise(states))


async def test_a_mention_thinks_grows_and_is_done_with_exactly_the_models_text(standing: Standing) -> None:
    async with standing.bed(speed=10) as b:
        root = b.say("long")
        card = await b.card("Done", thread=root, seconds=30)
        states = b.slack.visible_history("general", card["message"])
        assert "Thinking" in states[0]
        assert grows(states) >= 5
        sent = b.model.requests[0].text_sent
        assert len(sent.split()) == 2000
        # Paragraphs are told apart by blank lines, and a message may end between two of them: words tell the rest.
        assert markdown_of(b.bot_messages(thread=root)).split() == sent.split()
        assert [m["thread"] for m in b.bot_messages()] == [root] * len(b.bot_messages())


async def test_a_short_answer_is_one_message_with_the_very_same_text(standing: Standing) -> None:
    async with standing.bed() as b:
        root = b.say("hello")
        await b.card("Done", thread=root)
        assert markdown_of(b.bot_messages(thread=root)) == b.model.requests[0].text_sent
        assert len(b.bot_messages(thread=root)) == 1


async def test_a_calculation_shows_a_tool_row(standing: Standing) -> None:
    async with standing.bed() as b:
        root = b.say("calc 2*(3+4)")
        card = await b.card("Done", thread=root)
        assert "✓ `calculator(2*(3+4))`" in card["text"]
        assert "14" in card["text"]


async def test_deleting_the_message_during_a_long_answer_cancels_it_and_closes_the_models_request(
    standing: Standing,
) -> None:
    async with standing.bed() as b:
        root = b.say("long")
        request = await b.request("long")
        await b.card("Running", thread=root)
        b.slack.recall("general", root)
        card = await b.card("Canceled", thread=root)
        await asyncio.wait_for(request.done.wait(), 5)
        assert request.closed_by_client
        assert len(request.text_sent.split()) < 2000
        assert not card["buttons"]
        shown = markdown_of(b.bot_messages(thread=root))
        assert shown
        assert request.text_sent.startswith(shown), "the partial text stays"


async def test_deleting_a_queued_message_removes_it(standing: Standing) -> None:
    async with standing.bed() as b:
        root = b.say("long")
        await b.card("Running", thread=root)
        second = b.say("hello, are you there?", thread=root, mention=False)
        third = b.say("calc 1+1", thread=root, mention=False)
        await b.card("Queued (1)", thread=root, nth=1)
        await b.card("Queued (2)", thread=root, nth=2)
        b.slack.recall("general", second)
        await b.card("Canceled", thread=root, nth=1)
        await b.card("Queued (1)", thread=root, nth=2)
        b.slack.recall("general", root)
        await b.card("Done", thread=root, nth=2)
        assert not [prompt for prompt in b.asked() if "are you there" in prompt]
        assert third


async def test_a_stop_word_without_mention_stops_the_writers_task(standing: Standing) -> None:
    async with standing.bed() as b:
        for turn, word in enumerate(["stop", "停止", "!stop"]):
            root = b.say("long")
            request = await b.request("long", nth=turn)
            await b.card("Running", thread=root)
            b.say(word, thread=root, mention=False)
            await b.card("Canceled", thread=root)
            await asyncio.wait_for(request.done.wait(), 5)
            assert request.closed_by_client
        assert len(b.asked()) == 3, "the stop word itself is no question"


async def test_stop_leaves_the_queue_and_a_second_stop_empties_the_writers_part_of_it(standing: Standing) -> None:
    async with standing.bed() as b:
        root = b.say("long")
        await b.card("Running", thread=root)
        b.say("long please", thread=root, mention=False)
        await b.card("Queued (1)", thread=root, nth=1)
        b.say("long again", thread=root, mention=False)
        await b.card("Queued (2)", thread=root, nth=2)
        b.say("stop", thread=root, mention=True)
        await b.card("Canceled", thread=root)
        await b.card("Running", thread=root, nth=1)
        b.say("stop", thread=root, mention=True)
        await b.card("Canceled", thread=root, nth=1)
        await b.card("Canceled", thread=root, nth=2)
        assert not [prompt for prompt in b.asked() if "again" in prompt]


async def test_only_the_requester_may_stop_and_others_are_told_privately(standing: Standing) -> None:
    async with standing.bed() as b:
        root = b.say("long")
        card = await b.card("Running", thread=root)
        b.say("stop", user="bob", thread=root, mention=True)
        note = await b.until(
            lambda: [m for m in b.slack.messages("general") if m["private_to"] == "bob"], "a private notice to bob"
        )
        assert "Only the person who asked" in str(note[0]["text"])
        await b.slack.click("general", card["message"], card["buttons"][0]["action"], "bob")
        await b.until(
            lambda: len([m for m in b.slack.messages("general") if m["private_to"] == "bob"]) == 2, "a second notice"
        )
        assert not b.model.requests[0].done.is_set()
        await b.slack.click("general", card["message"], card["buttons"][0]["action"], "alice")
        await b.card("Canceled", thread=root)


async def test_an_administrator_may_stop_what_others_asked(standing: Standing) -> None:
    async with standing.bed(settings=STRICT) as b:
        root = b.say("long")
        await b.card("Running", thread=root)
        b.say("stop", user="carol", thread=root, mention=False)
        await b.card("Canceled", thread=root)


async def test_five_quick_messages_in_one_thread_are_answered_in_order_and_none_is_lost(standing: Standing) -> None:
    async with standing.bed() as b:
        root = b.say("calc 1+1")
        for n in range(2, 6):
            b.say(f"calc {n}+{n}", thread=root, mention=True)
        for n in range(5):
            card = await b.card("Done", thread=root, nth=n, seconds=30)
            assert str(2 * (n + 1)) in card["text"]
        first_requests = [prompt for prompt, _ in itertools.groupby(b.asked())]
        assert [prompt.rpartition("calc ")[2] for prompt in first_requests] == [f"{n}+{n}" for n in range(1, 6)]


async def test_a_full_queue_says_so(standing: Standing) -> None:
    async with standing.bed(settings=STRICT) as b:
        root = b.say("long")
        await b.card("Running", thread=root)
        b.say("one", thread=root)
        await b.card("Queued (1)", thread=root, nth=1)
        b.say("two", thread=root)
        await b.until(lambda: any("Too many messages" in t for t in b.texts(thread=root)), "a visible refusal")
        b.say("stop", thread=root)
        await b.card("Done", thread=root, nth=1)
        assert len(b.asked()) == 2


async def test_reject_answers_while_busy_instead_of_queueing(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={"BUSY_POLICY": "reject"}) as b:
        root = b.say("long")
        await b.card("Running", thread=root)
        b.say("hello", thread=root)
        await b.until(lambda: any("still working" in t for t in b.texts(thread=root)), "a visible refusal")
        assert len(b.asked()) == 1


async def test_two_threads_answer_side_by_side(standing: Standing) -> None:
    async with standing.bed() as b:
        slow = b.say("long")
        await b.card("Running", thread=slow)
        quick = b.say("hello", user="bob")
        await b.card("Done", thread=quick)
        assert not b.model.requests[0].done.is_set()


async def test_a_follow_up_in_the_thread_knows_the_first_turn_and_needs_no_mention(standing: Standing) -> None:
    async with standing.bed() as b:
        root = b.say("My favourite colour is green")
        await b.card("Done", thread=root)
        b.say("what did I say first?", thread=root, mention=False, user="bob")
        card = await b.card("Done", thread=root, nth=1)
        assert "favourite colour is green" in card["text"]
        roles = [message["role"] for message in b.model.requests[1].messages]
        assert roles == ["system", "user", "assistant", "user"]


async def test_a_direct_message_needs_no_mention_and_remembers(tmp_path: Path) -> None:
    async with bed(tmp_path) as b:
        b.say("My cat is called Ada", chat="dm-alice", mention=False)
        first = await b.card("Done", chat="dm-alice")
        assert first["thread"] is None
        b.say("what did I say first?", chat="dm-alice", mention=False)
        second = await b.card("Done", chat="dm-alice", nth=1)
        assert "called Ada" in second["text"]
        b.say("hello", chat="dm-bob", user="bob", mention=False)
        other = await b.card("Done", chat="dm-bob")
        assert "Ada" not in other["text"]


async def test_what_is_not_meant_for_the_bot_is_ignored(standing: Standing) -> None:
    async with standing.bed() as b:
        b.say("lunch, anyone?", mention=False)
        aside = b.say("and who is in?", mention=False)
        b.say("me", thread=aside, mention=False)
        b.say("stop", thread=aside, mention=False)
        b.say("<!channel> stand-up!", mention=False)
        await b.slack.settled()
        root = b.say("hello")
        await b.card("Done", thread=root)
        assert len(b.bot_messages()) == 1
        assert len(b.asked()) == 1


@pytest.mark.parametrize("order", ["message_first", "mention_first"])
async def test_message_and_app_mention_are_one_request(standing: Standing, order: str) -> None:
    async with standing.bed(mention_order=order) as b:
        root = b.say("hello")
        await b.card("Done", thread=root)
        b.say("", thread=root)
        await b.until(lambda: any("Mention me" in t for t in b.texts()), "the help text")
        await b.slack.settled()
        assert len(b.asked()) == 1
        assert len(b.bot_messages()) == 2, "one answer and one help text"


async def test_new_forgets_and_status_tells(standing: Standing) -> None:
    async with standing.bed() as b:
        b.say("My cat is called Ada", chat="dm-alice", mention=False)
        await b.card("Done", chat="dm-alice")
        b.say("!status", chat="dm-alice", mention=False)
        await b.until(lambda: "Nothing is running" in b.texts("dm-alice")[-1], "the status")
        b.say("!new", chat="dm-alice", mention=False)
        await b.until(lambda: "new conversation" in b.texts("dm-alice")[-1], "the notice")
        b.say("hello", chat="dm-alice", mention=False)
        await b.card("Done", chat="dm-alice", nth=3)
        assert [message["role"] for message in b.model.requests[-1].messages] == ["system", "user"]


async def test_people_who_are_not_allowed_see_nothing_in_a_channel_and_one_line_in_a_direct_message(
    standing: Standing,
) -> None:
    async with standing.bed(settings=STRICT) as b:
        b.say("hello", user="bob")
        for _ in range(3):
            b.say("hello", user="bob", chat="dm-bob", mention=False)
        await b.slack.settled()
        root = b.say("hello")
        await b.card("Done", thread=root)
        assert len(b.bot_messages()) == 1
        assert len(b.texts("dm-bob")) == 1
        assert "not on the list" in b.texts("dm-bob")[0]


async def test_a_recall_can_delete_the_reply_too(standing: Standing) -> None:
    async with standing.bed(settings=STRICT) as b:
        root = b.say("long")
        await b.card("Running", thread=root)
        b.slack.recall("general", root)
        await b.until(lambda: not b.bot_messages(), "the card to be deleted", instead=b.texts)


async def test_deleting_the_card_ends_the_writing_and_not_the_chat(standing: Standing) -> None:
    async with standing.bed() as b:
        root = b.say("long")
        card = await b.card("Running", thread=root)
        b.slack.recall("general", card["message"])
        await b.until(lambda: b.model.requests[0].done.is_set(), "the answer to end", seconds=30)
        b.say("hello", thread=root)
        await b.card("Done", thread=root)
        b.expects_violations = True  # the one edit that finds the card gone


async def test_the_card_speaks_chinese_when_told_so(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={"LANGUAGE": "zh"}) as b:
        root = b.say("你好，请介绍一下自己")
        card = await b.card("完成", thread=root)
        assert markdown_of([card]) == b.model.requests[0].text_sent
        slow = b.say("long")
        running = await b.card("进行中", thread=slow)
        assert running["buttons"][0]["label"] == "停止"
        b.say("取消", thread=slow, mention=False)
        await b.card("已取消", thread=slow)


async def test_a_message_of_another_bot_starts_nothing(standing: Standing) -> None:
    async with standing.bed() as b:
        root = b.say("hello")
        await b.card("Done", thread=root)
        await b.slack.settled()
        # The bot's own posts and edits come back as events, in a thread where it would answer people.
        assert len(b.asked()) == 1


def test_the_bed_counts_growth() -> None:
    assert grows(["a", "ab", "ab", "abc", "a"]) == 2
