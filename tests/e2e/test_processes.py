"""Processes that stop, die and share the work."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from bots.coordination.embedded import EmbeddedValkey
from bots.playground.serving import free_port
from tests.e2e.bed import Bed, ServiceProcess, bed
from tests.e2e.test_slack_chat import markdown_of


async def test_a_killed_service_leaves_an_honest_card_and_a_chat_that_goes_on(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={"LEASE_TTL_S": "1"}) as b:
        b.expects_violations = True  # events that nobody answers
        root = b.say("long")
        await b.card("Running", thread=root)
        b.say("calc 1+1", thread=root)
        await b.card("Queued (1)", thread=root, nth=1)
        await b.service.stop(signal.SIGKILL)
        await b.until(lambda: b.model.requests[0].done.is_set(), "the model's connection to end")
        await b.service.start()
        await b.until(lambda: any("Interrupted" in t for t in b.texts(thread=root)), "an honest card")
        await b.until(lambda: any("Done" in t and "1+1" in t for t in b.texts(thread=root)), "the queue to move on")
        assert len([prompt for prompt in b.asked() if "long" in prompt]) == 1, "nothing is run again by itself"
        again = b.say("hello")
        await b.card("Done", thread=again)


async def test_a_request_that_nobody_had_begun_is_started_by_the_next_process(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={"LEASE_TTL_S": "1", "MODEL_RETRIES": "0"}) as b:
        b.expects_violations = True
        root = b.say("long")
        await b.card("Running", thread=root)
        for n in range(3):
            b.say(f"calc {n}+1", thread=root)
        await b.card("Queued (3)", thread=root, nth=3)
        await b.service.stop(signal.SIGKILL)
        await b.service.start()
        for n in range(3):
            await b.until(
                lambda n=n: any("Done" in t and f"{n}+1" in t for t in b.texts(thread=root)), f"answer {n}", seconds=20
            )


async def test_a_stop_lets_running_answers_finish(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={"DRAIN_S": "20"}) as b:
        root = b.say("table")
        await b.card("Running", thread=root)
        stopping = asyncio.create_task(b.service.stop())
        await b.card("Done", thread=root)
        assert await stopping == 0
        assert markdown_of(b.bot_messages(thread=root)) == b.model.requests[0].text_sent


async def test_a_stop_that_cannot_wait_says_interrupted_and_closes_the_models_request(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={"DRAIN_S": "0"}) as b:
        root = b.say("long")
        await b.card("Running", thread=root)
        assert await b.service.stop() == 0
        card = await b.card("Interrupted", thread=root)
        assert "Nothing was run again" in card["text"]
        assert b.model.requests[0].closed_by_client


async def test_a_recall_still_works_while_the_service_drains(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={"DRAIN_S": "20"}) as b:
        b.expects_violations = True  # a message that comes during the drain is answered 503
        root = b.say("long")
        await b.card("Running", thread=root)
        stopping = asyncio.create_task(b.service.stop())
        await b.until(lambda: "draining" in b.service.log, "the drain")
        b.slack.recall("general", root)
        await b.card("Canceled", thread=root)
        assert await stopping == 0


@contextlib.asynccontextmanager
async def two_replicas(tmp_path: Path) -> AsyncIterator[Bed]:
    """Two services over one Redis and one data folder; Slack's events go to them in turn."""
    valkey = EmbeddedValkey(tmp_path / "redis")
    url = await valkey.start()
    try:
        async with bed(tmp_path, settings={"REDIS_URL": url}) as b:
            port = free_port()
            env = {**b.service.env, "BOTS_PORT": str(port)}
            other = replace(b.service, env=env, port=port, log_path=tmp_path / "other.log", process=None)
            assert isinstance(other, ServiceProcess)
            await other.start()
            b.slack.event_urls.append(f"{other.base_url}/slack/events")
            try:
                yield b
            finally:
                await other.stop()
    finally:
        await valkey.stop()


async def test_two_replicas_run_each_message_once_and_one_at_a_time_per_thread(tmp_path: Path) -> None:
    async with two_replicas(tmp_path) as b:
        roots = [b.say(f"calc {n}+{n}") for n in range(6)]
        for n, root in enumerate(roots):
            card = await b.card("Done", thread=root)
            assert f"{n}+{n}" in card["text"]
        await b.slack.settled()
        deliveries = [d.envelope.event_id for d in b.slack.deliverer.deliveries]
        for event_id in deliveries:
            await b.slack.redeliver(event_id)
        await b.slack.settled()
        assert len(b.asked()) == 12, "two model turns for each of six messages"


async def test_a_stop_that_reaches_the_other_replica_stops_at_once(tmp_path: Path) -> None:
    async with two_replicas(tmp_path) as b:
        for turn in range(2):  # whichever replica got the request, one of the two stops lands on the other
            root = b.say("long")
            request = await b.request("long", nth=turn)
            await b.card("Running", thread=root)
            b.slack.recall("general", root)
            await b.card("Canceled", thread=root, seconds=3)
            await asyncio.wait_for(request.done.wait(), 3)


async def test_the_embedded_valkey_comes_back_when_it_dies(tmp_path: Path) -> None:
    async with bed(tmp_path, retry_delays_s=(0.1, 2.0, 4.0)) as b:
        first = b.say("hello")
        await b.card("Done", thread=first)
        pid = int((tmp_path / "data" / "valkey" / "valkey.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        again = b.say("calc 1+1", thread=first)
        await b.until(lambda: any("Done" in t and "1+1" in t for t in b.texts(thread=first)), "an answer", seconds=20)
        assert again
        assert int((tmp_path / "data" / "valkey" / "valkey.pid").read_text()) != pid
        # What Valkey knew is on its disk: the first message is still known.
        for delivery in list(b.slack.deliverer.deliveries):
            await b.slack.redeliver(delivery.envelope.event_id)
        await b.slack.settled()
        assert len([prompt for prompt in b.asked() if "hello" in prompt]) == 1


async def test_a_second_signal_cuts_the_drain_short(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={"DRAIN_S": "60"}) as b:
        root = b.say("long")
        await b.card("Running", thread=root)
        assert b.service.process is not None
        b.service.process.terminate()
        await b.until(lambda: "draining" in b.service.log, "the drain")
        assert await asyncio.wait_for(b.service.stop(), 10) == 0
        await b.card("Interrupted", thread=root)
