"""Events and clicks of the local Slack server, received by a real slack_bolt app over real HTTP."""

import asyncio
import json
import time

import pytest
from slack_sdk.webhook.async_client import AsyncWebhookClient

from bots.playground.clock import ManualClock
from tests.playground.rig import Receiver, bolt_app, client, receiving, slack, until

GENERAL = "C0GENERAL01"
BOT = "U0BT5LOCAL1"
APPROVE = [
    {"type": "section", "text": {"type": "mrkdwn", "text": "Run it?"}},
    {
        "type": "actions",
        "elements": [
            {
                "type": "button",
                "text": {"type": "plain_text", "text": "Allow once"},
                "action_id": "approve:1",
                "value": "ap_1",
                "style": "primary",
            }
        ],
    },
]


@pytest.mark.parametrize(
    ("order", "types"),
    [("message_first", ["message", "app_mention"]), ("mention_first", ["app_mention", "message"])],
)
async def test_a_mention_comes_twice_in_either_order(order, types):
    async with slack(mention_order=order) as server, bolt_app(server) as (app, bodies):

        @app.event("message")
        async def on_message():
            pass

        @app.event("app_mention")
        async def on_mention():
            pass

        ts = server.say("general", "alice", "hello <world> & all", mention=True)
        await server.settled()
        assert [body["event"]["type"] for body in bodies] == types
        assert {body["event"]["ts"] for body in bodies} == {ts}
        assert len({body["event_id"] for body in bodies}) == 2
        by_type = {body["event"]["type"]: body for body in bodies}
        message, mention = by_type["message"], by_type["app_mention"]
        assert message["event"]["text"] == f"<@{BOT}> hello &lt;world&gt; &amp; all"
        assert message["event"]["channel_type"] == "channel"
        assert message["event"]["blocks"][0]["elements"][0]["elements"][0] == {"type": "user", "user_id": BOT}
        assert "channel_type" not in mention["event"]
        assert "context_team_id" in message
        assert "context_team_id" not in mention
        assert message["authorizations"][0]["user_id"] == BOT
        assert server.messages("general")[0]["text"] == "@bot hello <world> & all"
        assert server.violations.all == []


async def test_a_direct_message_comes_once_and_a_plain_one_without_mention_too():
    receiver = Receiver()
    async with slack() as server, receiving(server, receiver):
        server.say("dm-alice", "alice", "hi @bot")
        server.say("general", "bob", "not for you")
        await server.settled()
        assert [(e["type"], e["channel_type"]) for e in receiver.events] == [("message", "im"), ("message", "channel")]


async def test_the_signature_is_good_and_a_wrong_one_is_refused_by_bolt():
    async with slack() as server, bolt_app(server) as (app, bodies):

        @app.event("message")
        async def on_message():
            pass

        server.say("dm-alice", "alice", "hi")
        await server.settled()
        (delivery,) = server.deliverer.deliveries
        assert delivery.accepted
        body = delivery.envelope.body
        old = str(int(time.time()) - 301)
        assert (await server.deliverer.raw(body)).status == 200
        assert (await server.deliverer.raw(body, timestamp=old)).status == 401
        assert (await server.deliverer.raw(body, signature="v0=" + "0" * 64)).status == 401
        assert len(bodies) == 2
        assert server.violations.all == []


async def test_url_verification_is_signed_and_gets_its_challenge_back():
    async with slack() as server, bolt_app(server) as _:
        answer = await server.url_verification("the-challenge")
        assert answer.status == 200
        assert json.loads(answer.answer) == {"challenge": "the-challenge"}


async def test_retries_at_once_after_a_minute_and_after_five():
    clock = ManualClock()
    receiver = Receiver(status=503)
    async with slack(clock=clock) as server, receiving(server, receiver):
        server.say("dm-alice", "alice", "hi")
        await until(lambda: clock.sleepers)
        assert len(receiver.received) == 2
        assert clock.sleepers == (60.0,)
        clock.advance(59.9)
        assert len(receiver.received) == 2
        clock.advance(0.1)
        await until(lambda: clock.sleepers == (300.0,))
        clock.advance(300)
        await server.settled()
        nums = [headers.get("x-slack-retry-num") for headers, _ in receiver.received]
        assert nums == [None, "1", "2", "3"]
        assert receiver.received[1][0]["x-slack-retry-reason"] == "http_error"
        assert len({body for _, body in receiver.received}) == 1
        (delivery,) = server.deliverer.deliveries
        assert [a.status for a in delivery.attempts] == [503] * 4
        assert not delivery.accepted
        # 503 is how an app says that it is out of order: no violation.
        assert server.violations.all == []


async def test_a_retry_that_is_accepted_ends_the_delivery():
    receiver = Receiver(statuses=[500])
    async with slack() as server, receiving(server, receiver):
        server.say("dm-alice", "alice", "hi")
        await server.settled()
        (delivery,) = server.deliverer.deliveries
        assert [a.status for a in delivery.attempts] == [500, 200]
        assert delivery.accepted
        assert [v.kind for v in server.violations.all] == ["event_refused"]


async def test_no_retry_when_the_app_says_so():
    receiver = Receiver(status=503, headers={"X-Slack-No-Retry": "1"})
    async with slack() as server, receiving(server, receiver):
        server.say("dm-alice", "alice", "hi")
        await server.settled()
        assert len(receiver.received) == 1


async def test_no_answer_in_time_and_nobody_there_have_their_own_reasons():
    receiver = Receiver(delay=asyncio.Event())
    async with slack(event_timeout_s=0.1, retry_delays_s=(0,)) as server, receiving(server, receiver):
        server.say("dm-alice", "alice", "hi")
        await until(lambda: len(receiver.received) == 2)
        assert receiver.received[1][0]["x-slack-retry-reason"] == "http_timeout"
        await server.settled()
        assert {v.kind for v in server.violations.all} == {"event_timeout"}
        receiver.delay.set()
    async with slack(retry_delays_s=(0,)) as server:
        server.event_urls.append("http://127.0.0.1:9/slack/events")
        server.say("dm-alice", "alice", "hi")
        await server.settled()
        assert [a.reason for a in server.deliverer.deliveries[0].attempts] == ["connection_failed"] * 2
        assert server.violations.all == []


async def test_events_of_a_conversation_come_in_order_and_race_on_request():
    receiver = Receiver(delay=asyncio.Event())
    async with slack() as server, receiving(server, receiver):
        for n in range(3):
            server.say("general", "alice", str(n))
        server.say("dm-bob", "bob", "elsewhere")
        await until(lambda: len(receiver.received) == 2)
        assert [e["text"] for e in receiver.events] == ["0", "elsewhere"]
        receiver.delay.set()
        await server.settled()
        assert [e["text"] for e in receiver.events] == ["0", "elsewhere", "1", "2"]
    receiver = Receiver(delay=asyncio.Event())
    async with slack(events_in_order=False) as server, receiving(server, receiver):
        for n in range(3):
            server.say("general", "alice", str(n))
        await until(lambda: len(receiver.received) == 3)
        receiver.delay.set()


async def test_the_server_may_stop_while_events_are_on_their_way():
    receiver = Receiver(delay=asyncio.Event())
    async with slack(event_timeout_s=30) as server, receiving(server, receiver):
        server.say("dm-alice", "alice", "one")
        await until(lambda: receiver.received)
        server.say("dm-alice", "alice", "two")
        receiver.delay.set()
    assert len(server.deliverer.deliveries) == 2
    # Nothing is sent any more, and nothing breaks.
    server.say("dm-alice", "alice", "three")
    assert server.deliverer.deliveries[-1].attempts == []


async def test_an_event_can_be_delivered_again_at_will():
    receiver = Receiver()
    async with slack() as server, receiving(server, receiver):
        server.say("dm-alice", "alice", "hi")
        await server.settled()
        event_id = server.deliverer.deliveries[0].envelope.event_id
        await server.redeliver(event_id, retry_num=3, reason="http_error")
        (_, first_body), (again, again_body) = receiver.received
        assert first_body == again_body
        assert again["x-slack-retry-num"] == "3"


async def test_several_replicas_take_turns():
    one, two = Receiver(), Receiver()
    async with slack() as server, receiving(server, one), receiving(server, two):
        for n in range(4):
            server.say("dm-alice", "alice", str(n))
        await server.settled()
        assert (len(one.received), len(two.received)) == (2, 2)


async def test_deleting_a_message_without_replies():
    receiver = Receiver()
    async with slack() as server, receiving(server, receiver):
        ts = server.say("general", "alice", "oops")
        server.recall("general", ts, user="alice")
        await server.settled()
        deleted = receiver.events[-1]
        assert deleted["subtype"] == "message_deleted"
        assert deleted["deleted_ts"] == ts
        assert deleted["hidden"] is True
        assert deleted["previous_message"]["text"] == "oops"
        assert deleted["ts"] != ts


async def test_deleting_a_parent_leaves_a_tombstone_until_its_last_reply_goes():
    receiver = Receiver()
    async with slack() as server, receiving(server, receiver):
        root = server.say("general", "alice", "question")
        reply = await client(server).chat_postMessage(channel=GENERAL, text="answer", thread_ts=root)
        server.recall("general", root)
        await server.settled()
        tombstone = receiver.events[-1]
        assert tombstone["subtype"] == "message_changed"
        assert tombstone["message"]["subtype"] == "tombstone"
        assert tombstone["message"]["user"] == "USLACKBOT"
        assert tombstone["message"]["ts"] == tombstone["message"]["thread_ts"] == root
        assert tombstone["previous_message"]["text"] == "question"
        assert server.messages("general")[0]["text"] == "This message was deleted."
        await client(server).chat_delete(channel=GENERAL, ts=reply["ts"])
        await server.settled()
        own, parent = receiver.events[-2:]
        assert own["deleted_ts"] == reply["ts"]
        assert own["previous_message"]["bot_id"] == "B0BT5LOCAL1"
        assert parent["deleted_ts"] == root
        assert parent["previous_message"]["subtype"] == "tombstone"


async def test_the_bot_hears_of_its_own_writes_and_a_reply_changes_its_parent():
    receiver = Receiver()
    async with slack() as server, receiving(server, receiver):
        root = server.say("general", "alice", "question")
        web = client(server)
        card = [{"type": "markdown", "text": "a"}]
        ts = (await web.chat_postMessage(channel=GENERAL, text="a", blocks=card, thread_ts=root))["ts"]
        await web.chat_update(channel=GENERAL, ts=ts, text="b", blocks=[{"type": "markdown", "text": "b"}])
        await server.settled()
        posted, parent, changed = receiver.events[1:]
        assert (posted["bot_id"], posted["app_id"], posted["user"]) == ("B0BT5LOCAL1", "A0APPLOCAL1", BOT)
        assert posted["thread_ts"] == root
        assert parent["subtype"] == "message_changed"
        assert parent["message"]["reply_count"] == 1
        assert parent["message"]["text"] == "question"
        assert "edited" not in parent["message"]
        assert changed["message"]["bot_id"] == "B0BT5LOCAL1"
        assert changed["previous_message"]["text"] == "a"


async def test_a_person_s_edit_is_marked():
    receiver = Receiver()
    async with slack() as server, receiving(server, receiver):
        ts = server.say("general", "alice", "teh")
        server.edit("general", ts, "the")
        await server.settled()
        changed = receiver.events[-1]
        assert changed["message"]["edited"]["user"] == "U0ALICE0001"
        assert (changed["previous_message"]["text"], changed["message"]["text"]) == ("teh", "the")


async def test_a_removed_bot_hears_nothing():
    receiver = Receiver()
    async with slack() as server, receiving(server, receiver):
        server.remove_bot("general")
        server.say("general", "alice", "anyone?", mention=True)
        await server.settled()
        assert receiver.received == []


async def test_a_click_reaches_bolt_and_its_response_url_works():
    async with slack() as server, bolt_app(server) as (app, bodies):
        clicked = asyncio.Event()

        @app.event("message")
        async def on_message():
            pass

        @app.action("approve:1")
        async def on_click(ack):
            await ack()
            clicked.set()

        root = server.say("general", "alice", "please")
        posted = await client(server).chat_postMessage(channel=GENERAL, text="Run?", blocks=APPROVE, thread_ts=root)
        message = server.messages("general")[-1]
        assert message["buttons"] == [{"action": "approve:1", "label": "Allow once", "style": "primary"}]
        assert message["text"] == "Run it?"
        delivery = await server.press("general", posted["ts"], "approve:1", "bob")
        assert delivery.attempts[0].status == 200
        await asyncio.wait_for(clicked.wait(), 5)
        body = next(b for b in bodies if b["type"] == "block_actions")
        assert body["user"]["id"] == "U0BOB000001"
        assert body["container"]["thread_ts"] == root
        assert body["message"]["blocks"][1]["block_id"] == body["actions"][0]["block_id"]
        assert (body["actions"][0]["action_id"], body["actions"][0]["value"]) == ("approve:1", "ap_1")

        respond = AsyncWebhookClient(body["response_url"])
        answer = await respond.send_dict({"text": "Only alice can approve", "thread_ts": root})
        assert (answer.status_code, answer.body) == (200, "ok")
        notice = server.messages("general")[-1]
        assert (notice["text"], notice["private_to"]) == ("Only alice can approve", "bob")
        assert notice["thread"] == root
        await respond.send(replace_original=True, text="Done", blocks=[{"type": "markdown", "text": "Done"}])
        assert server.messages("general")[1]["text"] == "Done"
        for _ in range(3):
            await respond.send(text="more")
        spent = await respond.send(text="one too many")
        assert spent.status_code == 404
        assert json.loads(spent.body)["error"] == "used_url"
        await server.settled()
        assert [v.kind for v in server.violations.all] == ["used_url"]


async def test_an_ephemeral_message_can_only_be_touched_through_its_response_url():
    clock = ManualClock()
    async with slack(clock=clock) as server, bolt_app(server) as (app, bodies):

        @app.action("approve:1")
        async def on_click(ack):
            await ack()

        await client(server).chat_postEphemeral(channel=GENERAL, user="U0BOB000001", text="x", blocks=APPROVE)
        ts = server.messages("general")[0]["message"]
        await server.press("general", ts, "approve:1", "bob")
        body = next(b for b in bodies if b["type"] == "block_actions")
        assert body["container"]["is_ephemeral"] is True
        assert "message" not in body
        respond = AsyncWebhookClient(body["response_url"])
        await respond.send(delete_original=True)
        assert server.messages("general")[0]["deleted"] is True
        clock.advance(1_801)
        late = await respond.send(text="late")
        assert json.loads(late.body)["error"] == "expired_url"
