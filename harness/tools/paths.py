"""From a path that a model wrote to plain names below the workspace. Pure: nothing here looks at the disk.

The rule is an allowlist of shapes, not a list of attacks: what is not a plain relative path of ordinary names is
refused, also where it would be harmless, so that nobody has to prove that it is.
"""

import re
import unicodedata
from pathlib import Path, PurePosixPath
from typing import Final

from harness.errors import ToolError
from harness.tools.untrusted import printable

MOUNT: Final = "/workspace"
"""Where the shell's sandbox shows the workspace: paths that a command printed work in the file tools as they are."""
MAX_NAME_BYTES: Final = 255
MAX_PATH_BYTES: Final = 4096
MAX_DEPTH: Final = 32

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that do not show or that reorder what is around them: controls, bidi, zero width, surrogates."""
_DRIVE: Final = re.compile(r"[A-Za-z]:")


def names_of(path: str, root: Path | None = None) -> tuple[str, ...]:
    """The names from the workspace down to what `path` means; `()` is the workspace itself.

    A path below `MOUNT`, or below `root` when that is given, counts as relative. ToolError says what is wrong.
    Each name is one component: not empty, not `.` or `..`, without `/`, at most 255 bytes as UTF-8.
    """
    if not path:
        raise ToolError("The path is empty. Use '.' for the workspace itself.")
    if any(unicodedata.category(char) in _HIDDEN for char in path):
        raise ToolError(f"The path {shown(path)} contains control or invisible characters.")
    if len(path.encode()) > MAX_PATH_BYTES:
        raise ToolError(f"The path is longer than {MAX_PATH_BYTES:,} bytes.")
    if "\\" in path:
        raise ToolError(f"The path {shown(path)} contains a backslash. Separate folders with '/'.")
    if path.startswith("/"):
        path = _below(path, root)
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if len(parts) > MAX_DEPTH:
        raise ToolError(f"The path is deeper than {MAX_DEPTH} folders.")
    if parts and (parts[0] == "~" or _DRIVE.match(parts[0])):
        raise ToolError(f"The path {shown(path)} is not inside the workspace. Use a relative path.")
    for part in parts:
        _check(part)
    return tuple(parts)


def shown(path: str) -> str:
    """The path as it may stand in a message: quoted, one line, not endless."""
    return repr(printable(path if len(path) <= 200 else f"{path[:200]}..."))


def alike(name: str) -> str:
    """Equal for names that differ only in case or in the Unicode form of the same letters."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def _below(path: str, root: Path | None) -> str:
    for base in (MOUNT, *([str(root)] if root else [])):
        # On components, never on characters: /workspace2 is not below /workspace.
        if PurePosixPath(path).is_relative_to(base):
            return str(PurePosixPath(path).relative_to(base))
    raise ToolError(f"The path {shown(path)} is not inside the workspace. Use a relative path.")


def _check(name: str) -> None:
    # Also in the form to which other systems and programs fold it: fullwidth dots, two-dot leaders, fullwidth slashes.
    folded = unicodedata.normalize("NFKC", name)
    if not folded.strip(". "):
        raise ToolError("The path must not contain '..' or a name made of dots and spaces.")
    if "/" in folded or "\\" in folded:
        raise ToolError(f"The name {shown(name)} contains a character that stands for a slash.")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise ToolError(f"The name {shown(name)} is longer than {MAX_NAME_BYTES} bytes.")
