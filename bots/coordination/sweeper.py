"""Picks up what a dead replica left: a run whose lease is gone gets a new owner, and its chat moves on."""

import asyncio
import random
import secrets
import time
from typing import Final, Protocol

import structlog

from harness.admission import Lease, RunInput
from harness.errors import AdmissionUnavailable, StoreError
from harness.stores.base import Retention

log = structlog.stdlib.get_logger(__name__)

EVERY_S: Final = 2.0
BATCH: Final = 20
KEEP_S: Final = 30 * 24 * 3600.0
"""How long a conversation is kept after its last use."""


class Orphans(Protocol):
    """Where runs without an owner are found and claimed."""

    async def due_sessions(self, limit: int) -> list[str]:
        """Sessions with a run whose lease is gone."""
        ...

    async def claim(self, session_key: str, token: str) -> tuple[RunInput, Lease, bool] | None:
        """Become the owner: the run, the lease, and whether work had begun; None when somebody else was faster."""
        ...


class Adopter(Protocol):
    """Who takes over."""

    async def take_over(self, run: RunInput, lease: Lease, *, begun: bool) -> None:
        """Start a run that nobody has worked on; end one that was begun as interrupted."""
        ...

    async def sweep(self) -> None:
        """See to runs that wait for people."""
        ...


async def sweep(orphans: Orphans, adopter: Adopter, *, every_s: float = EVERY_S) -> None:
    """Look for orphans until canceled."""
    while True:
        # Spread, so that replicas that started together do not all look at the same moment.
        await asyncio.sleep(every_s * random.uniform(0.8, 1.2))
        try:
            for key in await orphans.due_sessions(BATCH):
                if claimed := await orphans.claim(key, secrets.token_hex(16)):
                    run, lease, begun = claimed
                    log.warning("took over a run", task=run.task_id, begun=begun)
                    await adopter.take_over(run, lease, begun=begun)
            await adopter.sweep()
        except AdmissionUnavailable:
            continue
        except StoreError as error:
            log.warning("what dead replicas left could not be seen to", reason=str(error))


async def purge(retention: Retention, *, every_s: float = 24 * 3600.0, keep_s: float = KEEP_S) -> None:
    """Delete what is older than `keep_s`, now and then again every `every_s`, until canceled."""
    while True:
        try:
            gone = await retention.purge(before=time.time() - keep_s)
        except StoreError as error:
            log.warning("old conversations could not be deleted", reason=str(error))
        else:
            log.info("old conversations deleted", count=gone)
        await asyncio.sleep(every_s)
