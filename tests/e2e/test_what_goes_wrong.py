"""What goes wrong and what then: each promise end to end, through signed HTTP and the local Slack."""

import asyncio
import itertools
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from bots.coordination.embedded import EmbeddedValkey
from bots.playground.faults import Fault
from bots.playground.serving import free_port
from bots.playground.slack.delivery import sign
from tests.e2e.bed import Bed, bed
from tests.e2e.standing import Standing
from tests.e2e.test_slack_chat import markdown_of
from tests.warm import run_warm

NO_PATIENCE = {"MODEL_RETRIES": "0", "IDLE_TIMEOUT_S": "1", "FIRST_DELTA_TIMEOUT_S": "1"}
_numbers = itertools.count(1)


async def post(b: Bed, body: bytes, *, timestamp: str | None = None, signature: str | None = None,
               content_type: str = "application/json") -> tuple[int, bytes, float]:  # fmt: skip
    """One request to the service as if from Slack; gives status, body and seconds."""
    stamp = timestamp if timestamp is not None else str(int(time.time()))
    headers = {
        "Content-Type": content_type,
        "X-Slack-Request-Timestamp": stamp,
        "X-Slack-Signature": signature if signature is not None else sign(b.slack.signing_secret, stamp, body),
    }
    started = time.monotonic()
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{b.service.base_url}/slack/events", data=body, headers=headers) as answer,
    ):
        return answer.status, await answer.read(), time.monotonic() - started


async def body_of_a_mention(b: Bed) -> bytes:
    """The real body of a real mention that the service has answered already, as a forger would have captured it."""
    root = b.say("hello")
    await b.card("Done", thread=root)
    await b.slack.settled()
    bodies = [json.loads(delivery.envelope.body) for delivery in b.slack.deliverer.deliveries]
    body = next(body for body in bodies if body["event"]["type"] == "app_mention")
    ts = f"{1_900_000_000 + next(_numbers)}.000100"  # a message that was never handled
    body["event"]["ts"] = body["event"]["event_ts"] = ts
    return json.dumps(body).encode()


FORGERIES = {
    "bad signature": {"signature": "v0=" + "0" * 64},
    "no signature": {"signature": ""},
    "signature that is not ASCII": {"signature": "v0=\u00fc"},
    "old timestamp": {"timestamp": "1500000000"},
    "future timestamp": {"timestamp": "9999999999"},
    "non-numeric timestamp": {"timestamp": "yesterday"},
    "empty timestamp": {"timestamp": ""},
}


async def test_a_bad_signature_or_an_old_or_non_numeric_timestamp_is_401_and_nothing_happens(
    standing: Standing,
) -> None:
    async with standing.bed() as b:
        body = await body_of_a_mention(b)
        for name, forgery in FORGERIES.items():
            status, answer, _ = await post(b, body, **forgery)
            assert (status, answer) == (401, b""), name
        assert len(b.asked()) == 1
        status, _, _ = await post(b, body)
        assert status == 200, "the very same body with a right signature is taken"


MALFORMED = {
    "cut JSON": b'{"type": "event_callback", "event": {',
    "not an object": b"[1, 2]",
    "not UTF-8": b'{"type": "\xff"}',
    "an event that is no object": b'{"type": "event_callback", "event": 7}',
    "a message without channel": b'{"type": "event_callback", "event": {"type": "message", "user": "U1", "ts": "1.2"}}',
}


async def test_a_signed_but_malformed_body_is_400(standing: Standing) -> None:
    async with standing.bed() as b:
        for what, body in MALFORMED.items():
            status, answer, _ = await post(b, body)
            assert (status, answer) == (400, b""), what
        root = b.say("hello")
        await b.card("Done", thread=root)


@asynccontextmanager
async def own_valkey(tmp_path: Path) -> AsyncIterator[tuple[str, EmbeddedValkey]]:
    """A Valkey that the test may stop: the service only knows its address."""
    valkey = EmbeddedValkey(tmp_path / "redis")
    url = await valkey.start()
    try:
        yield url, valkey
    finally:
        await valkey.stop()


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["frozen", "dead"])
async def test_redis_unreachable_is_503_within_2_s_and_the_event_works_when_slack_sends_it_again(
    tmp_path: Path, how: signal.Signals
) -> None:
    async with (
        own_valkey(tmp_path) as (url, valkey),
        bed(tmp_path, settings={"REDIS_URL": url}, retry_delays_s=(0.1, 4.0, 4.0)) as b,
    ):
        b.expects_violations = True  # an event that is answered with 503 is what this test is about
        assert valkey.pid is not None
        os.kill(valkey.pid, how)
        await asyncio.sleep(0.05)
        root = b.say("hello")
        delivery = b.slack.deliverer.deliveries[0]
        await b.until(lambda: delivery.attempts and delivery.attempts[0].status, "the first answer")
        assert delivery.attempts[0].status == 503
        async with aiohttp.ClientSession() as http, http.get(f"{b.service.base_url}/readyz") as answer:
            assert answer.status == 503
        status, _, seconds = await post(b, delivery.envelope.body)
        assert status == 503
        assert seconds < 2
        if how is signal.SIGSTOP:
            os.kill(valkey.pid, signal.SIGCONT)
        else:
            await valkey.stop()
            assert await valkey.start() == url
        await b.card("Done", thread=root, seconds=20)
        await b.slack.settled()
        assert len(b.asked()) == 1


async def test_the_same_event_again_at_once_or_later_is_one_task(standing: Standing) -> None:
    async with standing.bed() as b:
        root = b.say("hello")
        event_ids = [d.envelope.event_id for d in b.slack.deliverer.deliveries]
        for _ in range(4):  # while the first one is still being worked on
            await asyncio.gather(*(b.slack.redeliver(event_id) for event_id in event_ids))
        await b.card("Done", thread=root)
        # "5 minutes later" is a delivery with the late retry's headers after everything has ended: nothing in the
        # decision depends on the clock, only on the 48 hours for which the message is remembered.
        for event_id in event_ids:
            attempt = await b.slack.redeliver(event_id, retry_num=3, reason="http_timeout")
            assert attempt.status == 200
        await b.slack.settled()
        assert len(b.asked()) == 1
        assert len(b.bot_messages()) == 1


async def test_a_message_whose_deletion_arrives_first_never_starts(standing: Standing) -> None:
    async with standing.bed() as b:
        mention = json.loads(await body_of_a_mention(b))
        ts, channel = mention["event"]["ts"], mention["event"]["channel"]
        deletion = {"type": "message", "subtype": "message_deleted", "hidden": True, "channel": channel,
                    "channel_type": "channel", "ts": "1800000001.000100", "event_ts": "1800000001.000100",
                    "deleted_ts": ts}  # fmt: skip
        for event in (deletion, mention["event"]):
            status, _, _ = await post(b, json.dumps({**mention, "event": event}).encode())
            assert status == 200
        later = b.say("calc 1+1")
        await b.card("Done", thread=later)
        assert [prompt for prompt in b.asked() if "hello" in prompt] == [b.asked()[0]], (
            "only the first one was answered"
        )


async def test_a_message_deleted_at_once_leaves_no_answer(standing: Standing) -> None:
    async with standing.bed() as b:
        for text in ("long", "long please"):
            root = b.say(text)
            b.slack.recall("general", root)  # before anybody has replied: a plain deletion, not a tombstone
        await b.slack.settled()
        later = b.say("calc 1+1")
        await b.card("Done", thread=later)
        await b.until(lambda: all(request.done.is_set() for request in b.model.requests), "every request to be closed")
        states = [text.partition("\n")[0] for text in b.texts()]
        assert not any(word in state for state in states for word in ("Thinking", "Running", "Queued")), states
        assert sum("Done" in state for state in states) == 1


MODEL_FAILURES = {
    "fail 429": "over its rate limit",
    "fail 500": "overloaded",
    "cut": "broke off",
    "hang": "stopped answering in time",
}


async def test_a_model_that_fails_is_named_on_the_card_and_the_partial_text_stays(standing: Standing) -> None:
    async with standing.bed(settings=NO_PATIENCE) as b:
        for prompt, says in MODEL_FAILURES.items():
            root = b.say(prompt)
            card = await b.card("Failed", thread=root, seconds=20)
            assert says in card["text"]
            assert [button["label"] for button in card["buttons"]] == ["Retry"]
            shown = markdown_of([card])
            assert shown == (await b.request(prompt)).text_sent
            if prompt in ("cut", "hang"):
                assert shown
                assert "incomplete" in card["text"]
            b.say("hello", thread=root)
            await b.card("Done", thread=root, nth=1)


async def test_a_model_that_comes_back_is_asked_again_and_the_card_says_so(standing: Standing) -> None:
    async with standing.bed() as b:
        b.model.set_fault({"status": 503, "times": 1})
        root = b.say("hello")
        card = await b.card("Done", thread=root)
        states = b.slack.visible_history("general", card["message"])
        assert any("asking again" in state for state in states)
        assert "asking again" not in states[-1]


async def test_an_answer_that_breaks_off_once_is_taken_back_and_asked_for_again(standing: Standing) -> None:
    async with standing.bed(speed=10) as b:
        b.model.set_fault({"cut_after": 30, "times": 1})
        root = b.say("hello")
        card = await b.card("Done", thread=root, seconds=20)
        broken, whole = b.model.requests
        assert broken.text_sent
        assert markdown_of([card]) == whole.text_sent
        states = b.slack.visible_history("general", card["message"])
        assert any("asking again" in state for state in states)
        assert len(b.bot_messages(thread=root)) == 1


async def test_a_model_that_resets_the_connection_is_named_on_the_card(standing: Standing) -> None:
    async with standing.bed(settings=NO_PATIENCE) as b:
        b.model.set_fault({"reset": True, "times": 1})
        root = b.say("hello")
        card = await b.card("Failed", thread=root)
        assert "connection" in card["text"]


async def test_a_run_that_takes_too_long_is_timed_out(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={"RUN_TIMEOUT_S": "1"}) as b:
        root = b.say("long")
        await b.card("Timed out", thread=root)
        await b.until(lambda: b.model.requests[0].closed_by_client, "the model's request to be closed")


FAULTS = {
    "429": {"status": 429},
    "500": {"status": 500},
    "reset after it was done": {"reset": True},
    "slow": {"latency_ms": 400},
    "internal_error": {"error": "internal_error"},
}


@pytest.mark.parametrize("when", ["in the middle", "at the end", "at the post"])
async def test_slack_failing_on_an_edit_also_on_the_last_one_still_gets_the_final_text(
    standing: Standing, when: str
) -> None:
    async with standing.bed(speed=40) as b:
        method = "chat.postMessage" if when == "at the post" else "chat.update"
        for turn, (name, fault) in enumerate(FAULTS.items()):
            if when == "at the post":
                b.slack.add_fault(Fault(method=method, times=1, **fault))
            root = b.say("table")
            request = await b.request("table", nth=turn)
            if when != "at the post":
                await b.until(lambda r=request: r.chunks_sent > 20, "the answer to grow")
                if when == "at the end":
                    await asyncio.wait_for(request.done.wait(), 15)
                b.slack.add_fault(Fault(method=method, times=2, **fault))
            await b.card("Done", thread=root, seconds=20)
            assert markdown_of(b.bot_messages(thread=root)) == request.text_sent, name
            assert len(b.bot_messages(thread=root)) == 1, f"{name}: once, not twice"
        await b.slack.settled()
        assert len(b.asked()) == len(FAULTS)


async def test_slack_refusing_every_edit_gets_the_answer_as_a_new_message(standing: Standing) -> None:
    async with standing.bed() as b:
        b.slack.add_fault(Fault(method="chat.update", error="cant_update_message", times=50))
        root = b.say("hello")
        card = await b.card("Done", thread=root)
        assert markdown_of([card]) == b.model.requests[0].text_sent
        assert len(b.bot_messages(thread=root)) == 1, "and the old one is gone"


BROKEN_SETTINGS = {
    "SLACK_SIGNING_SECRET is missing": {"SLACK_SIGNING_SECRET": ""},
    "SLACK_BOT_TOKEN is missing": {"SLACK_BOT_TOKEN": ""},
    "SLACK_BOT_TOKEN must be a bot token": {"SLACK_BOT_TOKEN": "xapp-1"},
    "No platform is set up": {"SLACK_BOT_TOKEN": "", "SLACK_SIGNING_SECRET": ""},
    "OPENAI_MODEL": {"OPENAI_MODEL": ""},
    "BOTS_PORT": {"BOTS_PORT": "many"},
    "QUEUE_CAP": {"QUEUE_CAP": "0"},
    "SLACK_API_URL": {"SLACK_API_URL": "slack.example"},
    "OPENAI_BASE_URL": {"OPENAI_BASE_URL": "localhost:11434"},
    "REDIS_URL": {"REDIS_URL": "redis://127.0.0.1:port"},
    "MODEL_PROFILE": {"MODEL_PROFILE": "nobody"},
    "BOTS_DATA_DIR": {"BOTS_DATA_DIR": "/proc/nowhere"},
    "SYSTEM_PROMPT_FILE": {"SYSTEM_PROMPT_FILE": "/nowhere/persona.txt"},
}


@pytest.mark.parametrize("says", BROKEN_SETTINGS)
def test_a_missing_or_wrong_setting_is_one_sentence_that_names_it(tmp_path: Path, says: str) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "SLACK_BOT_TOKEN": "xoxb-1",
        "SLACK_SIGNING_SECRET": "s",
        "OPENAI_API_KEY": "sk-1",
        "OPENAI_MODEL": "m",
        "BOTS_DATA_DIR": str(tmp_path / "data"),
        "BOTS_PORT": str(free_port()),
        "PYTHONPATH": str(Path(__file__).parents[2]),
        **BROKEN_SETTINGS[says],
    }
    done = run_warm("bots", "serve", env=env, folder=tmp_path)
    assert done.code == 2
    [line] = done.errors.strip().splitlines()
    assert says in line
    assert "xoxb-1" not in line
    assert "sk-1" not in line


async def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    async with bed(tmp_path, start=False) as b:
        listener = await asyncio.start_server(lambda r, w: None, "127.0.0.1", b.service.port)
        async with listener:
            await b.service.start(ready=False)
            assert b.service.process is not None
            assert await b.service.ended(20) == 2
        assert "BOTS_PORT" in b.service.log
        assert "Traceback" not in b.service.log
