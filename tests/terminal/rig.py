"""`python -m harness` as a person runs it: a process of its own, in an empty folder, with a clean environment."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.providers.script import Script
from harness.testing.model_server import RequestRecord, ScriptedModelServer
from harness.testing.wire import WireRequest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 15.0


def clean_env(**extra: str) -> dict[str, str]:
    """What a child may know: nothing of the developer's own keys and settings."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **extra}


def with_model(server: ScriptedModelServer, **extra: str) -> dict[str, str]:
    return clean_env(OPENAI_API_KEY="sk-local", OPENAI_BASE_URL=server.base_url, OPENAI_MODEL="local-model", **extra)


def in_turn(*scripts: Script) -> Callable[[WireRequest], Script]:
    """An answer for each request, first in first out."""
    left = list(scripts)
    return lambda _request: left.pop(0)


@dataclass
class Child:
    """The running command and what it has written so far."""

    process: asyncio.subprocess.Process
    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    readers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def errors(self) -> str:
        return self.err.decode()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Every whole line so far, as JSON."""
        return [json.loads(line) for line in self.out.decode().split("\n")[:-1]]

    async def end(self) -> int:
        """Wait for the end; whatever happened, nobody is shown a traceback."""
        code = await asyncio.wait_for(self.process.wait(), PATIENCE_S)
        await asyncio.gather(*self.readers)
        assert "Traceback" not in self.errors, self.errors
        assert "Exception ignored" not in self.errors, self.errors
        return code

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


@contextlib.asynccontextmanager
async def harness(
    folder: Path,
    *args: str | bytes,
    env: Mapping[str, str],
    stdin: bytes | None = None,
    stdout: int = asyncio.subprocess.PIPE,
) -> AsyncIterator[Child]:
    """Start the command; on leaving it is gone, whatever the test did."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "harness",
        *args,
        env=dict(env),
        cwd=folder,  # an empty folder, so that no .env is read
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )
    child = Child(process)
    if stdin is not None:
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.close()
    for stream, kept in ((process.stdout, child.out), (process.stderr, child.err)):
        if stream is not None:
            child.readers.append(asyncio.create_task(_collect(stream, kept)))
    try:
        yield child
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await asyncio.gather(*child.readers)


async def _collect(stream: asyncio.StreamReader, kept: bytearray) -> None:
    while data := await stream.read(4096):
        kept.extend(data)


async def until(look: Callable[[], Any], what: str, child: Child) -> Any:
    """Wait until `look` gives something true, and return that."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := look():
            return found
        assert child.process.returncode is None or not child.readers, f"ended before {what}: {child.errors}"
        await asyncio.sleep(0.005)
    raise AssertionError(f"waited for {what}; out: {child.out!r} err: {child.err!r}")


async def asked(server: ScriptedModelServer, child: Child) -> RequestRecord:
    """Wait for the first request and return it."""
    await until(lambda: server.requests, "the request", child)
    return server.requests[0]


async def over(record: RequestRecord) -> None:
    """Wait until the model's server has seen the end of the exchange."""
    await asyncio.wait_for(record.done.wait(), PATIENCE_S)


def events(child: Child) -> list[dict[str, Any]]:
    """The lines of `--json`, checked for what holds always: numbered without a gap, one `run:end`, which is last."""
    lines = child.lines
    assert child.out.endswith(b"\n")
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert len({line["task_id"] for line in lines}) == 1
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    assert [line["kind"] for line in lines].count("run:end") == 1
    assert lines[-1]["kind"] == "run:end"
    return lines


def deltas(lines: Iterable[Mapping[str, Any]]) -> str:
    return "".join(line["text"] for line in lines if line["kind"] == "model:delta")
