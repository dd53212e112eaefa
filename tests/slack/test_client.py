import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from bots.cards.throttle import RateBudget
from bots.errors import ChatGone, MessageGone, NotAuthorised, PlatformError, RateLimited, Refused, Unavailable
from bots.slack.client import API_URL, Mark, SlackClient, web_client
from tests.slack.fake_api import Clock, FakeApi, Fault, body, client_for, error, fake_api, hang, reset

BLOCKS = [{"type": "markdown", "text": "hi"}]


@pytest_asyncio.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as api:
        yield api


@pytest_asyncio.fixture
async def client(api: FakeApi) -> AsyncIterator[SlackClient]:
    async with client_for(api) as client:
        yield client


async def failure(client: SlackClient) -> PlatformError:
    with pytest.raises(PlatformError) as caught:
        await client.update("C1", "1.0", text="x", blocks=BLOCKS, priority="text")
    return caught.value


# -- what is sent


async def test_a_post(api: FakeApi, client: SlackClient) -> None:
    ts = await client.post("C1", "9.0", text="hello", blocks=BLOCKS, mark=Mark("task", 2))
    assert ts in api.messages
    (call,) = api.calls
    assert call.headers["Authorization"] == "Bearer xoxb-secret"
    assert call.body == {
        "channel": "C1",
        "thread_ts": "9.0",
        "text": "hello",
        "blocks": BLOCKS,
        "unfurl_links": False,
        "unfurl_media": False,
        "metadata": {"event_type": "harness_card", "event_payload": {"task": "task", "part": 2}},
    }


async def test_no_empty_thread_is_sent(api: FakeApi, client: SlackClient) -> None:
    await client.post("C1", "", text="hello")
    await client.post_privately("C1", "", "U1", "psst")
    assert [set(call.body) & {"thread_ts", "blocks", "metadata"} for call in api.calls] == [set(), set()]


async def test_an_edit_sends_blocks_and_text(api: FakeApi, client: SlackClient) -> None:
    ts = await client.post("C1", "", text="hello")
    await client.update("C1", ts, text="more", blocks=BLOCKS, priority="text")
    assert api.called("chat.update") == [{"channel": "C1", "ts": ts, "text": "more", "blocks": BLOCKS}]


async def test_deleting_twice_is_a_success(api: FakeApi, client: SlackClient) -> None:
    ts = await client.post("C1", "", text="hello")
    await client.delete("C1", ts)
    await client.delete("C1", ts)
    assert api.messages == {}


@pytest.mark.parametrize(("thread", "method"), [("9.0", "conversations.replies"), ("", "conversations.history")])
async def test_a_post_is_found_by_its_mark(api: FakeApi, client: SlackClient, thread: str, method: str) -> None:
    marks = [Mark("task", 0), Mark("task", 1), Mark("other", 1)]
    sent = [await client.post("C1", thread, text="x", mark=mark) for mark in marks]
    assert await client.find("C1", thread, marks[1], after="8.0") == sent[1]
    assert await client.find("C1", thread, Mark("task", 7), after="") == ""
    (first, _) = api.called(method)
    assert (first["include_all_metadata"], first["oldest"], first.get("ts", "")) == ("1", "8.0", thread)


# -- what comes back


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        ("message_not_found", MessageGone),
        ("thread_not_found", MessageGone),
        ("channel_not_found", ChatGone),
        ("is_archived", ChatGone),
        ("not_in_channel", ChatGone),
        ("restricted_action", ChatGone),
        ("messages_tab_disabled", ChatGone),
        ("invalid_auth", NotAuthorised),
        ("account_inactive", NotAuthorised),
        ("token_revoked", NotAuthorised),
        ("token_expired", NotAuthorised),
        ("missing_scope", NotAuthorised),
        ("not_authed", NotAuthorised),
        ("invalid_blocks", Refused),
        ("msg_too_long", Refused),
        ("msg_blocks_too_long", Refused),
        ("cant_update_message", Refused),
        ("edit_window_closed", Refused),
        ("invalid_thread_ts", Refused),
        ("an_error_of_tomorrow", Refused),
    ],
)
@pytest.mark.parametrize("status", [200, 403])
async def test_errors_by_name(
    api: FakeApi, client: SlackClient, code: str, meaning: type[PlatformError], status: int
) -> None:
    api.fail("chat.update", error(code, status=status))
    caught = await failure(client)
    assert (type(caught), caught.code) == (meaning, code)
    assert len(api.calls) == 1


async def test_a_missing_scope_is_named(api: FakeApi, client: SlackClient) -> None:
    api.fail("chat.update", error("missing_scope", needed="chat:write", provided="users:read"))
    assert "chat:write" in str(await failure(client))


@pytest.mark.parametrize(
    ("fault", "ambiguous"),
    [
        (error("internal_error"), True),
        (error("fatal_error"), True),
        (error("service_unavailable", status=503), True),
        (error("request_timeout"), False),
        (body("oops", status=500), True),
        (body("<html>", status=502, kind="text/html"), True),
        (body("{broken", status=200, kind="application/json"), True),
        (body("fine", status=200), True),
        (body("<html>login</html>", status=200, kind="text/html"), True),
        (body("[1]", status=200, kind="application/json"), True),
        (body("null", status=200, kind="application/json"), True),
        (body("", status=503), True),
        (reset(after=False), True),
        (reset(after=True), True),
    ],
)
async def test_trouble_at_slack(api: FakeApi, client: SlackClient, fault: Fault, ambiguous: bool) -> None:
    api.fail("chat.update", fault)
    caught = await failure(client)
    assert isinstance(caught, Unavailable)
    assert caught.ambiguous is ambiguous
    assert len(api.calls) == 1, "nothing may be repeated here"


async def test_a_post_is_not_repeated_after_a_reset(api: FakeApi, client: SlackClient) -> None:
    api.fail("chat.postMessage", reset(after=True))
    with pytest.raises(Unavailable) as caught:
        await client.post("C1", "", text="once")
    assert caught.value.ambiguous
    assert len(api.messages) == 1


async def test_a_timeout_may_have_taken_effect(api: FakeApi) -> None:
    api.fail("chat.update", hang(after=False))
    async with client_for(api, timeout_s=0.1) as client:
        caught = await failure(client)
    assert isinstance(caught, Unavailable)
    assert caught.ambiguous


async def test_nobody_listening_has_certainly_done_nothing(api: FakeApi) -> None:
    api.url = "http://127.0.0.1:1/api/"
    async with client_for(api) as client:
        caught = await failure(client)
    assert isinstance(caught, Unavailable)
    assert not caught.ambiguous


async def test_a_post_without_a_ts_is_in_doubt(api: FakeApi, client: SlackClient) -> None:
    api.fail("chat.postMessage", body('{"ok": true}', status=200, kind="application/json"))
    with pytest.raises(Unavailable) as caught:
        await client.post("C1", "", text="x")
    assert caught.value.ambiguous


# -- rate limits


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        (error("ratelimited", status=429, headers={"Retry-After": "7"}), 7.0),
        (body("slow down", status=429, headers={"Retry-After": "7"}), 7.0),
        (error("ratelimited", headers={"Retry-After": "7"}), 7.0),
        (error("ratelimited", status=429), 5.0),
        (error("ratelimited", status=429, headers={"Retry-After": "soon"}), 5.0),
        (error("ratelimited", status=429, headers={"Retry-After": "-3"}), 5.0),
        (error("ratelimited", status=429, headers={"Retry-After": "9" * 400}), 3_600.0),
    ],
)
async def test_a_429_blocks_the_method_for_its_time(api: FakeApi, fault: Fault, seconds: float) -> None:
    clock = Clock()
    async with client_for(api, clock=clock) as client:
        ts = await client.post("C1", "", text="x")
        api.fail("chat.update", fault)
        caught = await failure(client)
        assert isinstance(caught, RateLimited)
        assert caught.seconds == seconds
        assert client.update_wait("final") == seconds
        refused = await failure(client)
        assert (type(refused), refused.code) == (RateLimited, "own_limit")
        assert api.methods().count("chat.update") == 1, "the second one was not sent"
        await client.post("C1", "", text="another method is not blocked")
        clock.now += seconds + 0.01
        await client.update("C1", ts, text="x", blocks=BLOCKS, priority="text")


async def test_no_more_edits_than_the_budget_allows(api: FakeApi) -> None:
    clock = Clock()
    async with client_for(api, clock=clock, rate_budget=0.95) as client:
        ts = await client.post("C1", "", text="x")

        async def edits(priority: Any) -> int:
            count = 0
            while client.update_wait(priority) == 0:
                await client.update("C1", ts, text="x", blocks=BLOCKS, priority=priority)
                count += 1
            return count

        text, final = await edits("text"), await edits("final")
        assert 0 < text < text + final <= 50
        assert final >= 5, "some are kept for what must not wait"
        with pytest.raises(RateLimited) as caught:
            await client.update("C1", ts, text="x", blocks=BLOCKS, priority="final")
        assert caught.value.seconds == pytest.approx(60 / 0.95)
        clock.now += 60.0
        assert client.update_wait("final") > 0
        clock.now += 60 / 0.95 - 60.0 + 0.01
        assert client.update_wait("final") == 0


async def test_posts_wait_for_room_in_their_channel(api: FakeApi) -> None:
    clock = Clock()
    async with client_for(api, clock=clock, rate_budget=0.95) as client:
        for _ in range(3):
            await client.post("C1", "", text="x", priority="final")
        assert clock.naps == []
        assert client.post_wait("C1", "final") == pytest.approx(3 / 0.95)
        await client.post("C2", "", text="another channel")
        assert clock.naps == []
        await client.post("C1", "", text="x", priority="final")
        assert clock.naps == [pytest.approx(3 / 0.95)]


async def test_a_post_does_not_wait_as_long_as_a_429_may_say(api: FakeApi) -> None:
    clock = Clock()
    async with client_for(api, clock=clock) as client:
        api.fail("chat.postMessage", error("ratelimited", status=429, headers={"Retry-After": "30"}))
        for code in ("ratelimited", "own_limit"):
            with pytest.raises(RateLimited) as caught:
                await client.post("C1", "", text="x")
            assert (caught.value.seconds, caught.value.code) == (30.0, code)
        assert (clock.naps, len(api.calls)) == ([], 1)


async def test_posts_to_a_channel_arrive_in_the_order_of_the_calls(api: FakeApi) -> None:
    async with client_for(api, clock=Clock(), rate_budget=0.95) as client:
        names = [f"{number}" for number in range(7)]
        await asyncio.gather(*(client.post("C1", "", text=name) for name in names))
    assert [call["text"] for call in api.called("chat.postMessage")] == names


async def test_cards_come_before_notices_and_each_in_their_order(api: FakeApi) -> None:
    async with client_for(api, clock=Clock(), rate_budget=0.95) as client:
        await asyncio.gather(
            *(client.post("C1", "", text="first", priority="state") for _ in range(3)),
            *(client.post("C1", "", text=f"notice {n}", priority="text", place=client.place(is_notice=True))
              for n in range(4)),
            *(client.post("C1", "", text=f"card {n}", priority="state") for n in range(4)),
        )  # fmt: skip
    sent = [call["text"] for call in api.called("chat.postMessage")]
    assert sent == ["first"] * 3 + [f"card {n}" for n in range(4)] + [f"notice {n}" for n in range(4)]


async def test_a_card_that_comes_while_a_notice_waits_for_room_goes_first(api: FakeApi) -> None:
    clock = Clock()
    gate = asyncio.Event()

    async def nap(seconds: float) -> None:
        await gate.wait()
        await clock.sleep(seconds)

    async with client_for(api, clock=clock, rate_budget=0.95) as client:
        client._sleep = nap
        for _ in range(3):
            await client.post("C1", "", text="x")
        notice = asyncio.create_task(
            client.post("C1", "", text="notice", priority="text", place=client.place(is_notice=True))
        )
        await asyncio.sleep(0.01)
        card = asyncio.create_task(client.post("C1", "", text="card"))
        await asyncio.sleep(0.01)
        gate.set()
        await asyncio.gather(notice, card)
    assert [call["text"] for call in api.called("chat.postMessage")][3:] == ["card", "notice"]


async def test_a_notice_that_is_given_up_holds_nobody_up(api: FakeApi) -> None:
    async with client_for(api) as client:
        async with client.post_turn("C1", client.place(), "state"):
            given_up = asyncio.create_task(client.post("C1", "", text="given up"))
            kept = asyncio.create_task(client.post("C1", "", text="kept"))
            await asyncio.sleep(0)
            given_up.cancel()
        await kept
    assert [call["text"] for call in api.called("chat.postMessage")] == ["kept"]


async def test_a_line_of_cards_is_as_fast_as_slack_allows_and_no_faster(api: FakeApi) -> None:
    """First cards in one channel against a count of Slack's own: one a second, and three in a burst."""
    clock = Clock()
    async with client_for(api, clock=clock, rate_budget=0.95) as client:
        sent: list[float] = []
        api.watch = lambda _: sent.append(clock.now)

        async def card(number: int) -> None:
            async with client.post_turn("C1", client.place(), "state"):
                await client.post("C1", "", text=str(number), has_turn=True)

        await asyncio.gather(*(card(number) for number in range(60)))
    assert [int(call["text"]) for call in api.called("chat.postMessage")] == list(range(60))
    assert len(sent) / (sent[-1] - sent[0]) >= 0.9
    for first, fourth in zip(sent, sent[3:], strict=False):
        assert fourth - first >= 3.0


async def test_a_post_is_looked_for_on_every_page_that_we_read(api: FakeApi, client: SlackClient) -> None:
    def page(*messages: Any, cursor: str) -> Fault:
        answer = {"ok": True, "messages": messages, "response_metadata": {"next_cursor": cursor}}
        return body(json.dumps(answer), status=200, kind="application/json")

    wanted = {"ts": "5.0", "metadata": Mark("task", 1).as_metadata()}
    api.fail("conversations.replies", page({"ts": "4.0"}, cursor="two"), page(wanted, cursor=""))
    assert await client.find("C1", "9.0", Mark("task", 1), after="8.0") == "5.0"
    assert [call.get("cursor") for call in api.called("conversations.replies")] == [None, "two"]
    api.fail("conversations.replies", *[page(cursor="on")] * 50)
    assert await client.find("C1", "9.0", Mark("task", 1), after="8.0") is None, "neither found nor proved absent"


# -- secrets and settings


async def test_the_token_is_in_no_error_and_in_no_log(
    api: FakeApi, client: SlackClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    api.fail("chat.update", error("invalid_auth"), body("x", status=500), reset(after=False))
    for _ in range(3):
        caught = await failure(client)
        assert "xoxb-secret" not in f"{caught!r} {caught.__cause__!r}"
        assert caught.__suppress_context__
    assert "xoxb-secret" not in caplog.text


async def test_a_proxy_is_not_used_for_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    async with aiohttp.ClientSession() as session:
        assert web_client("t", "http://127.0.0.1:8899/api/", session).proxy is None
        assert web_client("t", "", session).proxy == "http://proxy.example:3128"
        assert web_client("t", "", session).base_url == API_URL


def test_the_budget_may_be_shared() -> None:
    budget = RateBudget(Clock())
    one, other = (SlackClient(web_client("t", "", None), budget) for _ in range(2))  # type: ignore[arg-type]
    one.team_id = other.team_id = "T1"
    budget.block("chat.update:T1", 9.0)
    assert one.update_wait("final") == other.update_wait("final") == 9.0
