"""AGENTS.md: what the folder that is worked in says to any assistant."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.context.folder_text import read_text
from harness.errors import ToolError
from harness.tools.untrusted import printable

FILE_NAME: Final = "AGENTS.md"
MAX_FILE_CHARS: Final = 32_000
MAX_CHARS: Final = 64_000
"""Of all files together."""
_LEFT_OUT: Final = "\n[... the rest of this file, {count:,} characters, is left out: it is too long ...]"
_HEADING: Final = """\
# Instructions of this workspace

From files named {name}, the one of the nearest folder last: where two differ, the later one holds."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """What was found: (path from the root, text) per file, the nearest folder last, and what was left out and why."""

    files: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def folders_up(folder: Path) -> list[Path]:
    """The folders whose instructions hold in `folder`: from the root of its repository down to itself.

    Outside of a repository only the folder itself: what lies above it may be anybody's.
    """
    here = folder.absolute()
    for root in (here, *here.parents):
        if (root / ".git").exists():
            return [root / part for part in _steps(here.relative_to(root))]
    return [here]


def read_instructions(folders: Sequence[Path]) -> Instructions:
    """Read the file of each folder, where there is one. The first folder is the root: links may not lead out of it.

    Blocks. Raises nothing: a file that cannot be used is left out with a warning. The nearest files have the first
    claim on the room that there is.
    """
    found: list[tuple[str, str]] = []
    warnings: list[str] = []
    left = MAX_CHARS
    for folder in reversed(folders):
        path = folder / FILE_NAME
        try:
            text = read_text(folders[0], path).strip()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (ToolError, OSError) as error:
            reason = error if isinstance(error, ToolError) else type(error).__name__
            warnings.append(f"{printable(str(path))} is left out: {reason}")
            continue
        if text and left > 0:
            found.append((str(path.relative_to(folders[0])), _clamped(text, min(left, MAX_FILE_CHARS))))
            left -= len(text)
        elif text:
            warnings.append(f"{printable(str(path))} is left out: the files nearer by fill the room already")
    return Instructions(tuple(reversed(found)), tuple(warnings))


def instructions_text(files: Sequence[tuple[str, str]]) -> str:
    """The part of the system prompt; "" without files."""
    if not files:
        return ""
    parts = [f"## {printable(path)}\n\n{text}" for path, text in files]
    return "\n\n".join([_HEADING.format(name=FILE_NAME), *parts])


def _steps(path: Path) -> list[Path]:
    """a/b/c: itself and what leads to it, the shortest first."""
    return [*reversed(path.parents), path] if path.parts else [path]


def _clamped(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + _LEFT_OUT.format(count=len(text) - limit)
