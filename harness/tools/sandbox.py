"""One command in bubblewrap: it sees a read-only system and its workspace, no network, no other process, no secret.

Left to whoever runs this: the size of the workspace as a whole is not limited, and the kernel is shared.
"""

import asyncio
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from harness.tools.paths import MOUNT
from harness.tools.sandbox_process import SandboxProcess, SandboxUnusable
from harness.uninterrupted import finished

_PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Of /etc only what programs need to start: the rest may hold secrets, and a service that runs as root could read them.
_ETC: Final = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/certs", "/etc/ssl/openssl.cnf")
_SCRATCH: Final = "/tmp"  # noqa: S108 - in the sandbox, where it is private
_SHARED: Final = "/dev/shm"  # noqa: S108 - likewise
_WATCH_S: Final = 0.02
_START_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one command may use. Memory and processes hold for each process and for all of them together.

    `cpu_s`: processor time of a process. `memory`: bytes. `file_size`: bytes of a file. `scratch`: bytes in /tmp.
    `output`: bytes printed.
    """

    cpu_s: int = 600
    memory: int = 2 * 2**30
    processes: int = 256
    file_size: int = 256 * 2**20
    open_files: int = 512
    scratch: int = 256 * 2**20
    output: int = 16 * 2**20

    @property
    def for_each_process(self) -> Mapping[int, int]:
        """The part that the kernel holds by itself."""
        return {
            resource.RLIMIT_CPU: self.cpu_s,
            resource.RLIMIT_AS: self.memory,
            resource.RLIMIT_NPROC: self.processes,
            resource.RLIMIT_FSIZE: self.file_size,
            resource.RLIMIT_NOFILE: self.open_files,
            resource.RLIMIT_CORE: 0,
        }


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: its exit code, or the reason why it was stopped (then `code` is None)."""

    code: int | None
    stopped: str = ""


class Sandbox:
    """A bubblewrap that works on this machine; `find` makes one."""

    def __init__(self, program: str, limits: SandboxLimits) -> None:
        self._program = program
        self.limits = limits

    @classmethod
    async def find(cls, *, program: str = "bwrap", limits: SandboxLimits | None = None) -> tuple[Self | None, str]:
        """A sandbox in which `true` has really run, or None and one sentence why there is none."""
        if sys.platform != "linux":
            return None, "The shell tool is off: its sandbox, bubblewrap, exists only on Linux."
        found = shutil.which(program)
        if found is None:
            return (
                None,
                "The shell tool is off: bubblewrap is not installed (Debian, Ubuntu: apt-get install bubblewrap).",
            )
        sandbox = cls(found, limits or SandboxLimits())
        printed: list[bytes] = []
        with tempfile.TemporaryDirectory() as folder:
            try:
                ended = await sandbox.run("true", Path(folder), timeout_s=_START_S, sink=printed.append)
            except SandboxUnusable as error:
                return None, f"The shell tool is off: {error}"
        if ended.code == 0:
            return sandbox, ""
        why = b"".join(printed).decode(errors="replace").strip() or ended.stopped or f"exit code {ended.code}"
        return None, f"The shell tool is off: bubblewrap does not work here: {why[:300]}"

    async def run(self, command: str, workspace: Path, *, timeout_s: float, sink: Callable[[bytes], None]) -> Ended:
        """Run `command` by a shell in `workspace`; `sink` gets stdout and stderr, interleaved as they come.

        When this returns or raises, also by cancellation, nothing of the command is left. SandboxUnusable when it
        could not be started. A reason to stop it (time, memory, processes, output) is in the result.
        """
        start = asyncio.get_running_loop().create_task(
            SandboxProcess.start(self._program, self._arguments(command, workspace), processes=self.limits.processes)
        )
        try:
            process = await finished(start)
        except asyncio.CancelledError:
            if start.done() and not start.cancelled() and start.exception() is None:
                await _end(start.result())
            raise
        try:
            return await self._watched(process, timeout_s, sink)
        finally:
            await _end(process)

    async def _watched(self, process: SandboxProcess, timeout_s: float, sink: Callable[[bytes], None]) -> Ended:
        loop = asyncio.get_running_loop()
        excess: asyncio.Future[str] = loop.create_future()
        printed = 0

        def take(data: bytes) -> None:
            nonlocal printed
            printed += len(data)
            sink(data)
            if printed > self.limits.output:
                process.stop_reading()
                if not excess.done():
                    excess.set_result(f"it printed more than {self.limits.output:,} bytes")

        process.go(self.limits.for_each_process, take)
        exited = loop.create_task(process.ended())
        watch = loop.create_task(self._watch(process, excess))
        try:
            await asyncio.wait({exited, excess}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            timed_out = not exited.done() and not excess.done()
            # What it printed last is still in the pipe, and what it left in the background may hold that open.
            await process.kill()
            await process.drain()
        finally:
            watch.cancel()
            exited.cancel()
            await finished(asyncio.wait({watch, exited}))
        if excess.done():
            return Ended(None, excess.result())
        return Ended(None, f"it did not finish within {timeout_s:g} s") if timed_out else Ended(exited.result())

    async def _watch(self, process: SandboxProcess, excess: "asyncio.Future[str]") -> None:
        """Hold the limits that the kernel has only per process; also the second line behind a control group."""
        while not excess.done():
            await asyncio.sleep(_WATCH_S)
            why = await asyncio.to_thread(self._excess, process)
            if why and not excess.done():
                excess.set_result(why)

    def _excess(self, process: SandboxProcess) -> str:
        processes = process.processes()
        if len(processes) > self.limits.processes:
            return f"it had more than {self.limits.processes} processes"
        if process.memory(processes) > self.limits.memory:
            return f"it used more than {self.limits.memory // 2**20:,} MiB of memory"
        return ""

    def _arguments(self, command: str, workspace: Path) -> list[str]:
        size = str(self.limits.scratch)
        system: list[str] = []
        for path in _SYSTEM:
            if os.path.islink(path):
                system += ["--symlink", os.readlink(path), path]
            else:
                system += ["--ro-bind-try", path, path]
        for path in _ETC:
            system += ["--ro-bind-try", path, path]
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        return [
            *("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"),
            *("--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox"),
            *("--uid", "1000", "--gid", "1000"),
            *("--setenv", "PATH", _PATH, "--setenv", "HOME", MOUNT, "--setenv", "TMPDIR", _SCRATCH),
            *("--setenv", "LANG", "C.UTF-8", "--setenv", "TERM", "dumb", "--setenv", "USER", "sandbox"),
            *system,
            # Read-only: a sandbox that root started may write /proc/sys by its user id alone, without any capability.
            *("--proc", "/proc", "--remount-ro", "/proc"),
            *("--dev", "/dev", "--size", size, "--tmpfs", _SHARED, "--remount-ro", "/dev"),
            *("--size", size, "--tmpfs", _SCRATCH, "--bind", str(workspace), MOUNT),
            # Else the root, a tmpfs as well, would take files without limit.
            *("--remount-ro", "/", "--chdir", MOUNT, "--", shell, "-c", "--", command),
        ]


async def _end(process: SandboxProcess) -> None:
    try:
        await process.kill()
    finally:
        process.close()
