"""Do all replicas see the same data folder? Files of a conversation make sense only then.

The folder holds one id, made by whichever replica was there first. Every replica tells the coordinator which id it
sees. Who comes and finds that others are there, but none that sees the same id, has a folder of its own.

Only who comes later notices: what was proved for the others still holds. And it is a proof at the start only: a folder
that is exchanged under a running replica goes unnoticed.
"""

import asyncio
import contextlib
import os
import secrets
from pathlib import Path
from typing import Final, Protocol

import structlog

from bots.coordination.keys import session_key
from harness.errors import AdmissionUnavailable

log = structlog.stdlib.get_logger(__name__)

MARKER: Final = "replicas.id"
TTL_S: Final = 120.0
"""How long a replica counts as there after it last said so."""
EVERY_S: Final = 30.0
_KEY: Final = session_key("bots", "", "data-folder")
_ANYBODY: Final = "anybody"


class Names(Protocol):
    """Names with a life time, the same for all replicas. Raises `AdmissionUnavailable`."""

    async def first_time(self, session_key: str, name: str, seconds: float) -> bool:
        """True once per `seconds` for this name."""
        ...

    async def forget(self, session_key: str, name: str) -> None:
        """Make `first_time` true again."""
        ...


async def is_shared(folder: Path, names: Names) -> bool:
    """Whether every replica that is there sees this folder; says why not in one line of the log."""
    try:
        seen = await asyncio.to_thread(_folder_id, folder)
        if not await names.first_time(_KEY, seen, TTL_S):
            return True
        # The first with this id. Only they say this, so of two that share a folder one cannot stop the other.
        if await names.first_time(_KEY, _ANYBODY, TTL_S):
            return True
    except (OSError, AdmissionUnavailable) as error:
        log.warning("file tools are off: it cannot be proved that the replicas share BOTS_DATA_DIR", reason=str(error))
        return False
    log.warning(
        "file tools are off: another replica does not see this BOTS_DATA_DIR; set it to a folder that all share"
    )
    with contextlib.suppress(AdmissionUnavailable):
        await names.forget(_KEY, seen)
    return False


async def keep_shared(folder: Path, names: Names, *, every_s: float = EVERY_S) -> None:
    """Go on saying that this replica is there, until canceled. For one whose folder `is_shared`."""
    seen = await asyncio.to_thread(_folder_id, folder)
    while True:
        await asyncio.sleep(every_s)
        with contextlib.suppress(AdmissionUnavailable):
            for name in (seen, _ANYBODY):
                await names.forget(_KEY, name)
                await names.first_time(_KEY, name, TTL_S)


def _folder_id(folder: Path) -> str:
    """The id in the folder, made when there is none. OSError when it cannot be read or written."""
    marker = folder / MARKER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not marker.exists():
        own = folder / f".{MARKER}.{secrets.token_hex(8)}"
        try:
            own.write_text(secrets.token_hex(16), encoding="ascii")
            # A link appears whole or not at all, and never in place of one that is there.
            with contextlib.suppress(FileExistsError):
                os.link(own, marker)
        finally:
            own.unlink(missing_ok=True)
    return marker.read_text(encoding="ascii")
