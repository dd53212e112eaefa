"""Cancel orders between replicas. The cancel key is the truth, this stream the fast hint, `renew` the backstop.

Not pub/sub: a message that is published while the subscriber's connection is down is gone, silently.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import structlog
from redis import exceptions as redis_errors

from bots.coordination import scripts
from bots.coordination.connection import Client, connect, is_no_answer, run_script
from bots.coordination.keys import inbox_key
from harness.admission import CancelOrder

log = structlog.stdlib.get_logger(__name__)

# What an XREAD of one stream brings: entries of (id, fields), under the stream's name.
_Entries = list[tuple[bytes, dict[bytes, bytes]]]

_TELL_TIMEOUT_S = 0.5
_PAUSE_S = 0.25

OnCancel = Callable[[CancelOrder], Awaitable[None]]


async def tell(client: Client, boot_id: str, order: CancelOrder, *, prefix: str = "h") -> None:
    """Put the order into the inbox of one replica. A failure is logged only: the order is already in its key."""
    try:
        async with asyncio.timeout(_TELL_TIMEOUT_S):
            await run_script(
                client, scripts.TELL, [inbox_key(boot_id, prefix)], [order.task_id, order.by, order.reason]
            )
    except (redis_errors.RedisError, TimeoutError) as error:
        log.info("could not tell the owner: its renewal will", task=order.task_id, error=repr(error))


class Inbox:
    """The one reader of this process's stream. `boot_id` and `prefix` as in `RedisAdmission`.

    `block` is how many seconds one read waits inside the server.
    """

    def __init__(self, url: str, *, boot_id: str, prefix: str = "h", block: float = 2.0) -> None:
        self._key = inbox_key(boot_id, prefix)
        self._block_ms = round(block * 1000)
        # Longer than the server blocks, else every quiet spell would look like a dead server.
        self._patience = block + 1.5
        self._client = connect(url, max_connections=1)
        # From the very first: the stream is named after this start of the process, so all of it is for us.
        self._last = b"0"

    async def run(self, on_cancel: OnCancel) -> None:
        """Read for ever, until cancelled; connections come and go meanwhile, and nothing sent is missed.

        `on_cancel` may be called twice for one order. What it raises is logged; the reading goes on.
        """
        try:
            while True:
                try:
                    async with asyncio.timeout(self._patience):
                        orders = await self._read()
                except (redis_errors.RedisError, TimeoutError) as error:
                    if isinstance(error, redis_errors.RedisError) and not is_no_answer(error):
                        raise
                    await asyncio.sleep(_PAUSE_S)
                    await self._find_place()
                else:
                    for order in orders:
                        await self._deliver(order, on_cancel)
        finally:
            await self._client.aclose()

    async def _read(self) -> list[CancelOrder]:
        reply = await self._client.execute_command("XREAD", "BLOCK", self._block_ms, "STREAMS", self._key, self._last)
        orders: list[CancelOrder] = []
        for entry_id, fields in _entries(reply):
            self._last = entry_id
            orders.append(CancelOrder(*(fields[name].decode() for name in (b"task", b"by", b"reason"))))
        return orders

    async def _deliver(self, order: CancelOrder, on_cancel: OnCancel) -> None:
        try:
            await on_cancel(order)
        except Exception:
            log.exception("a cancel order failed", task=order.task_id)

    async def _find_place(self) -> None:
        """Begin anew where the server's clock fell behind: after a failover new ids may be lower than our last one."""
        try:
            async with asyncio.timeout(self._patience):
                newest = await self._client.execute_command("XREVRANGE", self._key, "+", "-", "COUNT", 1)
        except (redis_errors.RedisError, TimeoutError):
            return  # still away: the next read fails as well and brings us back here
        entries = cast("_Entries", newest or [])
        if entries and _id(entries[0][0]) < _id(self._last):
            self._last = b"0"


def _entries(reply: object) -> _Entries:
    """Take the entries out of a reply of either protocol version: {stream: [entries]} or [[stream, entries]]."""
    if isinstance(reply, dict):
        streams = cast("dict[bytes, list[_Entries]]", reply)
        return [entry for entries in streams.values() for part in entries for entry in part]
    return [entry for _, entries in cast("list[tuple[bytes, _Entries]]", reply or []) for entry in entries]


def _id(entry_id: bytes) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition(b"-")
    return int(milliseconds), int(number or 0)
