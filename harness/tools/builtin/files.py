"""Files of one workspace: read, list, write, edit."""

import asyncio
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from harness.errors import ToolError
from harness.tools.base import Tool, ToolContext, tool
from harness.tools.paths import shown
from harness.tools.untrusted import printable
from harness.tools.workspace import Content, Workspace
from harness.uninterrupted import finished

WorkspaceOf = Callable[[ToolContext], Workspace]
"""Which workspace belongs to the session of a call."""


class SessionWorkspaces:
    """A workspace for each session, below `root`; made at its first use. Goes wherever `WorkspaceOf` goes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(self, context: ToolContext) -> Workspace:
        """The workspace of the session in which the call is made."""
        return self.of_session(context.session_key)

    def of_session(self, session_key: str) -> Workspace:
        """The workspace of a session. Its folder's name tells nothing: a key may hold any characters, at any length."""
        # surrogatepass: a platform's id is an opaque string, and the folder must never fail to be named.
        digest = hashlib.sha256(session_key.encode(errors="surrogatepass")).hexdigest()
        return Workspace(self.root / digest)


def file_tools(workspace: Workspace | WorkspaceOf) -> list[Tool]:
    """`read_file`, `list_files`, `write_file`, `edit_file`: in one workspace, or in the one of each call's session."""
    of = workspace_of(workspace)

    @tool(read_only=True, untrusted="the file {path}")
    async def read_file(path: str, context: ToolContext) -> str:
        """Read a text file of the workspace (UTF-8, at most 1 MiB)."""
        return await in_thread(lambda: _text(of(context).read(path), path))

    @tool(read_only=True, untrusted="the folder {path}")
    async def list_files(context: ToolContext, path: str = ".") -> str:
        """List a folder of the workspace: its files with their sizes and its folders (these end with '/')."""
        return await in_thread(lambda: _listing(of(context), path))

    @tool(policy="ask")
    async def write_file(path: str, content: str, context: ToolContext) -> str:
        """Write a text file of the workspace (UTF-8, at most 1 MiB): a new one, or in place of an existing one.

        Missing folders are made.
        """

        def write() -> str:
            data = _encoded(content)
            new = of(context).write(path, data)
            return f"{'Created' if new else 'Replaced'} {shown(path)}: {len(data):,} bytes."

        return await in_thread(write)

    @tool(policy="ask")
    async def edit_file(path: str, old: str, new: str, context: ToolContext) -> str:
        """Replace one passage of a text file of the workspace.

        `old` must be exactly as in the file, spaces and line breaks included, and must occur there exactly once: give
        enough of the lines around it.
        """

        def edit() -> str:
            place = of(context)
            before = place.read(path)
            place.write(path, _encoded(_edited(_text(before, path, keep_mark=True), old, new, path)), expected=before)
            return f"Edited {shown(path)}."

        return await in_thread(edit)

    return [read_file, list_files, write_file, edit_file]


def workspace_of(workspace: Workspace | WorkspaceOf) -> WorkspaceOf:
    """One form for both ways to name a workspace."""
    return (lambda _: workspace) if isinstance(workspace, Workspace) else workspace


async def in_thread(work: Callable[[], str]) -> str:
    """Run blocking work off the event loop. Canceled, it still ends first: no write comes after "canceled"."""
    return await finished(asyncio.to_thread(work))


def _text(content: Content, path: str, *, keep_mark: bool = False) -> str:
    if b"\0" in content.data:
        raise ToolError(f"{shown(path)} is a binary file ({len(content.data):,} bytes), not text.")
    try:
        text = content.data.decode()
    except UnicodeDecodeError as error:
        raise ToolError(f"{shown(path)} is not UTF-8 text: byte {error.start:,} does not fit.") from error
    return text if keep_mark else text.removeprefix("\ufeff")


def _encoded(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"The content has half of a surrogate pair at character {error.start:,}.") from error
    if b"\0" in data:
        raise ToolError("The content has a NUL character; only text can be written.")
    return data


def _edited(text: str, old: str, new: str, path: str) -> str:
    if not old:
        raise ToolError("`old` is empty. Use write_file for a new file.")
    if old == new:
        raise ToolError("`old` and `new` are the same: there is nothing to change.")
    # Overlapping ones count too: with "aa" in "aaa" it is not clear which one is meant.
    count = sum(1 for _ in re.finditer(f"(?={re.escape(old)})", text))
    if count == 0:
        hint = " Its lines end with CR LF, not LF." if "\r\n" in text and "\n" in old and "\r\n" not in old else ""
        raise ToolError(f"`old` does not occur in {shown(path)}.{hint} Read the file and copy the passage exactly.")
    if count > 1:
        raise ToolError(f"`old` occurs {count:,} times in {shown(path)}; it must be unique. Give more context.")
    return text.replace(old, new)


def _listing(workspace: Workspace, path: str) -> str:
    entries, more = workspace.entries(path)
    lines = [_line(printable(entry.name), entry.kind, entry.size) for entry in entries]
    if more:
        lines.append(f"[... more than {len(entries):,} entries; list a folder inside, or name the file]")
    return "\n".join(lines) or "(empty)"


def _line(name: str, kind: str, size: int | None) -> str:
    if kind == "a folder":
        return f"{name}/"
    return f"{name}  {size:,} bytes" if size is not None else f"{name}  ({kind.removeprefix('a ')})"
