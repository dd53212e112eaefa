"""Short messages of the gateway, posted behind the event's back: the platform is answered at once."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from bots.errors import PlatformError, RateLimited
from bots.platform import ChatPlatform, ReplyAddress
from harness.task_registry import TaskRegistry

log = structlog.stdlib.get_logger(__name__)

NOTICE_S: Final = 60.0
"""How long a notice may wait until it fits the platform's rate limits."""


class Notices:
    """Says things, to everybody or to one person. A notice that cannot be posted is left out."""

    def __init__(self, platforms: Mapping[str, ChatPlatform]) -> None:
        self._platforms = platforms
        self._tasks = TaskRegistry()

    def __len__(self) -> int:
        return len(self._tasks)

    def say(self, address: ReplyAddress, text: str) -> None:
        """Tell everybody in the chat."""
        platform = self._platforms[address.platform]
        self._tasks.start(_told(lambda: platform.say(address, text)), "notice")

    def whisper(self, address: ReplyAddress, text: str) -> None:
        """Tell `address.user` alone."""
        platform = self._platforms[address.platform]
        self._tasks.start(_told(lambda: platform.say_privately(address, text)), "private notice")

    async def aclose(self) -> None:
        """Drop what has not been posted yet."""
        await self._tasks.aclose()


async def _told(write: Callable[[], Awaitable[None]]) -> None:
    """Post a notice, waiting for its turn in the rate limits."""
    try:
        async with asyncio.timeout(NOTICE_S):
            while True:
                try:
                    await write()
                except RateLimited as error:
                    await asyncio.sleep(error.seconds)
                else:
                    return
    except TimeoutError:
        log.warning("a notice did not fit the rate limits and was left out")
    except PlatformError as error:
        log.warning("a notice could not be posted", code=error.code, reason=str(error))
