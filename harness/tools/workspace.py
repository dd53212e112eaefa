"""One folder of files, and nothing outside of it: every access of the file tools goes through here.

How containment holds, also while somebody else changes the folder: a path is walked name by name, each name opened
relative to the descriptor of the folder before it and never through a symbolic link (`O_NOFOLLOW`). What was opened is
then judged by its descriptor, not by its name, so there is no moment between a check and its use. Writing makes a new
file beside the old one and renames it within the same open folder: a rename replaces a name, it follows nothing.

Refused as well: files with more than one hard link, to read as to write. Their other name may lie outside, and nothing
tells where; the price is that a file hard-linked inside the workspace must be copied first.

Everything here blocks: call it in a thread. Errors are `ToolError` and name only paths as the model wrote them.
"""

import errno
import itertools
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import ToolError
from harness.tools.paths import alike, names_of, shown

MAX_FILE_BYTES: Final = 2**20
MAX_ENTRIES: Final = 500
_MAX_SCANNED: Final = 20_000
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK the open of a FIFO would wait for its writer.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS: Final = {
    stat.S_IFLNK: "a symbolic link, and links are not followed",
    stat.S_IFDIR: "a folder",
    stat.S_IFREG: "a file",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_REASONS: Final = {
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the workspace is read-only",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "it is a symbolic link, and links are not followed",
    errno.ENOTDIR: "a part of it is not a folder",
    errno.EISDIR: "it is a folder",
    errno.ENXIO: "it is a socket or a device",
    errno.EMFILE: "too many open files",
    errno.ENFILE: "too many open files",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a folder. `size`: bytes, of files only."""

    name: str
    kind: str
    size: int | None


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file, and the state in which they were read."""

    data: bytes
    seen: os.stat_result


class Workspace:
    """The folder at `root`, made at the first use. Whoever chooses `root` is trusted: links in it are followed."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))

    def make(self) -> None:
        """Make the folder if it is not there yet, for its owner alone."""
        with self._errors("."):
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def read(self, path: str, *, limit: int = MAX_FILE_BYTES) -> Content:
        """The whole content of the regular file at `path`; ToolError when it is larger than `limit` bytes."""
        names = self._names_of_file(path)
        with self._errors(path), self._folder(names[:-1], path) as folder:
            _check_file(_stat(folder, names[-1], path), path)
            fd = os.open(names[-1], _READ, dir_fd=folder)
            try:
                # What counts: the name may mean something else than a moment ago, the descriptor may not.
                seen = os.fstat(fd)
                _check_file(seen, path)
                data = _read_up_to(fd, limit + 1)
            finally:
                os.close(fd)
        if len(data) > limit:
            raise ToolError(f"{shown(path)} has {max(seen.st_size, len(data)):,} bytes; the limit is {limit:,}.")
        return Content(data, seen)

    def write(self, path: str, data: bytes, *, limit: int = MAX_FILE_BYTES, expected: Content | None = None) -> bool:
        """Put `data` at `path` at once: a reader sees the old content or the new, never a part. True = a new file.

        Missing folders are made, an existing file keeps its mode. With `expected`, ToolError when the file is no longer
        what was read.
        """
        if len(data) > limit:
            raise ToolError(f"The content has {len(data):,} bytes; the limit is {limit:,}.")
        names = self._names_of_file(path)
        with self._errors(path), self._folder(names[:-1], path, make=expected is None) as folder:
            try:
                old = os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                if expected is not None:
                    raise
                old = None
                _check_new_name(folder, names[-1])
            if old is not None:
                _check_file(old, path)
            if old is not None and expected is not None and _version(old) != _version(expected.seen):
                raise ToolError(f"{shown(path)} has changed in the meantime. Read it again.")
            _replace(folder, names[-1], data, old)
        return old is None

    def entries(self, path: str, *, limit: int = MAX_ENTRIES) -> tuple[list[Entry], bool]:
        """What is in the folder at `path`, sorted by name, at most `limit`; and whether there is more."""
        with self._errors(path), self._folder(names_of(path, self.root), path) as folder, os.scandir(folder) as scan:
            names = sorted(entry.name for entry in itertools.islice(scan, _MAX_SCANNED))
            found = [entry for name in names[:limit] if (entry := _entry(folder, name)) is not None]
            return found, len(names) > limit

    def _names_of_file(self, path: str) -> tuple[str, ...]:
        names = names_of(path, self.root)
        if not names or path.endswith(("/", "/.")):
            raise ToolError(f"{shown(path)} is a folder, not a file.")
        return names

    @contextmanager
    def _folder(self, names: tuple[str, ...], path: str, *, make: bool = False) -> Generator[int]:
        """A descriptor of the folder that `names` lead to."""
        self.make()
        current = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for name in names:
                inner = _open_folder(current, name, path, make=make)
                os.close(current)
                current = inner
            yield current
        finally:
            os.close(current)

    @contextmanager
    def _errors(self, path: str) -> Generator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ToolError(f"There is no {shown(path)} in the workspace.") from error
        except OSError as error:
            # Never the error's own text: it may name a path of the host.
            reason = _REASONS.get(error.errno or 0) or errno.errorcode.get(error.errno or 0, "unknown error")
            raise ToolError(f"{shown(path)} cannot be used: {reason}.") from error


def _open_folder(parent: int, name: str, path: str, *, make: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            _suggest(parent, name, path)
            raise
        _check_new_name(parent, name)
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except (NotADirectoryError, OSError) as error:
        # A link is ELOOP on some systems and ENOTDIR on others. This look only chooses the words.
        if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
            raise
        kind = _kind(os.stat(name, dir_fd=parent, follow_symlinks=False))
        raise ToolError(f"{shown(name)} in {shown(path)} is {kind}; a folder is needed there.") from error


def _stat(folder: int, name: str, path: str) -> os.stat_result:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        _suggest(folder, name, path)
        raise


def _check_file(state: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise ToolError(f"{shown(path)} is {_kind(state)}; a regular file is needed.")
    if state.st_nlink > 1:
        raise ToolError(f"{shown(path)} has other hard links, which may lie outside of the workspace. Copy it first.")


def _kind(state: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(state.st_mode), "of an unknown kind")


def _similar(folder: int, name: str) -> str | None:
    with os.scandir(folder) as scan:
        wanted = alike(name)
        return next((e.name for e in itertools.islice(scan, _MAX_SCANNED) if alike(e.name) == wanted), None)


def _suggest(folder: int, name: str, path: str) -> None:
    if (similar := _similar(folder, name)) is not None:
        raise ToolError(
            f"There is no {shown(path)} in the workspace; {shown(similar)} differs in case or Unicode form."
        )


def _check_new_name(folder: int, name: str) -> None:
    # Where names ignore case, both would be one file; where they do not, nobody could tell them apart.
    if (similar := _similar(folder, name)) is not None and similar != name:
        raise ToolError(f"{shown(name)} differs only in case or Unicode form from {shown(similar)}, which exists.")


def _read_up_to(fd: int, limit: int) -> bytes:
    pieces: list[bytes] = []
    left = limit
    while left > 0 and (piece := os.read(fd, left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _version(state: os.stat_result) -> tuple[int, int, int, int]:
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _replace(folder: int, name: str, data: bytes, old: os.stat_result | None) -> None:
    temporary = f".{secrets.token_hex(8)}.tmp"
    fd = os.open(temporary, _CREATE, 0o666 if old is None else 0o600, dir_fd=folder)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if old is not None:
                if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                    with suppress(PermissionError):
                        os.fchown(fd, old.st_uid, old.st_gid)
                os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _entry(folder: int, name: str) -> Entry | None:
    try:
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None  # gone since the folder was read
    return Entry(name, _kind(state).partition(",")[0], state.st_size if stat.S_ISREG(state.st_mode) else None)
