"""What happens to a run whose owner is slow, dead, or back from the dead."""

import asyncio

import pytest

from bots.coordination.connection import Client
from bots.coordination.keys import SessionKeys
from harness.admission import Admitted, CancelOrder, CancelRequested, Denied, Handover, Lost, Renewed, Waiting
from harness.testing.admission_suite import SAME_CHAT, SESSION, admitted, names, request, waiting
from tests.coordination.conftest import NewReplica


async def expire(client: Client, prefix: str, session: str = SESSION) -> None:
    """Time passes: the lease is over."""
    assert await client.execute_command("DEL", SessionKeys.of(session, prefix).lease) == 1


async def test_admit_is_one_command(replica: NewReplica, client: Client, prefix: str) -> None:
    admission = replica()
    await admitted(admission, "warm", SAME_CHAT)

    async def commands() -> int:
        stats = await client.execute_command("INFO", "commandstats")
        assert isinstance(stats, dict)
        return sum(stats[name]["calls"] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats)

    before = await commands()
    await admitted(admission, "a")
    await waiting(admission, "b")
    assert await commands() - before == 2


async def test_the_lease_runs_out_by_itself_and_renewing_prevents_it(replica: NewReplica) -> None:
    admission, other = replica(lease_ttl=0.25), replica(lease_ttl=0.25)
    lease = await admitted(admission, "a")
    for _ in range(4):
        await asyncio.sleep(0.1)
        assert await admission.renew(lease) == Renewed()
    assert await other.due_sessions(10) == []
    await asyncio.sleep(0.3)
    assert await other.due_sessions(10) == [SESSION]


async def test_a_dead_owners_run_keeps_its_input_and_one_of_twenty_claims_it(
    replica: NewReplica, client: Client, prefix: str
) -> None:
    owner = replica()
    lease = await admitted(owner, "a")
    await waiting(owner, "b")
    assert await owner.claim(SESSION, "early") is None
    await expire(client, prefix)
    # A message that comes meanwhile queues behind: nothing is lost and nothing overtakes.
    assert await owner.admit(request("c"), "token-c") == Waiting(2)

    sweepers = [replica() for _ in range(20)]
    claims = await asyncio.gather(*(sweeper.claim(SESSION, f"claim-{n}") for n, sweeper in enumerate(sweepers)))
    [(winner, claim)] = [(sweepers[n], claim) for n, claim in enumerate(claims) if claim]
    run, taken, started = claim
    assert run == request("a")
    assert not started
    assert taken.fence > lease.fence

    # The zombie: whatever it says now, it changes nothing.
    assert await owner.renew(lease) == Lost()
    assert await owner.finish(lease, "zombie") == Handover()
    assert await winner.renew(taken) == Renewed()
    handover = await winner.finish(taken, "next")
    assert handover.next is not None
    assert handover.next[0].task_id == "task-b"
    assert names(handover.waiting) == ["c"]


async def test_a_zombie_does_not_come_back_after_its_run_was_finished_by_another(
    replica: NewReplica, client: Client, prefix: str
) -> None:
    owner, other = replica(), replica()
    lease = await admitted(owner, "a")
    await expire(client, prefix)
    claim = await other.claim(SESSION, "claim")
    assert claim is not None
    await other.finish(claim[1], "next")
    assert await owner.renew(lease) == Lost()
    assert (await owner.activity(SESSION)).running is None


async def test_a_claim_tells_whether_work_had_begun(replica: NewReplica, client: Client, prefix: str) -> None:
    owner, other = replica(), replica()
    await owner.mark_started(await admitted(owner, "a"))
    await expire(client, prefix)
    claim = await other.claim(SESSION, "claim")
    assert claim is not None
    assert claim[2]
    assert await other.claim(SESSION, "claim") == claim


async def test_an_owner_that_was_only_slow_takes_its_lease_back(
    replica: NewReplica, client: Client, prefix: str
) -> None:
    owner, other = replica(), replica()
    lease = await admitted(owner, "a")
    await expire(client, prefix)
    assert await owner.renew(lease) == Renewed()
    assert await other.claim(SESSION, "claim") is None
    await expire(client, prefix)
    assert await owner.finish(lease, "next") == Handover()
    assert (await other.activity(SESSION)).running is None


async def test_after_an_empty_restart_the_owner_writes_everything_anew(
    replica: NewReplica, client: Client, prefix: str
) -> None:
    owner, other = replica(), replica()
    lease = await admitted(owner, "a")
    thread = await admitted(owner, "t", SAME_CHAT)
    await owner.mark_started(lease)
    await flush(client, prefix)

    # Two threads of one chat: taking back one must not make the other look finished.
    assert await owner.renew(thread) == Renewed()
    assert await owner.renew(lease) == Renewed()
    assert (await other.activity(SESSION)).running == request("a")
    assert await other.admit(request("a"), "again") == Denied("duplicate", "task-a")
    assert await other.admit(request("b"), "token-b") == Waiting(1)
    cancel = await other.cancel_message(SAME_CHAT, "m-a", by="U1", reason="recalled")
    assert cancel == CancelRequested("task-a", local=False)
    assert await owner.renew(lease) == Renewed(CancelOrder("task-a", "U1", "recalled"))
    await expire(client, prefix)
    claim = await other.claim(SESSION, "claim")
    assert claim is not None
    assert claim[2]


async def test_after_an_empty_restart_a_newer_run_wins(replica: NewReplica, client: Client, prefix: str) -> None:
    owner, other = replica(), replica()
    lease = await admitted(owner, "a")
    await flush(client, prefix)
    newer = await admitted(other, "b")
    assert newer.fence > lease.fence
    assert await owner.renew(lease) == Lost()
    assert await owner.finish(lease, "next") == Handover()
    assert await other.renew(newer) == Renewed()


async def test_finishing_after_an_empty_restart_ends_the_run(replica: NewReplica, client: Client, prefix: str) -> None:
    owner = replica()
    lease = await admitted(owner, "a")
    await flush(client, prefix)
    assert await owner.finish(lease, "next") == Handover()
    assert await owner.renew(lease) == Lost()
    assert (await owner.activity(SESSION)).running is None


async def flush(client: Client, prefix: str) -> None:
    """Redis came back without this test's keys."""
    keys = await client.execute_command("KEYS", f"{prefix}:*")
    assert isinstance(keys, list)
    await client.execute_command("DEL", *keys)


async def test_who_drains_leaves_the_next_run_to_the_others(replica: NewReplica) -> None:
    leaving, other = replica(), replica()
    lease = await admitted(leaving, "a")
    await waiting(leaving, "b", "c")
    assert (await leaving.finish(lease, "")).next is None
    assert await other.due_sessions(10) == [SESSION]
    claim = await other.claim(SESSION, "claim")
    assert claim is not None
    assert claim[0].task_id == "task-b"
    assert claim[0].queued_at_ms > 0
    assert names((await other.activity(SESSION)).waiting) == ["c"]


async def test_the_fence_passes_a_floor_known_from_elsewhere(replica: NewReplica, client: Client, prefix: str) -> None:
    admission = replica()
    floor = 2**52
    outcome = await admission.admit(request("a"), "token-a", fence_floor=floor)
    assert isinstance(outcome, Admitted)
    assert outcome.lease.fence == floor + 1
    await expire(client, prefix)
    claim = await admission.claim(SESSION, "claim", fence_floor=floor + 10)
    assert claim is not None
    assert claim[1].fence == floor + 11


async def test_engaged_and_noted_stops(replica: NewReplica) -> None:
    admission, other = replica(), replica()
    assert not await admission.engaged(SESSION)
    await admitted(admission, "a")
    assert await other.engaged(SESSION)
    assert not await other.engaged(SAME_CHAT)
    assert await admission.note_stop(SESSION, "U1") == 0
    assert await other.note_stop(SESSION, "U2") == 0
    assert await other.note_stop(SAME_CHAT, "U1") == 0
    assert await other.note_stop(SESSION, "U1") > 0


async def test_every_key_goes_in_time(replica: NewReplica, client: Client, prefix: str) -> None:
    admission = replica()
    lease = await admitted(admission, "a")
    await waiting(admission, "b", "c")
    await admission.cancel_message(SESSION, "m-b", by="U", reason="r")
    await admission.cancel_message(SESSION, "m-a", by="U", reason="r")
    await admission.cancel_message(SESSION, "m-unseen", by="U", reason="r")
    await admission.note_stop(SESSION, "U1")
    await admission.admit(request("x", dedupe=False), "token-x")
    await admission.renew(lease)
    keys = await client.execute_command("KEYS", f"{prefix}:*")
    assert isinstance(keys, list)
    assert len(keys) >= 15
    forever = [key for key in keys if await client.execute_command("PTTL", key) == -1]
    assert forever == [f"{prefix}:active".encode()]


async def test_an_input_of_another_version_with_more_fields_is_read(
    replica: NewReplica, client: Client, prefix: str
) -> None:
    admission = replica()
    await admitted(admission, "a")
    run = SessionKeys.of(SESSION, prefix).run
    data = await client.execute_command("HGET", run, "input")
    assert isinstance(data, bytes)
    await client.execute_command("HSET", run, "input", data[:-1] + b',"future":1}')
    assert (await admission.activity(SESSION)).running == request("a")


async def test_our_own_faults_escape(replica: NewReplica, client: Client, prefix: str) -> None:
    from redis.exceptions import ResponseError

    await client.execute_command("SET", SessionKeys.of(SESSION, prefix).queue, "no list")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await replica().activity(SESSION)
    with pytest.raises(ValueError, match="no session key"):
        await replica().activity("nonsense")
