"""A service that is killed again and again, at moments that nobody has chosen, while several threads are busy.

One data folder, one chat, many processes, each of them killed from outside by a clock with a seed. After the last one
everything that anybody has asked has come to one end, and nothing with an effect has happened twice.
"""

import asyncio
import json
import multiprocessing
import os
import random
import runpy
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.history import prepare_history
from harness.status import TaskStatus
from harness.stores.records import CALL_STEPS
from harness.stores.sql import open_stores
from tests.e2e.bed import Bed, ServiceProcess, bed
from tests.recovery.test_every_commit import flaws

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["bots.app", "bots.cli", "harness.providers.openai_chat", "harness.stores.sql"])

KILLS = 6
SEED = 7
CHAOS_KILLS = 20
CHAOS_SEEDS = 5
ENDS = ("Done", "Interrupted", "continued", "Allowed once", "Expired, not run")
SETTINGS = {"LEASE_TTL_S": "0.5", "APPROVERS": "requester", "MODEL_RETRIES": "0", "APPROVAL_TIMEOUT_S": "15"}
RETRIES_S = (0.3, 1.0, 3.0)


class Fork:
    """What a `ServiceProcess` needs of its process."""

    def __init__(self, env: Mapping[str, str], log_path: Path) -> None:
        self._process = _forks.Process(target=_serve, args=(dict(env), log_path))
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        self._process.join()


class ForkedService(ServiceProcess):
    """`bots serve` forked from a process that has loaded it: twenty new interpreters would do little but import."""

    async def start(self, *, ready: bool = True) -> None:
        self.process = Fork(self.env, self.log_path)  # type: ignore[assignment]
        if ready:
            await self.until_ready()


def _serve(env: Mapping[str, str], log_path: Path) -> None:
    os.setsid()
    os.environ.clear()
    os.environ.update(env)
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    sys.argv = ["bots", "serve"]
    runpy.run_module("bots", run_name="__main__")


@dataclass
class Asked:
    """What people have asked: the ts of each request, and of the thread that it is in."""

    texts: dict[str, str] = field(default_factory=dict[str, str])
    threads: dict[str, str] = field(default_factory=dict[str, str])

    def say(self, b: Bed, text: str, thread: str | None = None) -> str:
        ts = b.say(text, thread=thread)
        self.texts[ts], self.threads[ts] = text, thread or ts
        return ts


def marks(b: Bed) -> list[tuple[str, Mapping[str, Any]]]:
    """The messages of cards with the mark that each was posted with, which names the task and the part."""
    found = b.slack.space.channel_named("general")
    assert found is not None
    shown = {message["message"]: message for message in b.bot_messages()}
    metadata = {ts: message.metadata for ts, message in found.messages.items() if message.metadata}
    return [(json.dumps(metadata[ts], sort_keys=True), shown[ts]) for ts in shown if ts in metadata]


def waiting_questions(b: Bed) -> list[Mapping[str, Any]]:
    return [m for m in b.bot_messages() if any(button["action"] == "allow_once" for button in m["buttons"])]


async def allow_all(b: Bed) -> None:
    """Press every button that allows something; a press that nobody answers is pressed again later."""
    for message in waiting_questions(b):
        await b.slack.click("general", message["message"], "allow_once", "alice")


async def one_life(b: Bed, asked: Asked, number: int, dice: random.Random) -> None:
    """Start a service, ask it for everything at once, answer what waits from earlier lives, kill it."""
    await b.service.start(ready=dice.random() < 0.8)
    root = asked.say(b, "long")
    asked.say(b, f"calc {number}+1", root)
    asked.say(b, f"write file{number}.txt")
    asked.say(b, f"calc {number}*{number}")
    clicks = asyncio.create_task(allow_all(b))
    await asyncio.sleep(dice.uniform(0.02, 0.9))
    await b.service.stop(signal.SIGKILL)
    await clicks


async def at_rest(b: Bed) -> None:
    """Wait until nothing moves any more: every delivery has ended, every card and question shows its end."""
    await b.slack.settled(within_s=30)

    def nothing_moves() -> bool:
        return all(is_final(message["text"]) for message in public(b))

    end = asyncio.get_running_loop().time() + 40
    while waiting_questions(b) or not nothing_moves():
        assert asyncio.get_running_loop().time() < end, [
            message["text"] for message in public(b) if not is_final(message["text"])
        ]
        await allow_all(b)
        await asyncio.sleep(0.2)


def public(b: Bed) -> list[dict[str, Any]]:
    return [message for message in b.bot_messages() if message["private_to"] is None]


def is_final(text: str) -> bool:
    return any(word in text.partition("\n")[0] for word in ENDS)


def taken(b: Bed, asked: Asked) -> set[str]:
    """The requests that a service has said yes to."""
    found: set[str] = set()
    for delivery in b.slack.deliverer.deliveries:
        event = delivery.payload.get("event", {}) if delivery.envelope.kind != "block_actions" else {}
        if event.get("type") == "app_mention" and delivery.accepted:
            found.add(str(event["ts"]))
    return found & set(asked.texts)


@pytest.mark.timeout(1_200)
async def test_kills_at_any_moment_lose_nothing_and_repeat_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not request.config.getoption("--chaos"):
        await lives(tmp_path, SEED, KILLS)
        return
    for seed in range(SEED, SEED + CHAOS_SEEDS):
        await lives(tmp_path / str(seed), seed, CHAOS_KILLS)


async def lives(folder: Path, seed: int, kills: int) -> None:
    """So many services over one folder, each killed at a moment of the dice; then one that sees to what is left."""
    folder.mkdir(exist_ok=True)
    dice = random.Random(seed)
    asked = Asked()
    async with bed(folder, settings=SETTINGS, start=False, retry_delays_s=RETRIES_S) as b:
        b.expects_violations = True
        b.service = ForkedService(b.service.env, b.service.port, b.service.log_path)
        for number in range(kills):
            await one_life(b, asked, number, dice)
        await b.service.start()
        await at_rest(b)
        await check_people(b, asked)
        await b.service.stop()
        await check_store(b, asked)


async def check_people(b: Bed, asked: Asked) -> None:
    """What people see: one end below each request, no message posted twice, no file written twice."""
    posted = marks(b)
    twice = [mark for mark, count in Counter(mark for mark, _ in posted).items() if count > 1]
    assert twice == []
    for message in public(b):
        assert is_final(message["text"]), message["text"]
        assert [button["action"] for button in message["buttons"]] in ([], ["retry"])
    allowed = [message for message in public(b) if "Allowed once" in message["text"]]
    assert allowed
    assert "Replaced" not in "".join(b.texts()), "a file was written twice"


async def check_store(b: Bed, asked: Asked) -> None:
    """What is written down: one task for each request, at its end; calls at theirs; conversations a model takes."""
    async with open_stores(None, b.data) as stores:
        assert await stores.tasks.unfinished() == []
        assert [card.key for card in await stores.cards.unfinished()] == []
        requests: Counter[str] = Counter()
        statuses: Counter[TaskStatus] = Counter()
        for summary in await stores.index.summaries(limit=1000):
            for task in await stores.tasks.of_session(summary.key):
                requests[task.run.origin.message_id] += 1
                statuses[task.status] += 1
                for call in await stores.journal.of_task(task.id):
                    assert not CALL_STEPS[call.state], f"{call.call.name} is left as {call.state}"
            assert flaws(prepare_history((await stores.sessions.load(summary.key)).messages)) == []
        # A yes that was lost with the process is a yes all the same.
        assert taken(b, asked) <= set(requests) <= set(asked.texts)
        assert set(requests.values()) == {1}
        assert set(statuses) == {TaskStatus.COMPLETED, TaskStatus.INTERRUPTED}
