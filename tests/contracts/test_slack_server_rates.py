"""Rate limits and faults of the local Slack server, on a clock that is moved by hand."""

import asyncio

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncConnectionErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from bots.playground.chat_server import ControlError
from bots.playground.clock import ManualClock
from bots.playground.faults import Fault
from tests.playground.rig import client, slack, until

GENERAL = "C0GENERAL01"
DM_ALICE = "D0DMALICE00"
CARD = [{"type": "markdown", "text": "x"}]


async def too_many(call) -> int:
    """The seconds of Retry-After."""
    with pytest.raises(SlackApiError) as caught:
        await call
    response = caught.value.response
    assert response.status_code == 429
    assert response["error"] == "ratelimited"
    return int(response.headers["Retry-After"])


async def test_the_tier_is_a_sliding_window_per_method():
    clock = ManualClock()
    async with slack(clock=clock) as server:
        web = client(server)
        ts = (await web.chat_postMessage(channel=GENERAL, text="x"))["ts"]

        def update():
            return web.chat_update(channel=GENERAL, ts=ts, text="x", blocks=CARD)

        for _ in range(25):
            await update()
        clock.advance(30)
        for _ in range(25):
            await update()
        assert await too_many(update()) == 30
        # Another method has a window of its own.
        await web.reactions_add(channel=GENERAL, name="eyes", timestamp=ts)
        clock.advance(30)
        # The first 25 have left the window; the second 25 are still in it: a fixed window would allow 50 now.
        for _ in range(25):
            await update()
        assert await too_many(update()) == 30
        assert server.stats()["rate_limited"] == 2
        assert [v.kind for v in server.violations.all] == ["rate_limit", "rate_limit"]


async def test_calling_before_retry_after_has_passed_is_written_down():
    clock = ManualClock()
    async with slack(clock=clock, tier_scale=0.02) as server:
        web = client(server)
        ts = (await web.chat_postMessage(channel=GENERAL, text="x"))["ts"]
        await web.chat_update(channel=GENERAL, ts=ts, text="x", blocks=CARD)
        assert await too_many(web.chat_update(channel=GENERAL, ts=ts, text="x", blocks=CARD)) == 60
        clock.advance(10)
        assert await too_many(web.chat_update(channel=GENERAL, ts=ts, text="x", blocks=CARD)) == 50
        assert [v.kind for v in server.violations.all] == ["rate_limit", "retry_after_ignored"]
        clock.advance(50)
        await web.chat_update(channel=GENERAL, ts=ts, text="x", blocks=CARD)


async def test_posts_come_in_short_bursts_then_one_a_second_per_channel():
    clock = ManualClock()
    async with slack(clock=clock) as server:
        web = client(server)
        for _ in range(4):
            await web.chat_postMessage(channel=GENERAL, text="x")
        assert await too_many(web.chat_postMessage(channel=GENERAL, text="x")) == 1
        # Another channel is not concerned.
        await web.chat_postMessage(channel=DM_ALICE, text="x")
        clock.advance(1)
        await web.chat_postMessage(channel=GENERAL, text="x")
        assert await too_many(web.chat_postMessage(channel=GENERAL, text="x")) == 1


async def test_without_tiers_nothing_is_limited_and_a_scale_multiplies():
    async with slack(tier_scale=None, clock=ManualClock()) as server:
        for _ in range(60):
            await client(server).chat_postMessage(channel=GENERAL, text="x")
        assert server.stats() == {
            "calls": {"chat.postMessage": 60},
            "rate_limited": 0,
            "open_streams": 0,
            "violations": [],
        }
    async with slack(tier_scale=2.0, clock=ManualClock()) as server:
        for _ in range(8):
            await client(server).chat_postMessage(channel=GENERAL, text="x")
        assert await too_many(client(server).chat_postMessage(channel=GENERAL, text="x")) == 1


async def test_a_429_on_order_is_no_violation_but_ignoring_it_is():
    clock = ManualClock()
    async with slack(clock=clock) as server:
        web = client(server)
        server.add_fault(Fault("chat.postMessage", status=429, retry_after_s=3))
        assert await too_many(web.chat_postMessage(channel=GENERAL, text="x")) == 3
        # One that was on its way at that moment: refused, nobody's mistake.
        assert await too_many(web.chat_postMessage(channel=GENERAL, text="x")) == 3
        assert server.violations.all == []
        clock.advance(1)
        assert await too_many(web.chat_postMessage(channel=GENERAL, text="x")) == 2
        assert [v.kind for v in server.violations.all] == ["retry_after_ignored"]
        clock.advance(2)
        await web.chat_postMessage(channel=GENERAL, text="x")
        assert server.stats()["rate_limited"] == 3


async def test_a_500_is_plain_text_and_nothing_happened():
    async with slack() as server:
        server.add_fault(Fault("chat.postMessage", status=500, times=2))
        for _ in range(2):
            with pytest.raises(SlackApiError) as caught:
                await client(server).chat_postMessage(channel=GENERAL, text="x")
            assert caught.value.response.status_code == 500
            # The known trap: a text body makes the response's own `get` fail.
            assert isinstance(caught.value.response.data, str)
        assert server.messages("general") == []
        await client(server).chat_postMessage(channel=GENERAL, text="x")
        assert len(server.messages("general")) == 1
        assert [call.status for call in server.calls] == [500, 500, 200]


async def test_an_error_on_order_and_one_for_any_method():
    async with slack() as server:
        server.add_fault(Fault("*", error="team_access_not_granted"))
        with pytest.raises(SlackApiError) as caught:
            await client(server).auth_test()
        assert caught.value.response["error"] == "team_access_not_granted"
        with pytest.raises(ControlError, match="known: \\*, assistant"):
            server.add_fault(Fault("chat.shout", status=500))


async def test_a_reset_comes_after_the_call_was_processed():
    async with slack() as server:
        server.add_fault(Fault("chat.postMessage", reset=True))
        with pytest.raises(aiohttp.ClientConnectionError):
            await client(server).chat_postMessage(channel=GENERAL, text="x")
        assert len(server.messages("general")) == 1
        # What the SDK does with its defaults: it sends the message again.
        web = AsyncWebClient(
            token=server.token, base_url=server.api_url, retry_handlers=[AsyncConnectionErrorRetryHandler()]
        )
        server.add_fault(Fault("chat.postMessage", reset=True))
        await web.chat_postMessage(channel=GENERAL, text="y")
        assert [m["text"] for m in server.messages("general")] == ["x", "y", "y"]


async def test_latency_waits_on_the_clock():
    clock = ManualClock()
    async with slack(clock=clock) as server:
        server.add_fault(Fault("auth.test", latency_ms=2_000))
        web = client(server)
        call = asyncio.create_task(web.auth_test())
        await until(lambda: clock.sleepers)
        assert clock.sleepers == (2.0,)
        clock.advance(2)
        assert (await call)["ok"] is True
