"""What of the stores belongs to one terminal: its questions, and permissions for the person and the folder."""

import getpass
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.approval import Grant
from harness.stores.base import Change, GrantStore, ParkedRun, ParkingStore, Stores, UnitOfWork
from harness.stores.memory import MemoryParkingStore


def own_stores(stores: Stores, folder: Path) -> Stores:
    """The stores as a terminal in this folder uses them."""
    parking = MemoryParkingStore()
    grants = FolderGrants(stores.grants, folder, person())
    return replace(stores, grants=grants, parking=parking, unit=_OwnQuestions(stores.unit, parking))


class FolderGrants:
    """`GrantStore` for the files of one folder and one person.

    Tools work on the current folder, so `make test` is another command in every folder: what was permitted in one says
    nothing about the next. Several people may share a database.
    """

    def __init__(self, grants: GrantStore, folder: Path, person: str) -> None:
        self._grants = grants
        self._folder = _printable(os.fsencode(folder))
        self._person = person

    async def add(self, grant: Grant) -> None:
        """See `GrantStore`."""
        await self._grants.add(replace(grant, chat=self._here(grant.chat), user=grant.user or self._person))

    async def find(self, digest: str, *, chat: str, user: str, session_key: str, now: float) -> Grant | None:
        """See `GrantStore`."""
        chat, user = self._here(chat), user or self._person
        return await self._grants.find(digest, chat=chat, user=user, session_key=session_key, now=now)

    async def list(self, *, now: float, chat: str = "", user: str = "") -> Sequence[Grant]:
        """See `GrantStore`; of this person alone."""
        return await self._grants.list(now=now, chat=self._here(chat) if chat else "", user=user or self._person)

    async def revoke(self, grant_id: str) -> bool:
        """See `GrantStore`."""
        return await self._grants.revoke(grant_id)

    def _here(self, chat: str) -> str:
        return f"{chat}:{self._folder}"


def person() -> str:
    """Who sits at this terminal: the login name."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run as a user that nobody has named
        name = str(os.getuid())
    return _printable(os.fsencode(name))


def _printable(name: bytes) -> str:
    """A name of the system as text that a database takes."""
    return name.decode(errors="backslashreplace")


@dataclass(frozen=True, slots=True)
class _OwnQuestions:
    """A unit of work that parks runs in this process and not in the database.

    The person at this terminal is the only one who can answer its questions, so they go with it. In the database
    another terminal, or a service that shares it, would find them expired and try to go on with the run.
    """

    unit: UnitOfWork
    parking: ParkingStore

    async def commit(self, *changes: Change) -> None:
        """See `UnitOfWork`."""
        await self.unit.commit(*[change for change in changes if not isinstance(change, ParkedRun)])
        for change in changes:
            if isinstance(change, ParkedRun):
                await self.parking.park(change)
