"""Text files below a folder that somebody else may have filled: read with a limit, and never from outside of it."""

import os
from pathlib import Path

from harness.errors import ToolError
from harness.tools.workspace import Workspace


def read_text(root: Path, path: Path) -> str:
    """The text of a file below `root`, without a byte order mark. It may be a symbolic link to another file there.

    Raises ToolError, which says what is wrong, and FileNotFoundError when there is no such name.
    """
    real_root = root.resolve()
    try:
        real = path.resolve(strict=True)
        inside = real.relative_to(real_root)
    except FileNotFoundError:
        if os.path.lexists(path):
            raise ToolError("it is a symbolic link to nothing") from None
        raise
    except ValueError:
        raise ToolError("it is a symbolic link that leads out of its folder") from None
    except (OSError, RuntimeError) as error:
        raise ToolError(f"it cannot be found: {type(error).__name__}") from None
    # Opened by the resolved name and through no link any more, whatever happens to the folder in the meantime.
    data = Workspace(real_root).read(str(inside)).data
    if b"\0" in data:
        raise ToolError("it is a binary file, not text")
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ToolError(f"it is not UTF-8 text: byte {error.start:,} does not fit") from None
