import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from bots.cards.strings.en import EN
from bots.cards.surface import CardSurface
from bots.cards.view import CardView, Phase, Pieces
from bots.errors import ChatGone, MessageGone, RateLimited, Refused, Unavailable
from bots.platform import ReplyAddress
from bots.slack.card import SlackCard
from bots.slack.client import SlackClient
from tests.slack.fake_api import Clock, FakeApi, Fault, body, client_for, error, fake_api, hang, reset, text_of

ADDRESS = ReplyAddress("slack", "T0HOME", "C0ROOM", "1700000000.000100", "1700000000.000100", "U0ALICE")
LONG = "word " * 6_000  # three messages


def view(text: str = "", phase: Phase = Phase.RUNNING, **fields: Any) -> CardView:
    return CardView(phase, Pieces([text], 1) if text else Pieces(), task_id="task-1", **fields)


def card_on(client: SlackClient, address: ReplyAddress = ADDRESS) -> SlackCard:
    return SlackCard(client, address, "task-1", strings=EN, model="m")


@pytest_asyncio.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as api:
        yield api


@pytest_asyncio.fixture
async def card(api: FakeApi) -> AsyncIterator[SlackCard]:
    async with client_for(api) as client:
        yield card_on(client)


def shown(api: FakeApi) -> str:
    return "".join(text_of(message) for message in api.messages.values())


# -- post once, edit from then on


async def test_first_a_post_in_the_thread_then_edits(api: FakeApi, card: SlackCard) -> None:
    await card.show(view(), "state")
    await card.show(view("one"), "text")
    await card.show(view("one two", Phase.DONE), "final")
    assert api.methods() == ["chat.postMessage", "chat.update", "chat.update"]
    (post,) = api.called("chat.postMessage")
    assert (post["channel"], post["thread_ts"]) == (ADDRESS.chat, ADDRESS.thread)
    assert post["metadata"] == {"event_type": "harness_card", "event_payload": {"task": "task-1", "part": 0}}
    assert (post["unfurl_links"], post["unfurl_media"]) == (False, False)
    assert all(edit["blocks"] and edit["text"] for edit in api.called("chat.update"))
    assert shown(api) == "one two"
    (ts,) = api.messages
    assert card.messages == (ts,)


async def test_without_a_thread_none_is_sent(api: FakeApi) -> None:
    async with client_for(api) as client:
        address = ReplyAddress("slack", "T0HOME", "D0ALICE", "", "1700000000.000100", "U0ALICE")
        await card_on(client, address).show(view(), "state")
    assert "thread_ts" not in api.called("chat.postMessage")[0]


async def test_what_is_shown_already_is_not_sent_again(api: FakeApi, card: SlackCard) -> None:
    await card.show(view("same"), "text")
    await card.show(view("same"), "final")
    assert api.methods() == ["chat.postMessage"]


async def test_a_long_answer_rolls_over_and_only_what_differs_is_sent(api: FakeApi, card: SlackCard) -> None:
    await card.show(view(LONG[:20_000]), "text")
    assert len(api.messages) == 2
    api.calls.clear()
    await card.show(view(LONG), "text")
    # The second part got longer and lost its button; the first one did not change.
    assert api.methods() == ["chat.update", "chat.postMessage"]
    assert shown(api) == LONG
    api.calls.clear()
    await card.show(view(LONG + "and more"), "text")
    assert [call["ts"] for call in api.called("chat.update")] == [card.messages[-1]]
    api.calls.clear()
    await card.show(view(LONG + "and more", Phase.DONE), "final")
    assert [call["ts"] for call in api.called("chat.update")] == [card.messages[-1], card.messages[0]]
    parts = [message["metadata"]["event_payload"]["part"] for message in api.messages.values()]
    assert parts == [0, 1, 2]


async def test_messages_that_are_not_needed_any_more_go(api: FakeApi, card: SlackCard) -> None:
    await card.show(view(LONG), "text")
    await card.show(view("short"), "text")
    assert len(api.methods()) == 3 + 1 + 2
    assert shown(api) == "short"
    assert len(card.messages) == 1


async def test_the_surface_is_what_the_reporter_expects(card: SlackCard) -> None:
    surface: CardSurface = card
    assert surface.wait_time("final") == 0


# -- rate limits


async def test_a_limit_in_the_middle_is_continued_later(api: FakeApi) -> None:
    clock = Clock()
    async with client_for(api, clock=clock, rate_budget=1.0) as client:
        card = card_on(client)
        await card.show(view(LONG[:20_000]), "text")
        await clock.sleep(3.0)
        api.fail("chat.postMessage", error("ratelimited", status=429, headers={"Retry-After": "9"}))
        for _ in range(2):
            with pytest.raises(RateLimited) as caught:
                await card.show(view(LONG), "text")
        assert len(api.messages) == 2
        assert api.methods().count("chat.postMessage") == 3, "the second attempt was not sent"
        await clock.sleep(caught.value.seconds)
        await card.show(view(LONG), "text")
    assert shown(api) == LONG


async def test_a_429_in_the_middle_is_continued_later(api: FakeApi, card: SlackCard) -> None:
    await card.show(view(LONG), "text")
    api.calls.clear()
    api.fail("chat.update", error("ratelimited", status=429, headers={"Retry-After": "1"}))
    with pytest.raises(RateLimited):
        await card.show(view(LONG + "!", Phase.DONE), "final")
    assert api.methods() == ["chat.update"]
    await card.show(view(LONG + "!", Phase.DONE), "final")
    assert shown(api) == LONG + "!"
    assert len(api.messages) == 3


async def test_when_the_next_write_fits(api: FakeApi) -> None:
    async with client_for(api, clock=Clock(), rate_budget=1.0) as client:
        card = card_on(client)
        assert card.wait_time("text") == 0, "a post waits for its turn by itself"
        await card.show(view(), "state")
        number = 0
        while card.wait_time("text") == 0:
            number += 1
            await card.show(view(str(number)), "text")
        assert card.wait_time("text") == pytest.approx(60.0)
        assert card.wait_time("final") == 0


@pytest.mark.parametrize(
    ("rate_budget", "live", "seconds"),
    [(0.95, 1, 1.5), (0.95, 10, 10 * 60 / 47.5), (0.5, 1, 2.4), (0.1, 1, 12.0), (10.0, 1, 0.15), (10.0, 10, 1.2)],
)
async def test_the_pace_of_edits(api: FakeApi, rate_budget: float, live: int, seconds: float) -> None:
    async with client_for(api, rate_budget=rate_budget) as client:
        assert card_on(client).interval(live) == pytest.approx(seconds)


# -- posts in doubt


@pytest.mark.parametrize("thread", [ADDRESS.thread, ""])
async def test_a_post_in_doubt_that_arrived_is_adopted(api: FakeApi, thread: str) -> None:
    async with client_for(api) as client:
        address = ReplyAddress("slack", "T0HOME", "C0ROOM", thread, ADDRESS.message, "U0ALICE")
        card = card_on(client, address)
        api.fail("chat.postMessage", reset(after=True))
        with pytest.raises(Unavailable):
            await card.show(view("one"), "text")
        await card.show(view("one two"), "text")
    method = "conversations.replies" if thread else "conversations.history"
    assert api.methods() == ["chat.postMessage", method, "chat.update"]
    assert shown(api) == "one two"
    assert card.messages == tuple(api.messages)
    assert api.called(method)[0]["oldest"] == ADDRESS.message


async def test_a_post_in_doubt_that_did_not_arrive_is_sent_again(api: FakeApi, card: SlackCard) -> None:
    api.fail("chat.postMessage", reset(after=False))
    with pytest.raises(Unavailable):
        await card.show(view("one"), "text")
    await card.show(view("one two"), "text")
    assert api.methods() == ["chat.postMessage", "conversations.replies", "chat.postMessage"]
    assert shown(api) == "one two"


async def test_a_timeout_is_a_doubt(api: FakeApi) -> None:
    api.fail("chat.postMessage", hang(after=True))
    async with client_for(api, timeout_s=0.1) as client:
        card = card_on(client)
        with pytest.raises(Unavailable):
            await card.show(view("one"), "text")
    async with client_for(api) as client:
        card._client = client
        await card.show(view("one two"), "text")
    assert len(api.messages) == 1


@pytest.mark.parametrize("fault", [reset(after=False), error("internal_error"), body("oops", status=500)])
async def test_a_post_that_is_proved_absent_is_no_doubt_however_often_slack_fails(
    api: FakeApi, card: SlackCard, fault: Fault
) -> None:
    api.fail("chat.postMessage", *[fault] * 8)
    for _ in range(8):
        with pytest.raises(Unavailable):
            await card.show(view("one"), "text")
    await card.show(view("one"), "text")
    assert api.methods().count("chat.postMessage") == 9
    assert api.methods().count("conversations.replies") == 8, "and none is posted without a look-up"
    assert len(api.messages) == 1


async def test_a_post_that_arrives_after_others_failed_is_adopted(api: FakeApi, card: SlackCard) -> None:
    api.fail("chat.postMessage", reset(after=False), error("internal_error"), reset(after=True), reset(after=False))
    for _ in range(3):
        with pytest.raises(Unavailable):
            await card.show(view("one"), "text")
    await card.show(view("one two"), "text")
    assert api.methods().count("chat.postMessage") == 3
    assert shown(api) == "one two"


async def more_than_we_read(_: web.Request) -> web.StreamResponse:
    answer = {"ok": True, "messages": [], "has_more": True, "response_metadata": {"next_cursor": "more"}}
    return web.json_response(answer)


UNDECIDED = {
    "may not read": error("missing_scope", needed="channels:history"),
    "refused": error("method_not_supported_for_channel_type"),
    "too much to read": Fault(more_than_we_read),
}


@pytest.mark.parametrize("why", UNDECIDED)
async def test_where_the_lookup_cannot_decide_two_posts_may_stand_at_most(
    api: FakeApi, card: SlackCard, why: str
) -> None:
    api.fail("conversations.replies", *[UNDECIDED[why]] * 50)
    api.fail("chat.postMessage", *[reset(after=True)] * 8)
    for _ in range(8):
        with pytest.raises(Unavailable) as caught:
            await card.show(view("one"), "text")
    assert caught.value.ambiguous
    assert len(api.messages) == api.methods().count("chat.postMessage") == 2


async def test_one_doubt_that_nobody_decides_does_not_hide_the_card(api: FakeApi, card: SlackCard) -> None:
    api.fail("conversations.replies", error("missing_scope"))
    api.fail("chat.postMessage", reset(after=False))
    with pytest.raises(Unavailable):
        await card.show(view("one"), "text")
    await card.show(view("one two"), "text")
    assert shown(api) == "one two"


async def test_a_lookup_that_fails_sends_nothing(api: FakeApi, card: SlackCard) -> None:
    api.fail("chat.postMessage", reset(after=True))
    api.fail("conversations.replies", error("internal_error"))
    for _ in range(2):
        with pytest.raises(Unavailable):
            await card.show(view("one"), "text")
    await card.show(view("one two"), "text")
    assert len(api.messages) == 1


async def test_a_continuation_in_doubt_is_found_by_its_number(api: FakeApi, card: SlackCard) -> None:
    await card.show(view(LONG[:20_000]), "text")
    api.fail("chat.postMessage", reset(after=True))
    with pytest.raises(Unavailable):
        await card.show(view(LONG), "text")
    await card.show(view(LONG), "text")
    assert shown(api) == LONG
    assert len(api.messages) == 3


async def test_a_refused_connection_is_no_doubt(api: FakeApi) -> None:
    address, api.url = api.url, "http://127.0.0.1:1/api/"
    async with client_for(api) as client:
        card = card_on(client)
        for _ in range(3):
            with pytest.raises(Unavailable):
                await card.show(view("one"), "text")
    api.url = address
    async with client_for(api) as client:
        card._client = client
        await card.show(view("one"), "text")
    assert api.methods() == ["chat.postMessage"]


async def test_an_edit_in_doubt_is_sent_again_even_if_nothing_changed(api: FakeApi, card: SlackCard) -> None:
    await card.show(view("one"), "text")
    api.fail("chat.update", reset(after=True))
    with pytest.raises(Unavailable):
        await card.show(view("two"), "text")
    # Back to what was shown before: Slack may show "two" by now.
    await card.show(view("one"), "text")
    assert shown(api) == "one"


# -- the turn


async def test_a_turn_holds_the_others_of_the_channel_until_it_is_over(api: FakeApi) -> None:
    async with client_for(api) as client:
        first, second = card_on(client), card_on(client)
        async with first.turn("state"):
            other = asyncio.create_task(in_turn(second, "second"))
            await settled()
            await first.show(view("first"), "state")
        await other
        assert [text_of(message) for message in api.messages.values()] == ["first", "second"]


@pytest.mark.parametrize("how", ["left unused", "canceled while waiting"])
async def test_a_turn_that_is_given_away_lets_the_next_one_through_at_once(api: FakeApi, how: str) -> None:
    async with client_for(api) as client:
        head, middle, last = card_on(client), card_on(client), card_on(client)
        async with head.turn("state"):
            waiting = [asyncio.create_task(in_turn(middle, "")), asyncio.create_task(in_turn(last, "last"))]
            await settled()
            if how == "canceled while waiting":
                waiting[0].cancel()
        await asyncio.wait(waiting)
        assert shown(api) == "last"


async def test_a_card_keeps_its_place_when_it_comes_back(api: FakeApi) -> None:
    async with client_for(api) as client:
        head, first, later = card_on(client), card_on(client), card_on(client)
        async with first.turn("state"):
            pass
        async with head.turn("state"):
            tasks = [asyncio.create_task(in_turn(card, name)) for card, name in ((later, "later"), (first, "first"))]
            await settled()
        await asyncio.gather(*tasks)
        assert [text_of(message) for message in api.messages.values()] == ["first", "later"]


async def test_a_429_is_waited_out_in_the_line(api: FakeApi) -> None:
    clock = Clock()
    async with client_for(api, clock=clock, rate_budget=0.95) as client:
        cards = [card_on(client) for _ in range(7)]
        api.fail("chat.postMessage", error("ratelimited", status=429, headers={"Retry-After": "90"}))
        with pytest.raises(RateLimited):
            await in_turn(cards[0], "0")
        started = clock.now
        await asyncio.gather(*(in_turn(card, str(number)) for number, card in enumerate(cards)))
        assert clock.now - started >= 90
        assert [text_of(message) for message in api.messages.values()] == list("0123456")
        api.fail("chat.update", error("ratelimited", status=429, headers={"Retry-After": "9"}))
        api.fail("chat.postMessage", error("ratelimited", status=429, headers={"Retry-After": "3000"}))
        for _ in range(2):
            with pytest.raises(RateLimited):
                await in_turn(card_on(client), "not for an hour")


async def test_the_turn_of_a_card_that_stands_is_no_wait(api: FakeApi) -> None:
    async with client_for(api) as client:
        standing, other = card_on(client), card_on(client)
        await in_turn(standing, "standing")
        async with other.turn("state"):
            await asyncio.wait_for(in_turn(standing, "edited"), 5)
    assert shown(api) == "edited"


async def test_more_of_a_long_answer_gives_way_to_cards_that_wait_and_its_end_does_not(api: FakeApi) -> None:
    async with client_for(api) as client:
        long, head, waiting = card_on(client), card_on(client), card_on(client)
        await in_turn(long, LONG[:9_000])
        async with head.turn("state"):
            task = asyncio.create_task(in_turn(waiting, "waiting"))
            await settled()
            with pytest.raises(RateLimited) as caught:
                await long.show(view(LONG[:20_000]), "text")
            assert caught.value.seconds > 0
            final = asyncio.create_task(long.show(view(LONG[:20_000], Phase.DONE), "final"))
            await settled()
        await asyncio.gather(task, final)
        posts = [call["text"] for call in api.called("chat.postMessage")]
        assert [text.partition(" ")[0] for text in posts] == ["word", "word", "waiting"], "it was there before"


async def in_turn(card: SlackCard, text: str) -> None:
    async with card.turn("state"):
        if text:
            await card.show(view(text), "state")


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# -- the order of the last writes


@pytest.mark.parametrize("standing", [0, 1, 2])
async def test_done_is_written_when_everything_is_there(api: FakeApi, card: SlackCard, standing: int) -> None:
    if standing:
        await card.show(view(LONG[: 9_000 if standing == 1 else 20_000]), "text")
    shown_at: list[tuple[bool, str]] = []

    def look(_: FakeApi) -> None:
        states = [str(message["blocks"][0]["elements"][0]["text"]) for message in api.messages.values()]
        shown_at.append((any("Done" in state for state in states), shown(api)))

    api.watch = look
    await card.show(view(LONG, Phase.DONE), "final")
    assert shown_at[-1] == (True, LONG)
    assert all(text == LONG for done, text in shown_at if done)
    assert [done for done, _ in shown_at].count(True) == 1


async def test_done_waits_for_a_part_that_fails(api: FakeApi, card: SlackCard) -> None:
    await card.show(view(LONG[:9_000]), "text")
    api.fail("chat.postMessage", error("internal_error"), error("internal_error"))
    for _ in range(2):
        with pytest.raises(Unavailable):
            await card.show(view(LONG, Phase.DONE), "final")
        assert "Done" not in str(api.messages)
    await card.show(view(LONG, Phase.DONE), "final")
    assert "Done" in str(api.messages[card.messages[0]]["blocks"])
    assert shown(api) == LONG


async def test_everything_anew_needs_no_edit(api: FakeApi, card: SlackCard) -> None:
    await card.show(view("one"), "text")
    api.fail("chat.update", *[error("cant_update_message")] * 9)
    await card.repost(view(LONG, Phase.DONE))
    assert "Done" in str(api.messages[card.messages[0]]["blocks"])
    assert shown(api) == LONG


# -- failures that are final


@pytest.mark.parametrize("method", ["chat.postMessage", "chat.update"])
async def test_a_payload_that_was_refused_is_not_sent_again(api: FakeApi, card: SlackCard, method: str) -> None:
    if method == "chat.update":
        await card.show(view("one"), "text")
    api.fail(method, error("invalid_blocks"))
    for _ in range(3):
        with pytest.raises(Refused, match="invalid_blocks"):
            await card.show(view("two"), "text")
    assert api.methods().count(method) == 1
    await card.show(view("three"), "text")
    await card.show(view("two"), "text")
    assert shown(api) == "two"


async def test_a_part_that_was_refused_is_not_sent_again_because_another_one_is_fine(
    api: FakeApi, card: SlackCard
) -> None:
    await card.show(view(LONG[:9_000]), "text")
    api.fail("chat.postMessage", error("invalid_blocks"))
    for _ in range(3):
        with pytest.raises(Refused):
            await card.show(view(LONG[:20_000]), "text")
    assert api.methods().count("chat.postMessage") == 2


@pytest.mark.parametrize(
    ("code", "meaning"),
    [("message_not_found", MessageGone), ("is_archived", ChatGone), ("invalid_blocks", Refused)],
)
async def test_a_failure_is_told_and_nothing_more_is_sent(
    api: FakeApi, card: SlackCard, code: str, meaning: type[Exception]
) -> None:
    await card.show(view(LONG), "text")
    api.calls.clear()
    api.fail("chat.update", error(code))
    with pytest.raises(meaning):
        await card.show(view("short", Phase.DONE), "final")
    assert api.methods() == ["chat.update"]


async def test_repost_shows_it_anew_and_takes_the_old_card_away(api: FakeApi, card: SlackCard) -> None:
    await card.show(view(LONG), "text")
    old = set(api.messages)
    await card.repost(view(LONG, Phase.DONE))
    assert not old & set(api.messages)
    assert shown(api) == LONG
    assert len(api.messages) == 3


async def test_repost_goes_on_where_it_failed(api: FakeApi, card: SlackCard) -> None:
    await card.show(view("one"), "text")
    api.fail("chat.postMessage", reset(after=True))
    with pytest.raises(Unavailable):
        await card.repost(view(LONG, Phase.DONE))
    await card.repost(view(LONG, Phase.DONE))
    assert shown(api) == LONG
    assert len(api.messages) == 3


async def test_repost_does_not_wait_for_a_post_of_which_nobody_knows(api: FakeApi, card: SlackCard) -> None:
    api.fail("conversations.replies", *[error("internal_error")] * 9)
    api.fail("chat.postMessage", reset(after=False))
    for _ in range(3):
        with pytest.raises(Unavailable):
            await card.show(view("one"), "text")
    await card.repost(view("one", Phase.DONE))
    assert shown(api) == "one"


async def test_repost_succeeds_though_the_old_card_cannot_be_deleted(api: FakeApi, card: SlackCard) -> None:
    await card.show(view("one"), "text")
    api.fail("chat.delete", error("cant_delete_message"))
    await card.repost(view("one", Phase.DONE))
    assert len(api.messages) == 2


# -- removal


async def test_remove_deletes_every_message(api: FakeApi, card: SlackCard) -> None:
    await card.show(view(LONG), "text")
    await card.remove()
    assert api.messages == {}
    assert card.messages == ()


async def test_remove_before_anything_was_posted_sends_nothing(api: FakeApi, card: SlackCard) -> None:
    await card.remove()
    assert api.calls == []


async def test_remove_takes_a_post_in_doubt_along(api: FakeApi, card: SlackCard) -> None:
    api.fail("chat.postMessage", reset(after=True))
    with pytest.raises(Unavailable):
        await card.show(view("one"), "text")
    await card.remove()
    assert api.messages == {}


async def test_remove_goes_on_where_it_failed(api: FakeApi, card: SlackCard) -> None:
    await card.show(view(LONG), "text")
    api.fail("chat.delete", error("internal_error"))
    with pytest.raises(Unavailable):
        await card.remove()
    await card.remove()
    assert api.messages == {}
