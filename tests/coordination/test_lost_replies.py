"""Each script, with its request lost, its reply lost, or its connection cut: the same answer, done once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import get_args
from urllib.parse import unquote

import pytest

from bots.coordination import scripts
from bots.coordination.connection import Client
from bots.coordination.keys import SessionKeys
from bots.coordination.redis import RedisAdmission
from harness.admission import (
    CancelRequested,
    Denied,
    Handover,
    Lease,
    Lost,
    NothingToCancel,
    RemovedFromQueue,
    Renewed,
    Waiting,
)
from harness.testing.admission_suite import SAME_CHAT, SESSION, admitted, names, request, waiting
from tests.coordination.conftest import NewReplica
from tests.coordination.proxy import Fault, FaultyProxy

FAULTS = get_args(Fault)


class Stage:
    """One replica behind the proxy, and another that sees the truth."""

    def __init__(self, proxy: FaultyProxy, faulty: RedisAdmission, sane: RedisAdmission) -> None:
        self.proxy, self.faulty, self.sane = proxy, faulty, sane
        self.expire: Callable[[], Awaitable[object]]
        self.empty: Callable[[], Awaitable[object]]

    async def tasks(self, session: str = SESSION) -> list[str]:
        now = await self.sane.activity(session)
        return names([now.running] if now.running else []) + names(now.waiting)

    async def busy(self) -> Lease:
        lease = await admitted(self.faulty, "a")
        await waiting(self.sane, "b", "c")
        return lease


@pytest.fixture
async def stage(
    valkey_url: str, prefix: str, tmp_path: Path, replica: NewReplica, client: Client
) -> AsyncIterator[Stage]:
    for script in scripts.ALL:
        await client.execute_command("SCRIPT", "LOAD", script.source)
    target = Path(unquote(valkey_url.removeprefix("unix://")))
    async with FaultyProxy(target, tmp_path / "p") as proxy:
        stage = Stage(proxy, replica(proxy.url, command_timeout=0.15, call_budget=1.9), replica())

        async def empty() -> None:
            keys = await client.execute_command("KEYS", f"{prefix}:*")
            assert isinstance(keys, list)
            await client.execute_command("DEL", *keys)

        stage.expire = lambda: client.execute_command("DEL", SessionKeys.of(SESSION, prefix).lease)
        stage.empty = empty
        yield stage


async def admit_start(s: Stage) -> None:
    await admitted(s.faulty, "a")
    assert await s.tasks() == ["a"]


async def admit_queue(s: Stage) -> None:
    await admitted(s.sane, "a")
    assert await s.faulty.admit(request("b"), "token-b") == Waiting(1)
    assert await s.tasks() == ["a", "b"]


async def admit_of_a_request_redelivered_elsewhere_meanwhile(s: Stage) -> None:
    outcomes = await asyncio.gather(
        s.faulty.admit(request("a"), "one"), s.sane.admit(request("a"), "two"), return_exceptions=True
    )
    assert [isinstance(outcome, Denied) for outcome in outcomes].count(True) == 1
    assert await s.tasks() == ["a"]


async def renew(s: Stage) -> None:
    assert await s.faulty.renew(await s.busy()) == Renewed()


async def renew_of_an_expired_lease(s: Stage) -> None:
    lease = await s.busy()
    await s.expire()
    assert await s.faulty.renew(lease) == Renewed()
    assert await s.sane.claim(SESSION, "claim") is None


async def renew_after_an_empty_restart(s: Stage) -> None:
    lease = await s.busy()
    await s.empty()
    assert await s.faulty.renew(lease) == Renewed()
    assert await s.tasks() == ["a"]


async def finish_and_next(s: Stage) -> None:
    handover = await s.faulty.finish(await s.busy(), "next")
    assert handover.next is not None
    assert handover.next[0].task_id == "task-b"
    assert names(handover.waiting) == ["c"]
    assert await s.tasks() == ["b", "c"]
    assert await s.faulty.renew(handover.next[1]) == Renewed()


async def finish_the_last(s: Stage) -> None:
    lease = await admitted(s.faulty, "a")
    assert await s.faulty.finish(lease, "next") == Handover()
    assert await s.tasks() == []


async def cancel_waiting(s: Stage) -> None:
    await s.busy()
    outcome = await s.faulty.cancel_task(SESSION, "task-b", by="U", reason="r")
    assert isinstance(outcome, RemovedFromQueue)
    assert names([outcome.removed]) == ["b"]
    assert await s.tasks() == ["a", "c"]


async def cancel_running_elsewhere(s: Stage) -> None:
    lease = await admitted(s.sane, "a")
    outcome = await s.faulty.cancel_task(SESSION, "task-a", by="U", reason="r")
    assert outcome == CancelRequested("task-a", local=False)
    assert (await s.sane.renew(lease)) != Renewed()


async def recall_unseen(s: Stage) -> None:
    assert await s.faulty.cancel_message(SAME_CHAT, "m-a", by="U", reason="r") == NothingToCancel()
    assert await s.sane.admit(request("a"), "t") == Denied("recalled")


async def claim(s: Stage) -> None:
    await admitted(s.sane, "a")
    await s.expire()
    claimed = await s.faulty.claim(SESSION, "claim")
    assert claimed is not None
    assert await s.faulty.renew(claimed[1]) == Renewed()
    assert await s.sane.claim(SESSION, "other") is None


async def due(s: Stage) -> None:
    lease = await admitted(s.sane, "a")
    await waiting(s.sane, "b")
    await s.sane.finish(lease, "")
    assert await s.faulty.due_sessions(5) == [SESSION]


async def mark_started(s: Stage) -> None:
    await s.faulty.mark_started(await s.busy())
    await s.expire()
    claimed = await s.sane.claim(SESSION, "claim")
    assert claimed is not None
    assert claimed[2]


async def park(s: Stage) -> None:
    lease = await s.busy()
    await s.faulty.park(lease)
    assert await s.sane.renew(lease) == Lost(), "a late renewal takes nothing back"
    claimed = await s.sane.claim(SESSION, "claim")
    assert claimed is not None
    assert await s.sane.renew(claimed[1]) == Renewed()
    assert await s.tasks() == ["a", "b", "c"]


async def activity(s: Stage) -> None:
    await s.busy()
    assert names((await s.faulty.activity(SESSION)).waiting) == ["b", "c"]


async def note_stop(s: Stage) -> None:
    assert await s.faulty.note_stop(SESSION, "U") == 0
    assert await s.sane.note_stop(SESSION, "U") > 0


async def admit_to_a_full_queue(s: Stage) -> None:
    await s.busy()
    await waiting(s.sane, "d", "e", "f")
    assert await s.faulty.admit(request("g"), "token-g") == Denied("full")
    assert await s.sane.admit(request("g"), "other") == Denied("duplicate", "task-g")


async def engaged(s: Stage) -> None:
    await s.busy()
    assert await s.faulty.engaged(SESSION)


CASES: list[tuple[scripts.Script | str, Callable[[Stage], Awaitable[None]]]] = [
    (scripts.ADMIT, admit_start),
    (scripts.ADMIT, admit_queue),
    (scripts.ADMIT, admit_of_a_request_redelivered_elsewhere_meanwhile),
    (scripts.ADMIT, admit_to_a_full_queue),
    (scripts.RENEW, renew),
    (scripts.RENEW, renew_of_an_expired_lease),
    (scripts.RENEW, renew_after_an_empty_restart),
    (scripts.FINISH, finish_and_next),
    (scripts.FINISH, finish_the_last),
    (scripts.CANCEL, cancel_waiting),
    (scripts.CANCEL, cancel_running_elsewhere),
    (scripts.TELL, cancel_running_elsewhere),
    (scripts.LOCATE, recall_unseen),
    (scripts.CLAIM, claim),
    (scripts.DUE, due),
    (scripts.MARK_STARTED, mark_started),
    (scripts.PARK, park),
    (scripts.ACTIVITY, activity),
    (scripts.NOTE_STOP, note_stop),
    ("EXISTS", engaged),
]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(
    ("script", "scenario"), CASES, ids=lambda value: getattr(value, "__name__", getattr(value, "name", value))
)
async def test_lost(
    stage: Stage, script: scripts.Script | str, scenario: Callable[[Stage], Awaitable[None]], fault: Fault
) -> None:
    stage.proxy.fail(script if isinstance(script, str) else script.sha, fault)
    await scenario(stage)
    assert stage.proxy.hits == 1


def test_every_script_is_covered() -> None:
    assert {script for script, _ in CASES} >= set(scripts.ALL)
