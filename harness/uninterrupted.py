"""Waiting for something that must come to its end even when the waiter is canceled."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def finished(work: Awaitable[T]) -> T:
    """The result of `work`, which always runs to its end; only then does a cancellation of the caller go on.

    For short work with an effect (a write in a thread, the end of a process): a caller that leaves early would report
    "canceled" while the effect is still to come. What `work` raises passes through, unless the caller was canceled.
    """
    future = asyncio.ensure_future(work)  # noqa: TID251 - waited for right here, so nothing can dangle
    canceled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            canceled = error
    if canceled is not None:
        if not future.cancelled():
            future.exception()  # looked at, so that asyncio does not report it as lost
        raise canceled
    return future.result()
