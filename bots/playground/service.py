"""The service as a child process: start it, know when it is ready, notice when it dies, stop it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

_SERVE = (sys.executable, "-m", "bots", "serve")
_READY_WITHIN_S = 60.0
_STOP_WITHIN_S = 15.0
_TAIL_LINES = 20


class ServiceDiedError(RuntimeError):
    """The service ended before it was ready; the text carries its last output."""


class ServiceProcess:
    """`python -m bots serve` (or another command, for tests) in a given environment; its output goes to a log file.

    Contract: one owner; `start` may be called again after the process has ended; `stop` is safe at any time.
    """

    def __init__(self, *, env: Mapping[str, str], port: int, log: Path, command: Sequence[str] = _SERVE) -> None:
        self.log = log
        self._command = command
        self._env = env
        self._ready_url = f"http://127.0.0.1:{port}/readyz"
        self._process: asyncio.subprocess.Process | None = None
        self._started = 0.0

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process and running else None

    async def start(self) -> None:
        """Start it, at most once a second."""
        since = time.monotonic() - self._started
        if since < 1:
            await asyncio.sleep(1 - since)
        self._started = time.monotonic()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            # A session of its own: Ctrl-C in the terminal reaches the playground only, which then asks it to drain.
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env=dict(self._env),
                # Where no `.env` lies: all that the service is to know stands in `env`.
                cwd=self.log.parent,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    async def ready(self) -> None:
        """Return when `/readyz` answers 200. Raises ServiceDiedError, also when it takes too long."""
        deadline = time.monotonic() + _READY_WITHIN_S
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as http:
            while time.monotonic() < deadline:
                if self.pid is None:
                    raise ServiceDiedError(f"The service ended ({self.exit_code()}). {self.last_output()}")
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with http.get(self._ready_url) as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.1)
        raise ServiceDiedError(f"The service was not ready after {_READY_WITHIN_S:.0f} s. {self.last_output()}")

    async def wait(self) -> None:
        """Return when the process has ended."""
        if self._process is not None:
            await self._process.wait()

    async def stop(self, hurry: asyncio.Event | None = None) -> None:
        """SIGTERM, so that it drains, and a second one once `hurry` is set; SIGKILL when it takes too long.

        SIGKILL also when the caller is cancelled meanwhile.
        """
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        hurrying = asyncio.get_running_loop().create_task(_terminate_again(process, hurry))
        try:
            async with asyncio.timeout(_STOP_WITHIN_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        except asyncio.CancelledError:
            process.kill()
            raise
        finally:
            hurrying.cancel()

    def exit_code(self) -> str:
        """How it ended, in words."""
        code = self._process.returncode if self._process else None
        if code is not None and code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit code {code}"

    def last_output(self) -> str:
        """The end of its log."""
        lines = self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:] if self.log.exists() else []
        return "Its last output:\n" + "\n".join(f"  {line}" for line in lines) if lines else "It said nothing."


async def _terminate_again(process: asyncio.subprocess.Process, hurry: asyncio.Event | None) -> None:
    if hurry is None:
        return
    await hurry.wait()
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
