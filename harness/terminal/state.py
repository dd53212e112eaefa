"""Where a terminal keeps what outlives it: one folder of the person, with a database in it."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from harness.errors import ConfigError
from harness.settings import KernelSettings
from harness.stores.address import FILE_NAME
from harness.stores.base import Stores

IN_MEMORY: Final = "sqlite:///:memory:"


def state_folder(base: Path | None = None) -> Path:
    """`harness-bots` below `base`, the value of XDG_STATE_HOME; below ~/.local/state when that is unset."""
    # The base directory specification: a relative value is invalid and has to be ignored.
    root = base if base is not None and base.is_absolute() else Path.home() / ".local" / "state"
    return root / "harness-bots"


@asynccontextmanager
async def stores_in(folder: Path, settings: KernelSettings, *, create: bool = True) -> AsyncGenerator[Stores]:
    """The stores of DATABASE_URL, or of `harness.db` in the folder when that is unset, until the end of the block.

    The folder and the file are the owner's alone. Without `create` a file that is missing stays missing, and there is
    nothing in the stores. Raises ConfigError and StoreError for a database that cannot be opened, in one sentence.
    """
    url = settings.database_url.get_secret_value() if settings.database_url is not None else None
    if url is None and (create or _is_there(folder / FILE_NAME)):
        _make(folder / FILE_NAME)
    elif url is None:
        url = IN_MEMORY
    from harness.stores.sql import open_stores  # here, because it takes as long to load as all the rest

    async with open_stores(url, folder) as stores:
        yield stores


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass  # something is wrong with it: opening it says what
    return True


def _make(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written ({error.strerror}): correct its permissions or XDG_STATE_HOME, or set "
            f"DATABASE_URL ({IN_MEMORY} keeps nothing)."
        ) from error
