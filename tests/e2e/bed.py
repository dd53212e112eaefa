"""The whole product in one test: the service as a process of its own, against a local Slack and a local model.

Nothing of ours is replaced. The service is reached the vendor's way only: signed HTTP in, Web API out. Times are
injected by settings: the vendor's tiers and our share of them are both scaled, so that seconds become milliseconds.
A test that stops or breaks the service has one of its own (`bed`); the others share one (`tests.e2e.standing`).
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from bots.playground.serving import free_port
from bots.playground.slack.server import SlackServer
from harness.testing.model_server import RequestRecord, ScriptedModelServer

ROOT = Path(__file__).parents[2]
TIER_SCALE = 30.0
"""The stand-in allows so many times the vendor's tiers .."""
RATE_BUDGET = 28.0
"""..and the service takes 93 % of that: about one edit in 50 ms."""
STATES = ("Thinking", "Running", "Queued", "Done", "Canceled", "Failed", "Timed out", "Interrupted")


@dataclass
class ServiceProcess:
    """`bots serve` as a child process; bound to no event loop, so that it may stand through many tests.

    `log_from`: where in its log this test begins.
    """

    env: Mapping[str, str]
    port: int
    log_path: Path
    process: subprocess.Popen[bytes] | None = None
    log_from: int = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_bytes()[self.log_from :].decode(errors="replace") if self.log_path.exists() else ""

    async def start(self, *, ready: bool = True) -> None:
        with self.log_path.open("ab") as out:
            self.process = subprocess.Popen(  # noqa: ASYNC220 - a process of asyncio's ends with its loop
                [sys.executable, "-m", "bots", "serve"],
                env=dict(self.env),
                cwd=ROOT,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        if ready:
            await self.until_ready()

    async def until_ready(self, seconds: float = 20) -> None:
        async with aiohttp.ClientSession() as http:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                assert self.process is not None
                assert self.process.poll() is None, f"the service ended:\n{self.log}"
                with contextlib.suppress(aiohttp.ClientError):
                    async with http.get(f"{self.base_url}/readyz") as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.02)
        raise AssertionError(f"not ready after {seconds} s:\n{self.log}")

    async def ended(self, seconds: float = 15) -> int:
        """Wait for the end of the process, and give its exit code."""
        assert self.process is not None
        async with asyncio.timeout(seconds):
            while (code := self.process.poll()) is None:
                await asyncio.sleep(0.005)
        return code

    async def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(number)
        try:
            return await self.ended()
        except TimeoutError:
            self.process.kill()
            self.process.wait()
            raise


@dataclass
class Bed:
    """A workspace with people, a model, and the bot between them."""

    slack: SlackServer
    model: ScriptedModelServer
    service: ServiceProcess
    data: Path
    expects_violations: bool = False
    files_before: frozenset[Path] = frozenset()

    def say(self, text: str, *, user: str = "alice", chat: str = "general", thread: str | None = None,
            mention: bool = True) -> str:  # fmt: skip
        return self.slack.say(chat, user, text, thread=thread, mention=mention)

    def bot_messages(self, chat: str = "general", thread: str | None = None) -> list[dict[str, Any]]:
        """What the bot has in a chat, oldest first; with `thread` only what stands below that message."""
        found = [m for m in self.slack.messages(chat) if m["author"] not in ("alice", "bob", "carol")]
        return [dict(m) for m in found if not m["deleted"] and (thread is None or m["thread"] == thread)]

    def texts(self, chat: str = "general", thread: str | None = None) -> list[str]:
        return [str(m["text"]) for m in self.bot_messages(chat, thread)]

    async def card(self, state: str, *, thread: str | None = None, chat: str = "general", nth: int = 0,
                   seconds: float = 15) -> dict[str, Any]:  # fmt: skip
        """Wait until the nth message of the bot there shows this state word, and return it."""

        def look() -> dict[str, Any] | None:
            messages = self.bot_messages(chat, thread)
            if len(messages) > nth and state in str(messages[nth]["text"]).partition("\n")[0]:
                return messages[nth]
            return None

        return await self.until(look, f"card {nth} to show {state!r}", seconds, lambda: self.texts(chat, thread))

    async def until(self, look: Callable[[], Any], what: str, seconds: float = 15,
                    instead: Callable[[], Any] = lambda: "") -> Any:  # fmt: skip
        """Wait until `look` gives something true, and return that."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := look():
                return found
            await asyncio.sleep(0.01)
        raise AssertionError(f"waited {seconds} s for {what}; there is {instead()!r}\n{self.service.log}")

    async def request(self, prompt: str, nth: int = 0, seconds: float = 15) -> RequestRecord:
        """Wait until the model was asked this (the nth time) and return the request."""

        def look() -> RequestRecord | None:
            found = [r for r in self.model.requests if prompt in r.prompt]
            return found[nth] if len(found) > nth else None

        return await self.until(look, f"the model to be asked {prompt!r}", seconds)

    def asked(self) -> list[str]:
        """Every prompt that reached the model, in order."""
        return [request.prompt for request in self.model.requests]

    def workspace_files(self) -> frozenset[Path]:
        """Every file in any workspace, of earlier tests too."""
        return frozenset(path for path in (self.data / "workspaces").rglob("*") if path.is_file())

    def files(self) -> dict[str, str]:
        """What this test has put into workspaces, by name."""
        return {path.name: path.read_text() for path in self.workspace_files() - self.files_before}

    def check(self) -> None:
        """The service has broken no rule of the platform."""
        assert self.expects_violations or self.slack.stats()["violations"] == []


@contextlib.asynccontextmanager
async def bed(tmp_path: Path, *, speed: float = 20.0, settings: Mapping[str, str] | None = None,
              start: bool = True, **slack: Any) -> AsyncIterator[Bed]:  # fmt: skip
    """Start everything; on leaving, stop it and check that the service broke no rule of the platform."""
    port = free_port()
    async with around(port, speed=speed, **slack) as (server, model):
        env = service_env(server, model, port, tmp_path / "data", settings or {})
        everything = Bed(server, model, ServiceProcess(env, port, tmp_path / "service.log"), tmp_path / "data")
        try:
            if start:
                await everything.service.start()
            yield everything
        finally:
            await everything.service.stop()
        everything.check()


@contextlib.asynccontextmanager
async def around(
    port: int, *, speed: float, slack_port: int = 0, model_port: int = 0, **slack: Any
) -> AsyncIterator[tuple[SlackServer, ScriptedModelServer]]:
    """What stands around a service that listens on `port`: the workspace and the model."""
    server = SlackServer(event_urls=(f"http://127.0.0.1:{port}/slack/events",), **{"tier_scale": TIER_SCALE, **slack})
    async with server.serving(port=slack_port), ScriptedModelServer(port=model_port, speed=speed) as model:
        yield server, model


def service_env(
    server: SlackServer, model: ScriptedModelServer, port: int, data: Path, settings: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a service between the two."""
    return {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR", "LANG")},
        "PYTHONDONTWRITEBYTECODE": "1",
        "SLACK_BOT_TOKEN": server.token,
        "SLACK_SIGNING_SECRET": server.signing_secret,
        "SLACK_API_URL": server.api_url,
        "OPENAI_API_KEY": "sk-local-stand-in",
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_MODEL": "scripted",
        "BOTS_PORT": str(port),
        "BOTS_DATA_DIR": str(data),
        "RATE_BUDGET": str(RATE_BUDGET),
        "DRAIN_S": "0",
        **settings,
    }
