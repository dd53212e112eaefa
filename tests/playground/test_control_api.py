"""The control API as DESIGN.md 9 fixes it, over HTTP."""

import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import pytest

from bots.playground.control import control_app
from bots.playground.serving import serve_asgi
from bots.playground.slack.server import SlackServer
from tests.playground.rig import Receiver, client, receiving, slack


class Api:
    def __init__(self, http: aiohttp.ClientSession, server: SlackServer, base_url: str) -> None:
        self.server = server
        self.base_url = base_url
        self._http = http

    async def post(self, path: str, body: Any, *, status: int = 200) -> Any:
        async with self._http.post(f"{self.base_url}/api/{path}", data=json.dumps(body)) as answer:
            assert answer.status == status, await answer.text()
            return await answer.json()

    async def get(self, path: str, *, status: int = 200, **query: str) -> Any:
        async with self._http.get(f"{self.base_url}/api/{path}", params=query) as answer:
            assert answer.status == status, await answer.text()
            return await answer.json() if status != 204 else None

    async def say(self, text: str, *, chat: str = "general", user: str = "alice", **extra: Any) -> str:
        body = {"platform": "slack", "chat": chat, "user": user, "text": text, **extra}
        return (await self.post("say", body))["message"]

    async def messages(self, chat: str = "general") -> list[dict[str, Any]]:
        return await self.get("messages", platform="slack", chat=chat)


@contextlib.asynccontextmanager
async def control(model_faults: Any = None) -> AsyncGenerator[Api]:
    async with (
        slack() as server,
        serve_asgi(control_app([server], model_faults=model_faults)) as base_url,
        aiohttp.ClientSession() as http,
    ):
        yield Api(http, server, base_url)


async def test_say_in_a_channel_in_a_thread_and_with_a_mention():
    async with control() as api:
        root = await api.say("你好 & <hello>", mention=True)
        reply = await api.say("ask @carol", user="bob", thread=root)
        first, second = await api.messages()
        assert first["message"] == root
        assert first["thread"] is None
        assert first["author"] == "alice"
        assert first["text"] == "@bot 你好 & <hello>"
        assert first["raw"]["text"] == "<@U0BT5LOCAL1> 你好 &amp; &lt;hello&gt;"
        assert (first["deleted"], first["private_to"], first["buttons"]) == (False, None, [])
        assert [write["method"] for write in first["writes"]] == ["say"]
        assert (second["message"], second["thread"], second["text"]) == (reply, root, "ask @carol")
        assert second["raw"]["text"] == "ask <@U0CAROL0001>"


async def test_recall_leaves_a_deleted_message():
    async with control() as api:
        ts = await api.say("oops")
        await api.post("recall", {"platform": "slack", "chat": "general", "message": ts})
        (message,) = await api.messages()
        assert message["deleted"] is True
        error = await api.post("recall", {"platform": "slack", "chat": "general", "message": ts}, status=400)
        assert error["error"] == f"Message {ts} is deleted."
        other = await api.say("mine")
        body = {"platform": "slack", "chat": "general", "message": other, "user": "bob"}
        assert "its author is alice" in (await api.post("recall", body, status=400))["error"]


async def test_click_sends_the_press_and_names_the_buttons_that_exist():
    async with control() as api:
        receiver = Receiver()
        async with receiving(api.server, receiver):
            button = {"type": "button", "text": {"type": "plain_text", "text": "Stop"}, "action_id": "stop:1"}
            blocks = [{"type": "actions", "elements": [button]}]
            posted = await client(api.server).chat_postMessage(channel="C0GENERAL01", text="x", blocks=blocks)
            (message,) = await api.messages()
            assert [(b["action"], b["label"]) for b in message["buttons"]] == [("stop:1", "Stop")]
            body = {"platform": "slack", "chat": "general", "message": posted["ts"], "action": "stop:1", "user": "bob"}
            await api.post("click", body)
            assert b"payload=" in receiver.received[-1][1]
            error = await api.post("click", body | {"action": "go"}, status=404)
            assert error["error"] == "Unknown button 'go'; known: stop:1."


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"platform": "feishu"}, 400, "The playground has no feishu server yet: it comes later. Here now: slack."),
        ({"platform": "irc"}, 404, "Unknown platform 'irc'; known: slack."),
        ({"chat": "random"}, 404, "Unknown chat 'random'; known: general, dm-alice, dm-bob."),
        ({"user": "mallory"}, 404, "Unknown user 'mallory'; known: alice, bob, carol."),
        ({"chat": "dm-alice", "user": "bob"}, 400, "bob is not in dm-alice; its people are: alice."),
        ({"thread": "1700000000.000001"}, 404, "Unknown message '1700000000.000001'; known: none."),
        ({"text": " "}, 400, "A message needs a text: give `text`, or `mention: true` for the bare mention."),
        ({"text": 3}, 400, "`text` must be of type str."),
        ({"chat": None}, 400, "`chat` is required and must be a string."),
    ],
)
async def test_say_refuses_in_words(body, status, error):
    async with control() as api:
        whole = {"platform": "slack", "chat": "general", "user": "alice", "text": "hi"} | body
        assert await api.post("say", whole, status=status) == {"error": error}


async def test_a_body_that_is_not_an_object():
    async with control() as api:
        assert await api.post("say", [1], status=400) == {"error": "Send a JSON object."}


async def test_faults_reach_the_platform_and_the_model():
    orders: list[dict[str, Any]] = []

    async def set_fault(fault: dict[str, Any]) -> None:
        if "status" not in fault:
            raise ValueError("The model knows `status` only.")
        orders.append(fault)

    async with control(set_fault) as api:
        fault = {"platform": "slack", "method": "auth.test", "status": 500, "times": 1}
        assert await api.post("faults", fault) == {"ok": True}
        with pytest.raises(Exception, match="500"):
            await client(api.server).auth_test()
        await api.post("faults", {"model": {"status": 429, "times": 2}})
        assert orders == [{"status": 429, "times": 2}]
        error = await api.post("faults", {"model": {"colour": "red"}}, status=400)
        assert error["error"] == "The model knows `status` only."
        bad = {"platform": "slack", "method": "auth.test"}
        assert "Say what to break" in (await api.post("faults", bad, status=400))["error"]
        assert "between 400 and 599" in (await api.post("faults", bad | {"status": 200}, status=400))["error"]
        assert "must be of type int" in (await api.post("faults", bad | {"status": True}, status=400))["error"]
        assert "known: *," in (await api.post("faults", bad | {"method": "x", "status": 500}, status=404))["error"]


async def test_model_faults_without_a_scripted_model():
    async with control() as api:
        error = await api.post("faults", {"model": {"status": 500}}, status=400)
        assert "a real one is in use" in error["error"]


async def test_stats_count_calls_and_show_violations():
    async with control() as api:
        await client(api.server).auth_test()
        await client(api.server).auth_test()
        assert await api.get("stats") == {
            "calls": {"auth.test": 2},
            "rate_limited": 0,
            "open_streams": 0,
            "violations": [],
        }
        api.server.violations.add("empty_thread_ts", "chat.postMessage", "for the test")
        (violation,) = (await api.get("stats", platform="slack"))["violations"]
        assert violation["kind"] == "empty_thread_ts"


async def test_the_page_gets_each_change_once():
    async with control() as api:
        await api.say("hi")
        query = {"platform": "slack", "chat": "general", "viewer": "bob"}
        first = await api.get("view", **query)
        assert [m["text"] for m in first["messages"]] == ["hi"]
        await api.get("view", status=204, version=first["version"], **query)
        await api.say("again")
        second = await api.get("view", version=first["version"], **query)
        assert len(second["messages"]) == 2
        await api.get("view", status=400, platform="slack", chat="dm-alice", viewer="bob")


async def test_the_world_lists_people_and_chats():
    async with control() as api:
        (platform,) = (await api.get("world"))["platforms"]
        assert [user["name"] for user in platform["users"]] == ["alice", "bob", "carol"]
        assert [(c["name"], c["members"]) for c in platform["chats"]] == [
            ("general", ["alice", "bob", "carol"]),
            ("dm-alice", ["alice"]),
            ("dm-bob", ["bob"]),
        ]
