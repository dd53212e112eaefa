"""Many requests, a channel that takes one post a second, and a Slack that fails: what people see then."""

import asyncio
import time
from pathlib import Path

import pytest

from bots.playground.faults import Fault
from tests.e2e.bed import bed
from tests.e2e.standing import Standing
from tests.e2e.test_slack_chat import markdown_of

SLOW = {"tier_scale": 2.0}
"""Two posts a second in a channel, with bursts.."""
SLOW_SETTINGS = {"RATE_BUDGET": "1.9"}
"""..and the service takes 95 % of that."""
TROUBLE = {
    "500": {"status": 500},
    "internal_error": {"error": "internal_error"},
    "503": {"status": 503},
}


@pytest.mark.parametrize("fault", TROUBLE)
async def test_slack_failing_on_several_first_posts_delays_the_card_by_seconds_only(
    standing: Standing, fault: str
) -> None:
    async with standing.bed(speed=1) as b:
        b.slack.add_fault(Fault(method="chat.postMessage", times=3, **TROUBLE[fault]))
        root = b.say("long")
        card = await b.card("Running", thread=root, seconds=12)
        assert card["buttons"], "it can be stopped"
        assert not b.model.requests[0].done.is_set(), "the card is there while the answer is being written"
        b.say("stop", thread=root)
        await b.card("Canceled", thread=root)
        assert len(b.bot_messages(thread=root)) == 1


async def test_requests_recalled_before_their_card_never_get_one_and_hold_nobody_up(tmp_path: Path) -> None:
    async with bed(tmp_path, speed=1, settings=SLOW_SETTINGS, **SLOW) as b:
        # In threads of other people's messages, where a deletion leaves no tombstone that could be mistaken for a card.
        roots = [b.say(f"root {n}", user="carol", mention=False) for n in range(12)]
        requests = [b.say("long", thread=root) for root in roots]
        await b.until(lambda: len(b.asked()) == len(roots), "all of them to run")
        recalled_at = time.time()
        for request in requests:
            b.slack.recall("general", request)
        later = b.say("calc 2+2", user="bob")
        await b.card("Done", thread=later, seconds=5)
        await b.slack.settled()
        for message in b.slack.messages("general"):
            if message["thread"] in roots and message["author"] == "bot":
                posted = message["writes"][0]["at"]
                assert posted < recalled_at + 1, "only what was on its way already"
                assert "Canceled" in str(message["text"])


async def test_cards_come_in_the_order_of_the_requests_when_the_channel_is_saturated(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={"QUEUE_CAP": "20", **SLOW_SETTINGS}, **SLOW) as b:
        root = b.say("calc 1+1")
        for n in range(2, 11):
            b.say(f"calc {n}+{n}", thread=root, mention=True)
        for n in range(10):
            card = await b.card("Done", thread=root, nth=n, seconds=30)
            assert str(2 * (n + 1)) in card["text"]


async def test_an_answer_that_is_done_before_its_turn_is_posted_once(tmp_path: Path) -> None:
    async with bed(tmp_path, speed=200, settings=SLOW_SETTINGS, **SLOW) as b:
        roots = [b.say("hello") for _ in range(12)]
        for root in roots:
            await b.card("Done", thread=root, seconds=30)
        late = b.bot_messages(thread=roots[-1])[0]
        assert [write["method"] for write in late["writes"]] == ["chat.postMessage"]


async def test_refusals_of_a_full_queue_do_not_hold_up_the_cards_of_others(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={"QUEUE_CAP": "1", **SLOW_SETTINGS}, **SLOW) as b:
        root = b.say("long")
        await b.card("Running", thread=root)
        for n in range(30):
            b.say(f"question {n}", thread=root)
        other = b.say("calc 6*7", user="bob")
        await b.card("Done", thread=other, seconds=6)
        await b.until(lambda: any("Too many messages" in text for text in b.texts(thread=root)), "a visible refusal")


@pytest.mark.parametrize("code", ["msg_too_long", "invalid_blocks", "an_error_of_tomorrow"])
async def test_a_refused_edit_costs_one_try_and_the_end_is_shown(standing: Standing, code: str) -> None:
    async with standing.bed() as b:
        root = b.say("long")
        await b.card("Running", thread=root)
        b.slack.add_fault(Fault(method="chat.update", error=code, times=1))
        card = await b.card("Done", thread=root, seconds=30)
        assert markdown_of(b.bot_messages(thread=root)).split() == b.model.requests[0].text_sent.split()
        assert card["message"] == b.bot_messages(thread=root)[0]["message"], "as an edit, not as a new message"
        assert b.service.log.count("card refused") == 1


async def test_done_stands_above_a_whole_answer_only(standing: Standing) -> None:
    async with standing.bed(speed=40) as b:
        b.slack.add_fault(Fault(method="chat.update", latency_ms=30, times=1000))
        root = b.say("long")
        card = await b.card("Done", thread=root, seconds=30)
        assert markdown_of(b.bot_messages(thread=root)).split() == b.model.requests[0].text_sent.split()
        parts = b.bot_messages(thread=root)
        done_at = card["writes"][-1]["at"]
        assert all(write["at"] <= done_at for part in parts[1:] for write in part["writes"])
        await asyncio.sleep(0.2)
        assert b.bot_messages(thread=root)[0]["writes"][-1]["at"] == done_at
