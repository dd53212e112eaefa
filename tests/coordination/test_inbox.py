"""Cancel orders between replicas: fast by the inbox, certain by the renewal."""

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import unquote

from bots.coordination.embedded import EmbeddedValkey
from bots.coordination.inbox import Inbox, tell
from bots.coordination.redis import RedisAdmission
from harness.admission import CancelOrder, CancelRequested, Renewed
from harness.testing.admission_suite import SAME_CHAT, SESSION, admitted
from tests.coordination.conftest import NewReplica
from tests.coordination.proxy import FaultyProxy


@asynccontextmanager
async def reading(url: str, owner: RedisAdmission, prefix: str = "h", block: float = 2.0) -> AsyncIterator["Received"]:
    received = Received()
    inbox = Inbox(url, boot_id=owner.boot_id, prefix=prefix, block=block)
    task = asyncio.create_task(inbox.run(received))
    await asyncio.sleep(0.05)
    try:
        yield received
    finally:
        began = time.monotonic()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert time.monotonic() - began < 0.5


class Received(asyncio.Queue[CancelOrder]):
    async def __call__(self, order: CancelOrder) -> None:
        await self.put(order)
        if order.reason == "raise":
            raise RuntimeError("a callback failed")

    async def next(self, seconds: float) -> CancelOrder:
        return await asyncio.wait_for(self.get(), seconds)


async def test_a_recall_reaches_the_owner_at_once(valkey_url: str, prefix: str, replica: NewReplica) -> None:
    owner, other = replica(), replica()
    async with reading(valkey_url, owner, prefix) as received:
        for n in range(5):
            lease = await admitted(owner, f"a{n}")
            outcome = await other.cancel_message(SAME_CHAT, f"m-a{n}", by="U1", reason="recalled")
            assert outcome == CancelRequested(f"task-a{n}", local=False)
            order = CancelOrder(f"task-a{n}", "U1", "recalled")
            assert await received.next(0.5) == order
            assert await owner.renew(lease) == Renewed(order)
            await owner.finish(lease, "next")


async def test_orders_sent_before_the_reader_starts_and_through_long_silence(
    valkey_url: str, prefix: str, replica: NewReplica
) -> None:
    owner, other = replica(), replica()
    await admitted(owner, "a")
    await other.cancel_task(SESSION, "task-a", by="U1", reason="early")
    async with reading(valkey_url, owner, prefix, block=0.05) as received:
        assert (await received.next(0.5)).reason == "early"
        await asyncio.sleep(0.3)
        await other.cancel_task(SESSION, "task-a", by="U1", reason="raise")
        await other.cancel_task(SESSION, "task-a", by="U1", reason="after a callback that raised")
        assert (await received.next(0.5)).reason == "raise"
        assert (await received.next(0.5)).reason == "after a callback that raised"
        assert received.empty()


async def test_with_the_inbox_cut_the_renewal_brings_the_order_and_nothing_sent_is_missed(
    valkey_url: str, prefix: str, replica: NewReplica, tmp_path: Path
) -> None:
    owner, other = replica(), replica()
    lease = await admitted(owner, "a")
    async with (
        FaultyProxy(Path(unquote(valkey_url.removeprefix("unix://"))), tmp_path / "p") as proxy,
        reading(proxy.url, owner, prefix) as received,
    ):
        await proxy.close()
        await other.cancel_task(SESSION, "task-a", by="U1", reason="stopped")
        assert await owner.renew(lease) == Renewed(CancelOrder("task-a", "U1", "stopped"))
        assert received.empty()
        await proxy.open()
        assert (await received.next(2.0)).task_id == "task-a"


async def test_the_reader_survives_restarts_of_the_server(
    own_server: tuple[EmbeddedValkey, str], tmp_path: Path
) -> None:
    server, url = own_server
    async with AsyncExitStack() as stack:
        owner, other = RedisAdmission(url), RedisAdmission(url)
        stack.push_async_callback(owner.aclose)
        stack.push_async_callback(other.aclose)
        await admitted(owner, "a")
        received = await stack.enter_async_context(reading(url, owner))
        await other.cancel_task(SESSION, "task-a", by="U1", reason="first")
        assert (await received.next(0.5)).reason == "first"
        # Kept, then lost with everything else: the stream begins anew, which must not look like the past.
        for emptied in (False, True):
            assert server.pid
            os.kill(server.pid, signal.SIGKILL)
            while server.pid:
                await asyncio.sleep(0.01)
            if emptied:
                shutil.rmtree(tmp_path / "valkey" / "appendonlydir")
            await stack.enter_async_context(EmbeddedValkey(tmp_path))
            await other.engaged(SESSION)
            await tell(other._client, owner.boot_id, CancelOrder("t", "U1", f"emptied: {emptied}"))
            assert (await received.next(2.0)).reason == f"emptied: {emptied}"


async def test_the_reader_ends_at_once_whenever_it_is_canceled(
    valkey_url: str, prefix: str, replica: NewReplica
) -> None:
    # redis-py with a socket timeout loses a cancellation that comes while a command is being sent (Python 3.11).
    owner = replica()
    for ticks in range(25):
        inbox = Inbox(valkey_url, boot_id=owner.boot_id, prefix=prefix, block=0.02)
        task = asyncio.create_task(inbox.run(Received()))
        await asyncio.sleep(0.03)
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=0.5)
        assert task.cancelled()
