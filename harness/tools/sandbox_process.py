"""The process behind one run in the sandbox: started behind a gate, held by a pidfd, and gone when `kill` returns.

The sandbox is a pid namespace. Its first process is held by a pidfd before the command begins; killing that process
makes the kernel kill everything in the namespace, whatever it ignores and however often it has forked, and the pidfd
becomes readable only when all of it is gone.
"""

import asyncio
import json
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Final, Self

import structlog

from harness.tools.process_limit import ProcessLimit
from harness.uninterrupted import finished

log = structlog.stdlib.get_logger(__name__)

_CHUNK: Final = 2**16
_START_S: Final = 10.0
_KILL_S: Final = 60.0
"""The kernel may need seconds for thousands of processes; only what it cannot kill at all takes longer than this."""
_NICE: Final = 10


class SandboxUnusable(Exception):
    """The sandbox did not start. The message is for the operator."""


class SandboxProcess:
    """Everything that runs in one sandbox."""

    def __init__(self, process: asyncio.subprocess.Process, init: int, gate: int, output: int) -> None:
        self._process = process
        self._init = init
        # The sandbox's own /proc, which shows its processes and no others.
        self._inside = f"/proc/{init}/root/proc"
        self._gate = gate
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._drained: asyncio.Future[None] = self._loop.create_future()
        self._closed = False
        self._group: ProcessLimit | None = None
        self._pidfd = os.pidfd_open(init)
        self._loop.add_reader(self._pidfd, self._on_gone)

    @classmethod
    async def start(cls, program: str, arguments: Sequence[str], *, processes: int) -> Self:
        """Start bubblewrap and wait until the sandbox stands; the command waits for `go`. SandboxUnusable if it fails.

        `processes`: how many there may be, where only a control group can hold that.

        Not to be canceled in the middle: what had been started by then would belong to nobody.
        """
        with ExitStack() as ours, ExitStack() as theirs:
            info, info_there = _pipe(ours, theirs)
            output, output_there = _pipe(ours, theirs)
            gate_there, gate = _pipe(theirs, ours)
            process = await asyncio.create_subprocess_exec(
                program,
                *("--info-fd", str(info_there), "--block-fd", str(gate_there)),
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output_there,
                stderr=output_there,
                pass_fds=(info_there, gate_there),
                # --clearenv alone is not enough: the command can read the environment of bubblewrap in /proc/1/environ.
                env={"PATH": "/usr/bin:/bin"},
                cwd="/",
                # Ctrl-C in a terminal goes to its foreground group: stopping a turn is ours to do, in order.
                start_new_session=True,
            )
            theirs.close()
            os.set_blocking(output, False)
            try:
                told = await asyncio.wait_for(_whole(info), _START_S)
                made = cls(process, json.loads(told)["child-pid"], gate, output)
            except (TimeoutError, ValueError, KeyError, OSError) as error:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                said = b""
                with suppress(BlockingIOError):
                    said = os.read(output, _CHUNK)
                why = said.decode(errors="replace").strip()[:300]
                raise SandboxUnusable(why or f"bubblewrap did not start: {type(error).__name__}") from error
            os.close(info)
            ours.pop_all()
            made._group = await asyncio.to_thread(ProcessLimit.around, made._init, processes)
            return made

    def go(self, limits: Mapping[int, int], sink: Callable[[bytes], None]) -> None:
        """Let the command begin; `sink` gets what it prints. `limits`: resource limits, kind to value.

        They are set on the waiting process, which all others inherit, so nothing runs without them.
        """
        try:
            for kind, wanted in limits.items():
                hard = resource.prlimit(self._init, kind)[1]
                value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
                resource.prlimit(self._init, kind, (value, value))
            # So that this process, which answers people and watches the sandbox, gets its turn beside a busy one.
            os.setpriority(os.PRIO_PROCESS, self._init, _NICE)
        except OSError as error:
            raise SandboxUnusable(f"the limits cannot be set: {error.strerror}") from error
        self._loop.add_reader(self._output, self._on_output, sink)
        with suppress(BrokenPipeError):
            os.write(self._gate, b"1")

    async def ended(self) -> int:
        """The exit code, once the command has ended by itself (above 128: by a signal); its children may still run."""
        return await self._process.wait()

    async def drain(self) -> None:
        """Wait for the last of the output; only after `kill`, before that somebody may hold the pipe open for ever."""
        await asyncio.wait({self._drained}, timeout=_KILL_S)

    def stop_reading(self) -> None:
        """Take no more output."""
        self._loop.remove_reader(self._output)
        if not self._drained.done():
            self._drained.set_result(None)

    def processes(self) -> list[str]:
        """The ids, inside, of the processes that there are. Blocks briefly."""
        # Until the sandbox has its own root, this is still the /proc of the host: there, and only there, we are `self`.
        if os.path.exists(f"{self._inside}/self/stat"):
            return []
        with suppress(OSError):
            return [name for name in os.listdir(self._inside) if name.isdecimal()]
        return []

    def memory(self, processes: list[str]) -> int:
        """How many bytes of memory these processes have for themselves. Blocks briefly."""
        pages = 0
        for name in processes:
            with suppress(OSError, ValueError), open(f"{self._inside}/{name}/statm", "rb") as statm:
                _, resident, shared, *_ = map(int, statm.read().split())
                pages += resident - shared
        return pages * resource.getpagesize()

    async def kill(self) -> None:
        """Kill whatever is left of it; when this returns it is gone, also when the caller is canceled meanwhile."""
        if not self._gone.done():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            await finished(asyncio.wait({self._gone}, timeout=_KILL_S))
        if not self._gone.done():
            # In the hands of the kernel (a dead disk, say): it dies when the kernel lets go of it.
            log.error("a sandbox does not die", pid=self._init)
            with suppress(ProcessLookupError):
                self._process.kill()
        await finished(self._process.wait())
        if (group := self._group) is not None:
            self._group = None
            await finished(asyncio.to_thread(group.remove))

    def close(self) -> None:
        """Give the descriptors back, after `kill`."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._pidfd)
            self._loop.remove_reader(self._output)
            for fd in (self._pidfd, self._gate, self._output):
                os.close(fd)

    def _on_gone(self) -> None:
        self._loop.remove_reader(self._pidfd)
        if not self._gone.done():
            self._gone.set_result(None)

    def _on_output(self, sink: Callable[[bytes], None]) -> None:
        try:
            data = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return
        if data:
            sink(data)
        else:
            self.stop_reading()


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    """A pipe whose ends close with the two stacks."""
    read, write = os.pipe()
    reader.callback(_close, read)
    writer.callback(_close, write)
    return read, write


def _close(fd: int) -> None:
    os.close(fd)


async def _whole(fd: int) -> bytes:
    """What comes until the other side closes."""
    loop = asyncio.get_running_loop()
    end: asyncio.Future[None] = loop.create_future()
    pieces: list[bytes] = []

    def ready() -> None:
        if piece := os.read(fd, _CHUNK):
            pieces.append(piece)
        elif not end.done():
            end.set_result(None)

    loop.add_reader(fd, ready)
    try:
        await end
    finally:
        loop.remove_reader(fd)
    return b"".join(pieces)
