"""The adapter against the local Slack server, which counts limits and violations as Slack does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bots.cards.view import CardView, Phase, Pieces, ToolRow
from bots.errors import Unavailable
from bots.inbound import UserRef
from bots.platform import ReplyAddress
from bots.playground.faults import Fault
from bots.playground.slack.server import SlackServer
from bots.slack.platform import SlackPlatform
from tests.slack.test_platform import until_ready


@asynccontextmanager
async def workspace() -> AsyncIterator[tuple[SlackServer, SlackPlatform]]:
    async with SlackServer(tier_scale=None).serving() as server:
        platform = SlackPlatform(server.token, api_url=server.api_url, rate_budget=10_000.0)
        await platform.start()
        try:
            await until_ready(platform)
            yield server, platform
            assert server.stats()["violations"] == []
        finally:
            await platform.aclose()


def address(server: SlackServer, platform: SlackPlatform, chat: str = "general") -> ReplyAddress:
    assert platform.identity is not None
    ts = server.say(chat, "alice", "hello", mention=True)
    channel = next(channel for channel in server.space.channels.values() if channel.name == chat)
    alice = next(person for person in server.space.people.values() if person.name == "alice")
    thread = ts if channel.kind == "channel" else ""
    return ReplyAddress("slack", platform.identity.team_id, channel.id, thread, ts, alice.id)


def view(text: str, phase: Phase = Phase.RUNNING) -> CardView:
    rows = tuple(ToolRow(str(n), "calculator", {"expression": "2*(3+4) <&> `x`"}, "done", 12) for n in range(60))
    return CardView(phase, Pieces([text], 1) if text else Pieces(), rows, task_id="task", started_at=1.0, ended_at=2.0)


async def test_a_long_card_with_everything_in_it_is_accepted() -> None:
    text = "# Title\n\n" + ("A < B & C > D, <!here> ![x](https://a.example/y.png) 这是中文。😀\n\n" * 800)
    text += "```py\n" + "print('<@U0ALICE>')\n" * 900 + "```\n\n| a | b |\n|---|---|\n" + "| 1 | & |\n" * 1_500
    async with workspace() as (server, platform):
        card = platform.card(address(server, platform), "task", "en")
        await card.show(view(""), "state")
        await card.show(view(text[:500]), "text")
        await card.show(view(text), "text")
        await card.show(view(text, Phase.DONE), "final")
        written = [message for message in server.messages("general") if message["author"] == "bot"]
        assert len(written) == len(card.messages) > 5
        await card.show(view("short", Phase.DONE), "final")
        (left,) = [m for m in server.messages("general") if m["author"] == "bot" and not m["deleted"]]
        assert "short" in left["text"]
        assert "calculator(2*(3+4)" in left["text"]


async def test_a_card_whose_post_was_reset_is_found_again() -> None:
    async with workspace() as (server, platform):
        for chat in ("general", "dm-alice"):
            card = platform.card(address(server, platform, chat), "task", "en")
            server.add_fault(Fault("chat.postMessage", reset=True))
            with pytest.raises(Unavailable) as caught:
                await card.show(view("one"), "text")
            assert caught.value.ambiguous
            await card.show(view("one two"), "text")
            (message,) = [message for message in server.messages(chat) if message["author"] == "bot"]
            assert "one two" in message["text"]


async def test_short_messages_names_and_removal() -> None:
    async with workspace() as (server, platform):
        where = address(server, platform)
        await platform.say(where, "said to all")
        await platform.say_privately(where, "said to one")
        assert await platform.speaker_name(UserRef("slack", where.tenant, where.user)) == "alice"
        card = platform.card(where, "task", "zh")
        await card.show(view("x"), "state")
        await card.remove()
        texts = [m["text"] for m in server.messages("general") if m["author"] == "bot" and not m["deleted"]]
        assert texts == ["said to all", "said to one"]
