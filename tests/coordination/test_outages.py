"""Redis dead, frozen, restarted, out of memory: answers come in time, and work goes on by itself afterwards."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bots.coordination.connection import connect
from bots.coordination.embedded import EmbeddedValkey
from bots.coordination.redis import RedisAdmission
from harness.admission import Denied, Renewed, Waiting
from harness.errors import AdmissionUnavailable, ConfigError
from harness.testing.admission_suite import SAME_CHAT, SESSION, admitted, request
from tests.coordination.conftest import NewReplica

OwnServer = tuple[EmbeddedValkey, str]


@pytest.fixture
async def admission(own_server: OwnServer) -> AsyncIterator[RedisAdmission]:
    """Impatient, so that outages are short."""
    admission = RedisAdmission(own_server[1], command_timeout=0.1, call_budget=0.25)
    yield admission
    await admission.aclose()


async def until_it_answers(admission: RedisAdmission) -> None:
    async with asyncio.timeout(3):
        while True:
            try:
                await admission.activity(SESSION)
            except AdmissionUnavailable:
                await asyncio.sleep(0.02)
            else:
                return


async def kill(server: EmbeddedValkey) -> None:
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while server.pid:
        await asyncio.sleep(0.01)


async def test_a_frozen_server_fails_calls_within_two_seconds_and_works_again(own_server: OwnServer) -> None:
    server, url = own_server
    admission = RedisAdmission(url)  # the times of production
    lease = await admitted(admission, "a")
    assert server.pid
    os.kill(server.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        calls = (
            admission.admit(request("b"), "token-b"),
            admission.renew(lease),
            admission.cancel_message(SAME_CHAT, "m-a", by="U", reason="r"),
            admission.engaged(SESSION),
            admission.due_sessions(5),
        )
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert time.monotonic() - began < 2.0
        assert [type(outcome) for outcome in outcomes] == [AdmissionUnavailable] * 5

        # From now on nobody waits for a server that is known to be dead.
        began = time.monotonic()
        for _ in range(20):
            with pytest.raises(AdmissionUnavailable):
                await admission.admit(request("b"), "token-b")
        assert time.monotonic() - began < 0.5
    finally:
        os.kill(server.pid, signal.SIGCONT)
    await until_it_answers(admission)
    assert await admission.admit(request("b"), "token-b") == Waiting(1)
    assert isinstance(await admission.renew(lease), Renewed)
    await admission.aclose()


async def test_a_killed_server_loses_nothing(own_server: OwnServer, tmp_path: Path, admission: RedisAdmission) -> None:
    lease = await admitted(admission, "a")
    await kill(own_server[0])
    began = time.monotonic()
    with pytest.raises(AdmissionUnavailable):
        await admission.admit(request("b"), "token-b")
    assert time.monotonic() - began < 1.0
    assert not await admission.ping()

    async with EmbeddedValkey(tmp_path) as url:
        assert url == own_server[1]
        await until_it_answers(admission)
        assert await admission.ping()
        assert await admission.admit(request("a"), "other") == Denied("duplicate", "task-a")
        assert await admission.admit(request("b"), "token-b") == Waiting(1)
        assert await admission.renew(lease) == Renewed()


async def test_a_short_restart_is_bridged_by_the_repeats(own_server: OwnServer, tmp_path: Path) -> None:
    admission = RedisAdmission(own_server[1])
    await admitted(admission, "a")
    await kill(own_server[0])
    call = asyncio.create_task(admission.admit(request("b"), "token-b"))
    await asyncio.sleep(0.05)
    async with EmbeddedValkey(tmp_path):
        assert await call == Waiting(1)
    await admission.aclose()


async def test_after_an_empty_restart_no_second_run_starts(
    own_server: OwnServer, tmp_path: Path, admission: RedisAdmission
) -> None:
    lease = await admitted(admission, "a")
    await kill(own_server[0])
    shutil.rmtree(tmp_path / "valkey" / "appendonlydir")
    async with EmbeddedValkey(tmp_path):
        await until_it_answers(admission)
        assert await admission.renew(lease) == Renewed()
        assert await admission.admit(request("b"), "token-b") == Waiting(1)


async def test_no_memory_is_no_admission(own_server: OwnServer, admission: RedisAdmission) -> None:
    client = connect(own_server[1])
    await client.execute_command("CONFIG", "SET", "maxmemory", "1mb")
    with pytest.raises(AdmissionUnavailable):
        await admission.admit(request("a"), "token-a")
    await client.execute_command("CONFIG", "SET", "maxmemory", "0")
    await admitted(admission, "a")
    await client.aclose()


async def test_a_caller_that_goes_away_leaves_the_connection_usable(replica: NewReplica) -> None:
    admission = replica()
    for n in range(50):
        call = asyncio.create_task(admission.admit(request(f"x{n}", f"test:T1:C1/{n}"), f"token-{n}"))
        for _ in range(n % 5):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
    await admitted(admission, "a")
    assert (await admission.activity(SESSION)).running == request("a")


async def test_more_callers_than_connections(replica: NewReplica) -> None:
    admission = replica()
    calls = (admission.admit(request(f"x{n}", f"test:T1:C1/{n}"), f"token-{n}") for n in range(300))
    assert len(await asyncio.gather(*calls)) == 300


async def test_start_warns_of_a_server_that_may_evict(
    own_server: OwnServer, admission: RedisAdmission, capsys: pytest.CaptureFixture[str]
) -> None:
    await admission.start()
    assert "noeviction" not in capsys.readouterr().out
    client = connect(own_server[1])
    await client.execute_command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    await client.aclose()
    await admission.start()
    assert "allkeys-lru" in capsys.readouterr().out


async def test_start_says_when_the_password_is_wrong_and_survives_a_dead_server(
    own_server: OwnServer, admission: RedisAdmission
) -> None:
    client = connect(own_server[1])
    await client.execute_command("CONFIG", "SET", "requirepass", "right")
    wrong = RedisAdmission(own_server[1] + "?password=wrong", call_budget=0.2)
    try:
        with pytest.raises(ConfigError, match="REDIS_URL"):
            await wrong.start()
    finally:
        await wrong.aclose()
        await client.execute_command("CONFIG", "SET", "requirepass", "")
        await client.aclose()

    await kill(own_server[0])
    await admission.start()
