"""`python -m harness` at a terminal: a child on a terminal of its own, its keyboard, and what its screen shows."""

import asyncio
import codecs
import contextlib
import fcntl
import os
import struct
import sys
import termios
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from tests.terminal.rig import PATIENCE_S
from tests.terminal.screen import Screen

CTRL_C, CTRL_D, ENTER, ALT_ENTER, UP, TAB = "\x03", "\x04", "\r", "\x1b\r", "\x1b[A", "\t"
# Makes the terminal the child's own, so that Ctrl-C is a signal to it, and becomes the command.
_LAUNCH = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Terminal:
    def __init__(self, process: asyncio.subprocess.Process, master: int, columns: int, lines: int) -> None:
        self.process = process
        self.screen = Screen(columns, lines)
        self.raw = ""
        self._master = master
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        asyncio.get_running_loop().add_reader(master, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
        text = self._decoder.decode(data, final=not data)
        self.raw += text
        self.screen.feed(text)

    @property
    def text(self) -> str:
        return self.screen.text

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode(errors="surrogateescape"))

    async def until(self, look: Callable[[], Any] | str, what: str = "") -> None:
        """Wait until the condition holds, or the text is on the screen."""
        seen = look if callable(look) else (lambda: look in self.text)
        end = time.monotonic() + PATIENCE_S
        while not seen():
            assert time.monotonic() < end, f"waited for {what or look!r}; the screen:\n{self.text}\n{self.raw[-600:]!r}"
            await asyncio.sleep(0.005)

    async def prompts(self, count: int) -> None:
        """Wait until the prompt has been there so often; a line that is typed at it counts as well."""
        await self.until(lambda: self._prompts >= count, f"prompt {count}")

    @property
    def _prompts(self) -> int:
        return sum(line.startswith("you>") for line in self.text.split("\n"))

    def send(self, text: str) -> None:
        """Type a line."""
        self.type(text + ENTER)

    async def end(self) -> int:
        code = await asyncio.wait_for(self.process.wait(), PATIENCE_S)
        await asyncio.sleep(0.02)
        assert "Traceback" not in self.text, self.text
        return code


@contextlib.asynccontextmanager
async def at_terminal(
    folder: Path,
    *args: str,
    env: Mapping[str, str],
    columns: int = 80,
    lines: int = 30,
    program: tuple[str, ...] = ("-m", "harness"),
    stdout: int | None = None,
) -> AsyncIterator[Terminal]:
    """Start the command; on leaving it is gone, whatever the test did. `stdout`: somewhere else than the terminal."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-ISc", _LAUNCH, sys.executable, *program, *args,
        env={"TERM": "xterm-256color", "HOME": str(folder), **env}, cwd=folder, stdin=slave,
        stdout=slave if stdout is None else stdout, stderr=slave, start_new_session=True,
    )  # fmt: skip
    terminal = Terminal(process, master, columns, lines)
    try:
        yield terminal
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(master)
        os.close(master)
        os.close(slave)
