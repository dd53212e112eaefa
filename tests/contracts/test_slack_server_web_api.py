"""The local Slack server against the real slack_sdk client: methods, errors, limits."""

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError

from bots.playground.clock import ManualClock
from tests.playground.rig import client, slack

GENERAL = "C0GENERAL01"
DM_ALICE = "D0DMALICE00"
ALICE = "U0ALICE0001"
CAROL = "U0CAROL0001"


def markdown(text: str) -> list[dict]:
    return [{"type": "markdown", "text": text}]


async def refused(call, code: str) -> SlackApiError:
    with pytest.raises(SlackApiError) as caught:
        await call
    assert caught.value.response["error"] == code
    return caught.value


async def test_auth_test_names_the_bot_and_its_workspace():
    async with slack() as server:
        answer = await client(server).auth_test()
        assert answer["team_id"] == "T0PLAYGRND1"
        assert answer["user_id"] == server.space.bot.user_id
        assert answer["bot_id"] == server.space.bot.bot_id


async def test_a_wrong_token_an_absent_token_and_an_unknown_method():
    async with slack() as server:
        await refused(client(server, token="xoxb-other").auth_test(), "invalid_auth")
        async with aiohttp.ClientSession() as http, http.post(server.api_url + "auth.test") as answer:
            assert answer.status == 200
            assert await answer.json() == {"ok": False, "error": "not_authed"}
        assert server.stats()["violations"] == []
        error = await refused(client(server).api_call("chat.shout"), "unknown_method")
        assert error.response["req_method"] == "chat.shout"
        assert [v.kind for v in server.violations.all] == ["unknown_method"]


async def test_post_update_delete_and_their_history():
    async with slack() as server:
        web = client(server)
        posted = await web.chat_postMessage(channel=GENERAL, text="Thinking", blocks=markdown("Thinking"))
        ts = posted["ts"]
        await web.chat_update(channel=GENERAL, ts=ts, text="Half", blocks=markdown("Half"))
        await web.chat_update(channel=GENERAL, ts=ts, text="Whole", blocks=markdown("**Whole**"))
        (message,) = server.messages("general")
        assert message["text"] == "**Whole**"
        assert message["author"] == "bot"
        assert [write["method"] for write in message["writes"]] == ["chat.postMessage", "chat.update", "chat.update"]
        assert server.visible_history("general", ts) == ["Thinking", "Half", "**Whole**"]
        assert "edited" not in message["raw"]
        await web.chat_delete(channel=GENERAL, ts=ts)
        (message,) = server.messages("general")
        assert message["deleted"] is True
        assert message["text"] == ""
        await refused(web.chat_update(channel=GENERAL, ts=ts, text="x", blocks=markdown("late")), "message_not_found")
        await refused(web.chat_delete(channel=GENERAL, ts=ts), "message_not_found")
        assert server.violations.all == []


async def test_an_update_with_text_alone_removes_the_blocks_and_shows_edited():
    async with slack() as server:
        web = client(server)
        ts = (await web.chat_postMessage(channel=GENERAL, text="a", blocks=markdown("a")))["ts"]
        answer = await web.chat_update(channel=GENERAL, ts=ts, text="plain")
        assert "blocks" not in answer["message"]
        assert answer["message"]["edited"]["user"] == server.space.bot.user_id
        assert server.messages("general")[0]["text"] == "plain"
        assert [v.kind for v in server.violations.all] == ["edited_mark"]


async def test_nobody_else_s_message_can_be_changed():
    async with slack() as server:
        ts = server.say("general", "alice", "mine")
        await refused(
            client(server).chat_update(channel=GENERAL, ts=ts, text="x", blocks=markdown("x")), "cant_update_message"
        )
        await refused(client(server).chat_delete(channel=GENERAL, ts=ts), "cant_delete_message")
        assert [v.kind for v in server.violations.all] == ["cant_update_message", "cant_delete_message"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"channel": "C0NOWHERE", "text": "x"}, "channel_not_found"),
        ({"channel": GENERAL}, "no_text"),
        ({"channel": GENERAL, "text": "x", "thread_ts": ""}, "invalid_thread_ts"),
        ({"channel": GENERAL, "text": "x", "thread_ts": "yesterday"}, "invalid_thread_ts"),
        ({"channel": GENERAL, "text": "x", "thread_ts": "1700000000.000001"}, "thread_not_found"),
        ({"channel": GENERAL, "blocks": "[{"}, "invalid_blocks_format"),
        ({"channel": GENERAL, "markdown_text": "x", "text": "y"}, "markdown_text_conflict"),
        ({"channel": GENERAL, "markdown_text": "x" * 12_001}, "msg_too_long"),
        ({"channel": GENERAL, "text": "x", "metadata": {"event_type": "card"}}, "invalid_metadata_format"),
    ],
)
async def test_post_refuses(arguments, code):
    async with slack() as server:
        # Straight to api_call: the typed method drops empty values and warns about missing text.
        await refused(client(server).api_call("chat.postMessage", json=arguments), code)
        assert server.messages("general") == []


async def test_a_reply_to_a_reply_is_refused_and_written_down():
    async with slack() as server:
        root = server.say("general", "alice", "root")
        reply = server.say("general", "bob", "reply", thread=root)
        web = client(server)
        await refused(web.chat_postMessage(channel=GENERAL, text="x", thread_ts=reply), "invalid_thread_ts")
        posted = await web.chat_postMessage(channel=GENERAL, text="x", thread_ts=root)
        assert posted["message"]["parent_user_id"] == ALICE
        assert [v.kind for v in server.violations.all] == ["invalid_thread_ts"]


@pytest.mark.parametrize(("orphans", "posted"), [("fail", False), ("post", True)])
async def test_a_reply_to_a_deleted_message_fails_or_stays_in_the_channel(orphans, posted):
    async with slack(orphan_replies=orphans) as server:
        root = server.say("general", "alice", "root")
        server.recall("general", root)
        web = client(server)
        if posted:
            answer = await web.chat_postMessage(channel=GENERAL, text="x", thread_ts=root)
            assert "thread_ts" not in answer["message"]
        else:
            await refused(web.chat_postMessage(channel=GENERAL, text="x", thread_ts=root), "thread_not_found")
        assert server.violations.all == []


async def test_long_texts_a_post_is_cut_an_update_is_refused():
    async with slack() as server:
        web = client(server)
        ts = (await web.chat_postMessage(channel=GENERAL, text="x" * 40_001))["ts"]
        assert len(server.messages("general")[0]["text"]) == 40_000
        await refused(web.chat_update(channel=GENERAL, ts=ts, text="x" * 4_001, blocks=markdown("x")), "msg_too_long")
        await web.chat_update(channel=GENERAL, ts=ts, text="x" * 4_000, blocks=markdown("x"))


async def test_an_archived_channel_and_one_without_the_bot():
    async with slack() as server:
        web = client(server)
        ts = (await web.chat_postMessage(channel=GENERAL, text="x"))["ts"]
        server.archive("general")
        await refused(web.chat_postMessage(channel=GENERAL, text="x"), "is_archived")
        await refused(web.chat_update(channel=GENERAL, ts=ts, text="x", blocks=markdown("x")), "is_archived")
        server.remove_bot("general")
        await refused(web.conversations_history(channel=GENERAL), "not_in_channel")


async def test_an_ephemeral_message_is_private_and_cannot_be_edited():
    async with slack() as server:
        web = client(server)
        answer = await web.chat_postEphemeral(channel=GENERAL, user=ALICE, text="only you")
        (message,) = server.messages("general")
        assert message["private_to"] == "alice"
        assert [m["text"] for m in server.view("general", "alice")] == ["only you"]
        assert server.view("general", "bob") == []
        ts = answer["message_ts"]
        await refused(web.chat_update(channel=GENERAL, ts=ts, text="x", blocks=markdown("x")), "message_not_found")
        await refused(web.chat_postEphemeral(channel=DM_ALICE, user=CAROL, text="x"), "user_not_in_channel")
        assert (await web.conversations_history(channel=GENERAL))["messages"] == []


async def test_history_and_replies_page_and_filter():
    async with slack() as server:
        web = client(server)
        root = server.say("general", "alice", "root")
        other = server.say("general", "bob", "other")
        await web.chat_postMessage(
            channel=GENERAL, text="r0", thread_ts=root, metadata={"event_type": "card", "event_payload": {"task": "1"}}
        )
        replies = [server.say("general", "carol", f"r{n}", thread=root) for n in (1, 2)]
        history = await web.conversations_history(channel=GENERAL)
        assert [m["ts"] for m in history["messages"]] == [other, root]
        assert history["messages"][1]["reply_count"] == 3
        assert history["messages"][1]["thread_ts"] == root
        first = await web.conversations_replies(channel=GENERAL, ts=root, limit=3)
        assert [m["text"] for m in first["messages"]] == ["root", "r0", "r1"]
        assert first["has_more"] is True
        cursor = first["response_metadata"]["next_cursor"]
        rest = await web.conversations_replies(channel=GENERAL, ts=root, limit=3, cursor=cursor)
        assert [m["text"] for m in rest["messages"]] == ["r2"]
        by_reply = await web.conversations_replies(channel=GENERAL, ts=replies[0], include_all_metadata=True)
        assert by_reply["messages"][1]["metadata"]["event_payload"] == {"task": "1"}
        late = await web.conversations_replies(channel=GENERAL, ts=root, oldest=replies[0], inclusive=True)
        assert [m["text"] for m in late["messages"]] == ["r1", "r2"]
        await refused(web.conversations_replies(channel=GENERAL, ts="1700000000.000001"), "thread_not_found")
        await refused(web.conversations_history(channel=GENERAL, cursor="next please"), "invalid_cursor")
        await refused(web.conversations_history(channel=GENERAL, oldest="yesterday"), "invalid_ts_oldest")


async def test_people_and_conversations():
    async with slack() as server:
        web = client(server)
        user = (await web.users_info(user=ALICE))["user"]
        assert (user["name"], user["is_bot"], user["team_id"]) == ("alice", False, "T0PLAYGRND1")
        await refused(web.users_info(user="U0NOBODY"), "user_not_found")
        assert (await web.conversations_info(channel=GENERAL))["channel"]["is_member"] is True
        assert (await web.conversations_info(channel=DM_ALICE))["channel"]["user"] == ALICE
        opened = await web.conversations_open(users=[CAROL])
        posted = await web.chat_postMessage(channel=CAROL, text="hello")
        assert posted["channel"] == opened["channel"]["id"]
        assert [m["text"] for m in server.messages("dm-carol")] == ["hello"]
        channels = await web.users_conversations(types="public_channel,im")
        assert {c["id"] for c in channels["channels"]} >= {GENERAL, DM_ALICE}


async def test_reactions_and_status():
    async with slack() as server:
        web = client(server)
        ts = server.say("general", "alice", "hi")
        await web.reactions_add(channel=GENERAL, name="eyes", timestamp=ts)
        await refused(web.reactions_add(channel=GENERAL, name="eyes", timestamp=ts), "already_reacted")
        await web.assistant_threads_setStatus(channel_id=GENERAL, thread_ts=ts, status="is thinking…")
        shown = server.view("general", "alice")[0]
        assert shown["reactions"] == [{"name": "eyes", "shown": "👀", "count": 1}]
        assert shown["status"] == "is thinking…"
        await web.chat_postMessage(channel=GENERAL, text="done", thread_ts=ts)
        assert server.view("general", "alice")[0]["status"] is None
        bad = web.assistant_threads_setStatus(channel_id=GENERAL, thread_ts="", status="x")
        await refused(bad, "invalid_thread_ts")


async def test_the_status_line_ends_by_itself_after_two_minutes():
    clock = ManualClock()
    async with slack(clock=clock) as server:
        ts = server.say("general", "alice", "hi")
        await client(server).assistant_threads_setStatus(channel_id=GENERAL, thread_ts=ts, status="is thinking…")
        clock.advance(119)
        assert server.view("general", "alice")[0]["status"] == "is thinking…"
        clock.advance(1)
        assert server.view("general", "alice")[0]["status"] is None


async def test_bodies_that_slack_cannot_read():
    async with slack() as server, aiohttp.ClientSession(headers={"Authorization": f"Bearer {server.token}"}) as http:
        cases = [
            ("chat.postMessage", b"{", "application/json", "invalid_json"),
            ("chat.postMessage", b"[]", "application/json", "json_not_object"),
            ("chat.postMessage", b"x", "text/plain", "invalid_post_type"),
            ("conversations.replies", b'{"channel": "C0GENERAL01"}', "application/json", "invalid_arguments"),
        ]
        for method, body, content_type, code in cases:
            headers = {"Content-Type": content_type}
            async with http.post(server.api_url + method, data=body, headers=headers) as answer:
                assert (await answer.json())["error"] == code
        assert len(server.violations.all) == len(cases)
        # A form is as good as JSON, and blocks travel in it as JSON text.
        form = {"channel": GENERAL, "text": "x", "blocks": '[{"type": "markdown", "text": "from a form"}]'}
        async with http.post(server.api_url + "chat.postMessage", data=form) as answer:
            assert (await answer.json())["ok"] is True
        assert server.messages("general")[0]["text"] == "from a form"


async def test_a_broadcast_of_the_bot_is_written_down_but_not_in_code():
    async with slack() as server:
        web = client(server)
        await web.chat_postMessage(channel=GENERAL, text="ok", blocks=markdown("`<!here>` &lt;!here&gt;"))
        assert server.violations.all == []
        assert server.messages("general")[0]["text"] == "`<!here>` <!here>"
        await web.chat_postMessage(channel=GENERAL, text="<!channel> hello")
        assert [v.kind for v in server.violations.all] == ["broadcast"]
