"""What was typed, kept for the next time: only for the eyes of its owner."""

import contextlib
import os
from pathlib import Path
from typing import Final

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

OWNER_ONLY: Final = 0o600


def history_in(folder: Path) -> History:
    """The history in this folder, made when needed, mode 0600; one in memory where that cannot be."""
    path = folder / "history"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, OWNER_ONLY)
        try:
            os.fchmod(descriptor, OWNER_ONLY)
        finally:
            os.close(descriptor)
    except OSError:
        return InMemoryHistory()
    return _LenientHistory(path)


class _LenientHistory(FileHistory):
    def store_string(self, string: str) -> None:
        # A full disk must not end the conversation, and neither must typed bytes that are no text.
        with contextlib.suppress(OSError, UnicodeEncodeError):
            super().store_string(string)
