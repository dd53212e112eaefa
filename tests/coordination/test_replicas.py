"""Three replicas at work at once, with deliveries repeated, owners that die, and sweepers: one at a time, in order."""

import asyncio
import random
import secrets
from collections import defaultdict

import pytest

from bots.coordination.connection import Client
from bots.coordination.keys import SessionKeys
from bots.coordination.redis import RedisAdmission
from harness.admission import Admitted, Denied, Lease, RunInput, Waiting
from harness.testing.admission_suite import request
from tests.coordination.conftest import NewReplica

SESSIONS = ("test:T1:C1/one", "test:T1:C1/two", "test:T1:C2/")
PER_SESSION = 25


class World:
    """What a user could see of the runs."""

    def __init__(self, rng: random.Random, client: Client, prefix: str) -> None:
        self.rng, self.client, self.prefix = rng, client, prefix
        self.working: dict[str, str] = {}
        self.begun: dict[str, list[str]] = defaultdict(list)
        self.ended: dict[str, list[str]] = defaultdict(list)
        self.fences: dict[str, int] = defaultdict(int)
        self.deaths = 0

    async def work(self, replica: RedisAdmission, run: RunInput, lease: Lease) -> None:
        """One owner, from its lease to its finish or death, and then the next run."""
        while True:
            session = run.session_key
            assert session not in self.working, f"{run.task_id} beside {self.working[session]}"
            assert lease.fence > self.fences[session]
            self.working[session], self.fences[session] = run.task_id, lease.fence
            self.begun[session].append(run.task_id)
            await asyncio.sleep(self.rng.random() * 0.004)
            del self.working[session]
            if self.rng.random() < 0.15:
                self.deaths += 1
                await self.time_passes(session)
                return
            self.ended[session].append(run.task_id)
            handover = await replica.finish(lease, secrets.token_hex(8))
            if handover.next is None:
                return
            run, lease = handover.next

    async def time_passes(self, session: str) -> None:
        """The lease of a dead owner runs out."""
        keys = SessionKeys.of(session, self.prefix)
        await self.client.execute_command("DEL", keys.lease)
        await self.client.execute_command("ZADD", keys.active, 0, session)

    async def deliver(self, replica: RedisAdmission, run: RunInput, answers: list[str]) -> None:
        match await replica.admit(run, secrets.token_hex(8)):
            case Admitted(lease=lease):
                answers.append(run.task_id)
                await self.work(replica, run, lease)
            case Waiting():
                answers.append(run.task_id)
            case Denied(reason="duplicate"):
                pass
            case other:
                raise AssertionError(other)

    async def sweep(self, replica: RedisAdmission) -> None:
        while True:
            for session in await replica.due_sessions(10):
                if claimed := await replica.claim(session, secrets.token_hex(8)):
                    await self.work(replica, claimed[0], claimed[1])
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("seed", range(4))
async def test_one_at_a_time_in_order_and_none_lost(
    seed: int, replica: NewReplica, client: Client, prefix: str
) -> None:
    world = World(random.Random(seed), client, prefix)
    fleet = [replica(queue_cap=PER_SESSION) for _ in range(3)]
    answers: list[str] = []

    async def person(session: str) -> None:
        """Writes one message after the other; the platform delivers each up to three times, anywhere."""
        async with asyncio.TaskGroup() as deliveries:
            for n in range(PER_SESSION):
                run = request(f"{SESSIONS.index(session)}-{n}", session)
                for _ in range(world.rng.randint(1, 3)):
                    deliveries.create_task(world.deliver(world.rng.choice(fleet), run, answers))
                # The next message is written once this one was taken: order is promised from then on.
                while run.task_id not in answers:
                    await asyncio.sleep(0.001)

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        sweepers = [tasks.create_task(world.sweep(one)) for one in fleet]
        people = [tasks.create_task(person(session)) for session in SESSIONS]
        await asyncio.wait(people)
        while sum(map(len, world.ended.values())) < len(SESSIONS) * PER_SESSION:
            await asyncio.sleep(0.005)
        for sweeper in sweepers:
            sweeper.cancel()

    assert world.deaths > 0
    for number, session in enumerate(SESSIONS):
        wanted = [f"task-{number}-{n}" for n in range(PER_SESSION)]
        assert world.ended[session] == wanted
        assert list(dict.fromkeys(world.begun[session])) == world.ended[session]
        activity = await fleet[0].activity(session)
        assert activity.running is None
        assert not activity.waiting
