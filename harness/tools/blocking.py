"""Blocking tools: each call runs in a process of its own, which can be killed at any moment with all that it started.

A thread cannot be stopped, so a function that computes or sleeps must not run in one. The process is a fresh
interpreter, not a fork: a copy of a process with threads and an event loop may hold locks that nobody will release.
It finds the function by the name of its module, checks the arguments once more, and answers with text. Both ways only
JSON is sent, so nothing has to be picklable. Needs a POSIX system.
"""

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import structlog

from harness.errors import ToolError
from harness.messages import JsonObject
from harness.tools.output import Output
from harness.uninterrupted import finished

log = structlog.stdlib.get_logger(__name__)

_CHILD: Final = str(Path(__file__).with_name("blocking_child.py"))
_MAINS: Final = ("__main__", "__mp_main__")
"""The names of the script that was started: here, and in the process of a call."""
_CHUNK: Final = 2**16
_PRINTED_CHARS: Final = 1000


class RemoteTraceback(Exception):
    """For the log: what the interpreter of the call said about an exception there."""


def check_blocking(function: Callable[..., Any], *, has_context: bool) -> None:
    """TypeError that says why the function cannot run in a process of its own."""
    name = getattr(function, "__name__", repr(function))
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"tool {name}: a blocking tool is a plain `def`; an `async def` needs no process of its own")
    if not inspect.isfunction(function) or function.__qualname__ != function.__name__ or name == "<lambda>":
        raise TypeError(
            f"tool {name}: a blocking tool must be a function at the top level of a module, "
            "because its process finds it there by name"
        )
    if has_context:
        raise TypeError(
            f"tool {name}: a blocking tool cannot take a ToolContext, which does not leave this process; "
            "give it what it needs as arguments"
        )
    if function.__module__ in _MAINS and not any(_main()):
        raise TypeError(
            f"tool {name}: a blocking tool must be defined in a file; "
            "its process cannot find what was typed or piped into the interpreter"
        )


async def call_in_process(function: Callable[..., Any], arguments: JsonObject) -> str:
    """Call the function in a new process and give its result as text.

    Raises ToolError for whatever went wrong there: arguments, an exception, the end of the process. When this returns
    or raises, also by cancellation, the process has ended and its group is killed; only what has left the group by
    itself (`setsid`) lives on.
    """
    name = function.__name__
    request = json.dumps({**_address(function), "arguments": dict(arguments)}).encode() + b"\n"
    process = _Process(request)
    try:
        await asyncio.wait({process.ended, process.answered}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        process.kill()
        try:
            await finished(asyncio.wait({process.ended}))
        finally:
            process.close()
    if process.answered.done():
        return _text_of(name, json.loads(process.answered.result()))
    end = process.ended.result()
    if isinstance(end, Exception):
        raise ToolError(f"The tool's process could not be started: {end}")
    how = f"was killed by {_signal_name(-end)}" if end < 0 else f"ended with exit code {end}"
    printed = f" It had printed:\n{process.output.text}" if process.output.total_bytes else ""
    raise ToolError(f"The tool's process {how} before it gave a result.{printed}")


def _address(function: Callable[..., Any]) -> dict[str, object]:
    """Where the other process finds the function. ToolError when it is not what stands under its name."""
    module, name = sys.modules.get(function.__module__), function.__name__
    found = getattr(module, name, None)
    if getattr(found, "function", found) is not function:
        raise ToolError(
            f"The tool cannot run: {function.__module__}.{name} is something else than the tool's function."
        )
    module_name, file = _main() if function.__module__ in _MAINS else (function.__module__, "")
    # "" is the current folder of the moment, which need not be the one that it was at the start.
    path = [entry or os.getcwd() for entry in sys.path]
    return {"path": path, "argv": sys.argv, "module": module_name, "file": file, "name": name}


def _main() -> tuple[str, str]:
    """The script that was started: the name of a module (`python -m`) or else a file; both empty when there is none."""
    main = sys.modules["__main__"]
    # A folder or archive that was started has the name "__main__", which is something else in every process.
    if main.__spec__ is not None and main.__spec__.name != "__main__":
        return main.__spec__.name, ""
    file = getattr(main, "__file__", None)
    return "", os.path.abspath(file) if file else ""


def _text_of(name: str, answer: dict[str, str]) -> str:
    match answer:
        case {"result": text}:
            return text
        case {"refused": text}:
            raise ToolError(text)
        case {"failed": text, "traceback": traceback}:
            log.error("tool failed", tool=name, exc_info=RemoteTraceback(f"\n{traceback}"))
            raise ToolError(text)
        case _:
            raise AssertionError(f"the process of a call answers in one of three forms, not {answer!r}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _Process:
    """One process with its group. `answered`: the line it sent; `ended`: its exit code, or why it did not start.

    A thread starts it and waits for it, never the event loop: starting holds a loop up for milliseconds, under uvloop
    for tens of them, and each loop has another way to learn of a process's end.
    """

    def __init__(self, request: bytes) -> None:
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[int | Exception] = self._loop.create_future()
        self.answered: asyncio.Future[bytes] = self._loop.create_future()
        self.output = Output(head=0, tail=_PRINTED_CHARS)
        self._answer = bytearray()
        self._lock = threading.Lock()
        self._unreaped: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._pipes = _two_pipes()
        for fd, take in ((self._pipes[0], self._take_answer), (self._pipes[2], self.output.feed)):
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self._read, fd, take)
        try:
            threading.Thread(target=self._watch, args=(request,), name="blocking tool", daemon=True).start()
        except RuntimeError as error:  # no more threads
            self._close_their_ends()
            self.ended.set_result(error)

    def kill(self) -> None:
        """Kill the whole group, now or as soon as it has started. `ended` follows."""
        with self._lock:
            self._killed = True
            if self._unreaped is not None:
                _kill_group(self._unreaped.pid)

    def close(self) -> None:
        """Take what is still in the pipes and give them back, after the end."""
        for fd, take in ((self._pipes[0], self._take_answer), (self._pipes[2], self.output.feed)):
            # Counted, because somebody who left the group may write for ever.
            for _ in range(16):
                if not self._read(fd, take):
                    break
            self._loop.remove_reader(fd)
            os.close(fd)

    def _read(self, fd: int, take: Callable[[bytes], None]) -> bool:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if data:
            take(data)
        else:
            self._loop.remove_reader(fd)
        return bool(data)

    def _take_answer(self, data: bytes) -> None:
        self._answer += data
        if data.endswith(b"\n") and not self.answered.done():
            self.answered.set_result(bytes(self._answer))

    def _watch(self, request: bytes) -> None:
        """In the thread: the whole life of the process."""
        try:
            process = self._start()
        except Exception as error:
            self._post(error)
            return
        with self._lock:
            self._unreaped = process
            if self._killed:
                _kill_group(process.pid)
        assert process.stdin is not None
        # Left open to the end: when this process dies, however it does, the other side notices by it.
        _send(process.stdin, request)
        _wait_for_end(process)
        with self._lock:
            # Before the process is reaped: until then no other group can have its number.
            _kill_group(process.pid)
            self._unreaped = None
            code = process.wait()
        with suppress(OSError):
            process.stdin.close()
        self._post(code)

    def _start(self) -> "subprocess.Popen[bytes]":
        _, answer, _, output = self._pipes
        try:
            return subprocess.Popen(  # noqa: S603 - ourselves
                # -P: not the folder of the child's file, whose modules have names that others have too.
                [sys.executable, "-P", _CHILD, str(answer)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(answer,),
                start_new_session=True,
            )
        finally:
            self._close_their_ends()

    def _close_their_ends(self) -> None:
        os.close(self._pipes[1])
        os.close(self._pipes[3])

    def _post(self, end: int | Exception) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self.ended.set_result, end)


def _two_pipes() -> tuple[int, int, int, int]:
    """Reading and writing end of the first, then of the second; none when there are no descriptors for both."""
    first = os.pipe()
    try:
        return (*first, *os.pipe())
    except OSError:
        for fd in first:
            os.close(fd)
        raise


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
        os.killpg(pid, signal.SIGKILL)


def _send(stdin: IO[bytes], request: bytes) -> None:
    with suppress(BrokenPipeError):  # it is dead already
        stdin.write(request)
        stdin.flush()


def _wait_for_end(process: "subprocess.Popen[bytes]") -> None:
    if hasattr(os, "waitid"):  # on macOS from Python 3.13 on
        with suppress(ChildProcessError):  # a program that ignores SIGCHLD: the system reaps at once
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    else:
        process.wait()
