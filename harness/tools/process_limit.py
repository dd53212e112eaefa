"""A limit on the number of processes that holds for root as well, by a control group of its own.

RLIMIT_NPROC does not count the processes of the host's root, whatever id they show inside a sandbox: a fork bomb would
take the machine. Root may make control groups, so where they are there, one holds the limit; both versions have the
same two files for it. Everything here blocks briefly.
"""

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

_BASES: Final = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))


class ProcessLimit:
    """A control group with one sandbox in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def around(cls, pid: int, processes: int) -> Self | None:
        """Limit `pid` and all that it will start; None where it is not needed or not possible."""
        if os.geteuid() != 0:
            return None
        for base in _BASES:
            made = cls(base / f"sandbox-{os.getpid()}-{secrets.token_hex(8)}")
            try:
                made._folder.mkdir()
                # Opened for reading and writing, so that it is never created where the controller is off.
                for name, value in (("pids.max", processes), ("cgroup.procs", pid)):
                    with open(made._folder / name, "r+b", buffering=0) as file:
                        file.write(str(value).encode())
            except OSError:
                made.remove()
            else:
                return made
        return None

    def remove(self) -> None:
        """Remove the group, after its processes have ended."""
        for _ in range(20):
            with suppress(OSError):
                self._folder.rmdir()
            if not self._folder.exists():
                return
            time.sleep(0.01)  # the kernel lets go of the last process a moment after its end
