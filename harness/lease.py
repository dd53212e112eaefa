"""Keeping the right to work on a run, and stopping in time when it can no longer be trusted."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from harness.admission import Admission, Lease, Lost
from harness.errors import AdmissionUnavailable
from harness.status import StopReason
from harness.task import Task

_TRUSTED_SHARE: Final = 0.8
"""Of the lease's life, from when the last good renewal was sent; the rest is for stopping before others start."""
_RETRY_S: Final = 1.0


def _boot_time() -> float:
    # Counts the time a suspended machine sleeps, which the monotonic clock leaves out: a lease goes on ageing.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_clock: Callable[[], float] = _boot_time if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


async def keep_lease(admission: Admission, lease: Lease, task: Task) -> None:
    """Renew until canceled; stop the task when the lease is lost, cannot be trusted, or somebody asked for a stop.

    Runs on the task's own event loop on purpose: a loop that is stuck must lose its lease.
    """
    every = admission.renew_every
    if every is None:
        return
    trusted_until = _clock() + _TRUSTED_SHARE * admission.lease_seconds
    pause = every
    while True:
        await asyncio.sleep(pause)
        sent = _clock()
        try:
            answer = await admission.renew(lease)
        except AdmissionUnavailable:
            if _clock() >= trusted_until:
                task.cancel("the coordinator is out of reach", stop=StopReason.INTERRUPTED)
                return
            pause = min(_RETRY_S, every)
            continue
        pause = every
        if isinstance(answer, Lost):
            task.is_lost = True
            task.cancel("another replica took over", stop=StopReason.INTERRUPTED)
            return
        trusted_until = sent + _TRUSTED_SHARE * admission.lease_seconds
        if answer.cancel is not None and answer.cancel.task_id == task.id:
            task.cancel(answer.cancel.reason, by=answer.cancel.by)
