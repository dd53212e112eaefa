"""Two replicas over one Redis and one PostgreSQL: what one of them has begun, the other one sees to."""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bots.coordination.embedded import EmbeddedValkey
from bots.playground.serving import free_port
from tests.e2e.bed import Bed, ServiceProcess, bed
from tests.e2e.test_approvals import question
from tests.e2e.test_slack_chat import markdown_of
from tests.stores.conftest import Postgres

LEASE_S = 2.0
RECOVERY_S = LEASE_S + 2.4 + 5.0
"""Lease, the longest wait of a sweeper, and what a busy machine takes to show it."""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory() as folder:
        server = Postgres(Path(folder) / "data")
        yield server
        server.stop()


@dataclass
class Pair:
    """Two services, and the workspace in which people talk to both of them as one."""

    b: Bed
    one: ServiceProcess
    two: ServiceProcess

    def send_to(self, *services: ServiceProcess) -> None:
        """From now on Slack's events go to these."""
        self.b.slack.event_urls[:] = [f"{service.base_url}/slack/events" for service in services]


@contextlib.asynccontextmanager
async def pair(postgres: Postgres, tmp_path: Path) -> AsyncIterator[Pair]:
    valkey = EmbeddedValkey(tmp_path / "redis")
    settings = {
        "REDIS_URL": await valkey.start(),
        "DATABASE_URL": await postgres.emptied(),
        "LEASE_TTL_S": str(LEASE_S),
        "APPROVERS": "requester",
    }
    try:
        async with bed(tmp_path, speed=5, settings=settings) as b:
            b.expects_violations = True
            port = free_port()
            two = replace(
                b.service,
                env={**b.service.env, "BOTS_PORT": str(port)},
                port=port,
                log_path=tmp_path / "two.log",
                process=None,
            )
            await two.start()
            try:
                yield Pair(b, b.service, two)
            finally:
                await two.stop()
    finally:
        await valkey.stop()


async def test_what_one_replica_leaves_the_other_ends_in_the_same_message_and_answers_what_it_asked(
    postgres: Postgres, tmp_path: Path
) -> None:
    async with pair(postgres, tmp_path) as p:
        b = p.b
        p.send_to(p.one)
        long = b.say("long")
        await b.until(lambda: len(markdown_of(b.bot_messages(thread=long))) >= 500, "500 characters")
        b.say("calc 1+1", thread=long)
        await b.card("Queued (1)", thread=long, nth=1)
        write = b.say("write notes.txt")
        asked = await question(b, write)
        waiting = await b.card("Waiting for approval", thread=write)

        # Both live: the one that has not asked gets the answer.
        p.send_to(p.two)
        other = b.say("write other.txt", user="bob")
        p.send_to(p.one)
        asked_by_two = await question(b, other)
        await b.slack.click("general", asked_by_two["message"], "allow_once", "bob")
        await b.card("Done", thread=other)

        await p.one.stop(signal.SIGKILL)
        p.send_to(p.two)
        before = markdown_of([b.bot_messages(thread=long)[0]])
        card = await b.card("Interrupted", thread=long, seconds=RECOVERY_S)
        assert len(before) >= 500
        assert markdown_of([card]) == before
        assert [button["action"] for button in card["buttons"]] == ["retry"]
        await b.card("Done", thread=long, nth=1)

        await b.slack.click("general", asked["message"], "allow_once", "alice")
        done = await b.card("Done", thread=write)
        assert done["message"] == waiting["message"]
        assert done["text"].count("write_file(") == 1
        assert (await question(b, write, "Allowed once by @alice"))["buttons"] == []
        assert sorted(b.files()) == ["notes.txt", "other.txt"]
        again = b.say("calc 2+2")
        await b.card("Done", thread=again)


async def test_a_replica_that_stood_still_finds_its_run_taken_and_writes_nothing_over_it(
    postgres: Postgres, tmp_path: Path
) -> None:
    async with pair(postgres, tmp_path) as p:
        b = p.b
        p.send_to(p.one)
        root = b.say("long")
        await b.until(lambda: len(markdown_of(b.bot_messages(thread=root))) >= 500, "500 characters")
        process = p.one.process
        assert isinstance(process, subprocess.Popen)
        os.kill(process.pid, signal.SIGSTOP)
        try:
            p.send_to(p.two)
            card = await b.card("Interrupted", thread=root, seconds=RECOVERY_S)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        await b.until(lambda: b.model.requests[0].done.is_set(), "the old owner to let go of the model")
        b.model.speed = 1000
        b.say("calc 1+1", thread=root)
        await b.card("Done", thread=root, nth=1)
        [now] = [message for message in b.bot_messages(thread=root) if message["message"] == card["message"]]
        assert now["text"] == card["text"]
