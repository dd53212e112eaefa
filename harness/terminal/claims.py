"""Which conversations are open in a terminal right now.

One locked byte of one file stands for each. The system itself gives the locks of a dead process back, however it died:
so whoever gets the lock of a conversation knows that nobody else is at work on it.
"""

import contextlib
import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

try:
    import fcntl
except ImportError:  # not on Windows; there nothing is locked, and nothing is proved
    fcntl = None

FILE_NAME: Final = "open.lock"


class Claims:
    """The conversations that this process has open.

    `is_proof`: whether a conversation that was taken is surely in nobody else's hands. Without a `descriptor` each can
    be taken, and that proves nothing.
    """

    def __init__(self, descriptor: int | None = None, *, is_proof: bool = False) -> None:
        self.is_proof = is_proof and descriptor is not None
        self._descriptor = descriptor

    def take(self, key: str) -> bool:
        """Open the conversation here; False when it is open in another process."""
        if self._descriptor is None or fcntl is None:
            return True
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(key))
        except OSError:
            return False
        return True

    def release(self, key: str) -> None:
        """Close the conversation here."""
        if self._descriptor is not None and fcntl is not None:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _byte(key))


@contextmanager
def claims_in(folder: Path, *, is_proof: bool) -> Generator[Claims]:
    """The claims of this process until the end of the block; `is_proof` when only users of this folder matter."""
    with contextlib.ExitStack() as stack:
        descriptor = None
        if fcntl is not None:
            with contextlib.suppress(OSError):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor = os.open(folder / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                stack.callback(os.close, descriptor)
        yield Claims(descriptor, is_proof=is_proof)


def _byte(key: str) -> int:
    """Which byte of the file stands for the conversation; nothing is ever written there."""
    return int.from_bytes(hashlib.blake2b(key.encode(errors="backslashreplace"), digest_size=7).digest(), "big")
