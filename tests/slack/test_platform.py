import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
import structlog

from bots.cards.approval import QuestionState, question_view
from bots.errors import ChatGone, QuestionTooLong
from bots.inbound import ChatRef, UserRef
from bots.platform import ChatPlatform, ReplyAddress
from bots.slack.parse import Identity
from bots.slack.platform import SlackPlatform
from harness.approval import Approval
from tests.slack.fake_api import Clock, FakeApi, body, error, fake_api, reset

ROOM = ReplyAddress("slack", "T0HOME", "C0ROOM", "1.000001", "2.000002", "U0ALICE")
DM = ReplyAddress("slack", "T0HOME", "D0ALICE", "", "2.000002", "U0ALICE")
ALICE = UserRef("slack", "T0HOME", "U0ALICE")


@pytest_asyncio.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with fake_api() as api:
        yield api


class Naps:
    """Stands in for sleep: takes no time, and remembers what was asked for."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def started(api: FakeApi, *, naps: Any = None, **options: Any) -> AsyncIterator[SlackPlatform]:
    platform = SlackPlatform(
        "xoxb-secret",
        api_url=api.url,
        sleep=naps or Naps(),
        **{"clock": Clock(step=1.0), "rate_budget": 1_000.0, **options},
    )
    await platform.start()
    try:
        yield platform
    finally:
        await platform.aclose()


async def until_ready(platform: SlackPlatform) -> None:
    async with asyncio.timeout(5):
        await platform.wait_ready()
    assert platform.is_ready


# -- who the bot is


async def test_it_finds_out_who_it_is(api: FakeApi) -> None:
    api.users["U0BOT"] = {"id": "U0BOT", "profile": {"api_app_id": "A0APP"}}
    async with started(api) as platform:
        as_protocol: ChatPlatform = platform
        assert not as_protocol.is_ready
        assert platform.problem
        await until_ready(platform)
        assert platform.identity == Identity("A0APP", "T0HOME", "U0BOT", "B0BOT")
        assert platform.client.team_id == "T0HOME"
        assert (platform.name, platform.language, platform.problem) == ("slack", "en", "")


async def test_an_app_id_from_the_first_call_needs_no_second(api: FakeApi) -> None:
    api.auth["app_id"] = "A0APP"
    async with started(api) as platform:
        await until_ready(platform)
        assert platform.identity == Identity("A0APP", "T0HOME", "U0BOT", "B0BOT")
    assert api.methods() == ["auth.test"]


async def test_without_an_app_id_it_is_ready_all_the_same(api: FakeApi) -> None:
    api.fail("users.info", error("missing_scope", needed="users:read"))
    async with started(api) as platform:
        await until_ready(platform)
        assert platform.identity == Identity("", "T0HOME", "U0BOT", "B0BOT")


async def test_it_asks_until_slack_answers(api: FakeApi) -> None:
    naps = Naps()
    api.fail(
        "auth.test",
        reset(after=False),
        body("down", status=503),
        error("ratelimited", status=429, headers={"Retry-After": "30"}),
        error("internal_error"),
    )
    async with started(api, naps=naps) as platform:
        await until_ready(platform)
    assert naps.seconds == [0.5, 1.0, 30.0, 4.0]


async def test_the_waits_grow_to_a_minute(api: FakeApi) -> None:
    naps = Naps()
    api.fail("auth.test", *[error("internal_error")] * 12)
    async with started(api, naps=naps) as platform:
        await until_ready(platform)
    assert naps.seconds[-3:] == [60.0] * 3


async def test_a_wrong_token_is_named_once(api: FakeApi) -> None:
    api.fail("auth.test", *[error("invalid_auth")] * 3)
    with structlog.testing.capture_logs() as logs:
        async with started(api) as platform:
            await until_ready(platform)
    errors = [line for line in logs if line["log_level"] == "error"]
    assert len(errors) == 1
    assert "SLACK_BOT_TOKEN" in errors[0]["problem"]
    assert "invalid_auth" in errors[0]["problem"]
    assert "xoxb-secret" not in str(logs)


async def test_it_can_be_closed_while_it_waits(api: FakeApi) -> None:
    api.fail("auth.test", *[error("internal_error")] * 1_000)
    async with started(api, naps=asyncio.sleep) as platform:
        await asyncio.sleep(0)
        assert not platform.is_ready


def test_before_the_start_there_is_no_client() -> None:
    with pytest.raises(RuntimeError, match="start"):
        _ = SlackPlatform("xoxb-secret").client


# -- short messages


async def test_say(api: FakeApi) -> None:
    async with started(api) as platform:
        await platform.say(ROOM, "a < b & <!here>")
        await platform.say(DM, "hello")
    room, dm = api.called("chat.postMessage")
    assert (room["thread_ts"], room["text"]) == ("1.000001", "a &lt; b &amp; &lt;!here&gt;")
    assert "thread_ts" not in dm


async def test_say_tells_why_not(api: FakeApi) -> None:
    api.fail("chat.postMessage", error("is_archived"))
    async with started(api) as platform:
        with pytest.raises(ChatGone):
            await platform.say(ROOM, "hello")


@pytest.mark.parametrize(
    ("address", "method", "thread"),
    [
        (ROOM, "chat.postEphemeral", "1.000001"),
        (ReplyAddress("slack", "T0HOME", "C0ROOM", "1.0", "1.0", "U0ALICE"), "chat.postEphemeral", None),
        (DM, "chat.postMessage", None),
    ],
)
async def test_say_privately(api: FakeApi, address: ReplyAddress, method: str, thread: str | None) -> None:
    async with started(api) as platform:
        await platform.say_privately(address, "only <you>")
    (sent,) = api.called(method)
    assert (sent["text"], sent.get("thread_ts")) == ("only &lt;you&gt;", thread)
    assert sent.get("user") == (None if method == "chat.postMessage" else "U0ALICE")


async def test_delete_reply(api: FakeApi) -> None:
    async with started(api) as platform:
        ts = await platform.client.post("C0ROOM", "", text="x")
        for _ in range(2):
            await platform.delete_reply(ChatRef("slack", "T0HOME", "C0ROOM"), ts)
    assert api.messages == {}


# -- names


@pytest.mark.parametrize(
    ("user", "name"),
    [
        ({"name": "alice", "real_name": "Alice Doe", "profile": {"display_name": "Ali", "real_name": "A"}}, "Ali"),
        ({"name": "alice", "real_name": "Alice Doe", "profile": {"display_name": "", "real_name": "A"}}, "A"),
        ({"name": "alice", "real_name": "Alice Doe"}, "Alice Doe"),
        ({"name": "alice"}, "alice"),
        ({"profile": 7}, "U0ALICE"),
    ],
)
async def test_speaker_name(api: FakeApi, user: dict[str, Any], name: str) -> None:
    api.users["U0ALICE"] = user
    async with started(api) as platform:
        assert await platform.speaker_name(ALICE) == name


async def test_names_are_asked_once_an_hour(api: FakeApi) -> None:
    clock = Clock()
    api.users["U0ALICE"] = {"name": "alice"}
    async with started(api, clock=clock) as platform:
        await until_ready(platform)
        api.calls.clear()
        for _ in range(3):
            assert await platform.speaker_name(ALICE) == "alice"
        assert len(api.calls) == 1
        clock.now += 3_601
        api.fail("users.info", error("internal_error"))
        assert await platform.speaker_name(ALICE) == "alice", "an older name is better than none"
        assert await platform.speaker_name(ALICE) == "alice"
        assert len(api.calls) == 3


async def test_a_name_that_cannot_be_had_is_the_id(api: FakeApi) -> None:
    async with started(api) as platform:
        assert await platform.speaker_name(ALICE) == "U0ALICE"
        api.users["U0ALICE"] = {"name": "alice"}
        assert await platform.speaker_name(ALICE) == "alice", "a failure is not kept"


# -- questions for permission

QUESTION = question_view(Approval("a" * 32, "ABCDEF", "write_file", {"path": "x"}, 2e9, requester="slack:U0ALICE"))


async def test_a_question_is_a_message_of_its_own_that_is_found_again_and_edited(api: FakeApi) -> None:
    async with started(api) as platform:
        await until_ready(platform)
        assert await platform.find_question(ROOM, QUESTION.id) == ""
        ts = await platform.post_question(ROOM, QUESTION, "en")
        [post] = api.called("chat.postMessage")
        assert (post["channel"], post["thread_ts"]) == (ROOM.chat, ROOM.thread)
        assert (post["unfurl_links"], post["unfurl_media"]) == (False, False)
        assert await platform.find_question(ROOM, QUESTION.id) == ts
        assert await platform.find_question(ROOM, "b" * 32) == ""
        await platform.show_question(ROOM, ts, replace(QUESTION, state=QuestionState.EXPIRED), "zh")
        [edit] = api.called("chat.update")
        assert edit["ts"] == ts
        assert "已过期" in edit["text"]
        assert not [block for block in edit["blocks"] if block["type"] == "actions"]


async def test_a_question_that_does_not_fit_is_not_posted(api: FakeApi) -> None:
    long = question_view(Approval("a" * 32, "ABCDEF", "write_file", {"content": "x" * 20_000}, 2e9))
    async with started(api) as platform:
        await until_ready(platform)
        with pytest.raises(QuestionTooLong):
            await platform.post_question(ROOM, long, "en")
    assert api.called("chat.postMessage") == []


async def test_where_slack_lets_us_not_read_nobody_can_say_whether_a_question_arrived(api: FakeApi) -> None:
    async with started(api) as platform:
        await until_ready(platform)
        api.fail("conversations.replies", error("missing_scope"), error("thread_not_found"))
        assert await platform.find_question(ROOM, QUESTION.id) is None
        assert await platform.find_question(ROOM, QUESTION.id) == "", "the thread is gone, and all in it"
