"""Services that stand through many tests: starting one costs more than most tests that talk to it.

Each test has a workspace and a model of its own, new and empty, on the ports that its service was started with. What a
service still knows of earlier tests is about messages that nobody will send again: timestamps are never the same. Only
direct messages are one conversation for ever; a test that is about their memory has a service of its own.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bots.playground.serving import free_port
from tests.e2e.bed import Bed, ServiceProcess, around, service_env

HURRY = 1000.0
"""The pace at which what a test has left running comes to its end."""
STILL_S = 0.05
"""Nothing more may happen for so long: then it is over."""


@dataclass
class Stand:
    """One service and the ports that are kept for what stands around it."""

    folder: Path
    slack: socket.socket
    model: socket.socket
    port: int
    service: ServiceProcess | None = None

    def close_ports(self) -> None:
        self.slack.close()
        self.model.close()


class Standing:
    """The services of one worker, one for each set of settings; started when a test first wants it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stands: dict[frozenset[tuple[str, str]], Stand] = {}

    @contextlib.asynccontextmanager
    async def bed(
        self, *, speed: float = 20.0, settings: Mapping[str, str] | None = None, **slack: Any
    ) -> AsyncIterator[Bed]:
        """As `bed`, but on a standing service, which goes when the test fails: the next one then has a new one."""
        key = frozenset((settings or {}).items())
        stand = self._stands.get(key) or self._stands.setdefault(key, self._new_stand())
        ports = {"slack_port": stand.slack.getsockname()[1], "model_port": stand.model.getsockname()[1]}
        async with around(stand.port, speed=speed, **ports, **slack) as (server, model):
            if stand.service is None:
                env = service_env(server, model, stand.port, stand.folder / "data", settings or {})
                stand.service = ServiceProcess(env, stand.port, stand.folder / "service.log")
                await stand.service.start()
            everything = Bed(server, model, stand.service, stand.folder / "data")
            everything.files_before = everything.workspace_files()
            stand.service.log_from = stand.service.log_path.stat().st_size
            try:
                yield everything
                await _finish(everything)
            except BaseException:
                del self._stands[key]
                stand.close_ports()
                await stand.service.stop()
                raise
            everything.check()

    def _new_stand(self) -> Stand:
        folder = self._folder / str(len(list(self._folder.iterdir())))
        folder.mkdir()
        return Stand(folder, _kept_port(), _kept_port(), free_port())

    def close(self) -> None:
        """End all of them."""
        for stand in self._stands.values():
            stand.close_ports()
            if stand.service is not None and stand.service.process is not None:
                stand.service.process.terminate()
                stand.service.process.wait(20)


def _kept_port() -> socket.socket:
    """A port that the system gives to nobody else between two tests: bound, so that only who asks for it gets it."""
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    return keeper


async def _finish(b: Bed) -> None:
    """Let all end that the test has left running, so that nothing of it reaches the next one."""
    b.model.speed = HURRY
    await b.slack.settled()
    version = -1
    while version != b.slack.version:
        version = b.slack.version
        await b.until(lambda: _is_over(b), "what the test began to end", instead=b.texts)
        await asyncio.sleep(STILL_S)


def _is_over(b: Bed) -> bool:
    """No answer is on its way, and nothing is left to click but what starts something new."""
    messages = [message for chat in b.slack.chats() for message in b.bot_messages(chat.name)]
    offered = {button["action"] for message in messages for button in message["buttons"]}
    return offered <= {"retry"} and all(request.done.is_set() for request in b.model.requests)
