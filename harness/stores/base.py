"""What the runtime asks of a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.messages import Message


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation as it was when loaded. `version` grows with every append; `fence` is the last writer's."""

    key: str
    messages: tuple[Message, ...] = ()
    version: int = 0
    fence: int = 0


class SessionStore(Protocol):
    """Conversations by key.

    Contract: what `append` was given is durable when it returns, whole or not at all. A loaded session never changes.
    """

    async def load(self, key: str) -> Session:
        """The conversation; an unknown key gives an empty one."""
        ...

    async def append(self, session: Session, messages: Sequence[Message], *, fence: int = 0) -> Session:
        """Add messages to the session as it was loaded and return the new one.

        Raises `VersionConflict` when somebody else appended since, `StaleFence` when a writer with a higher fence did.
        """
        ...

    async def clear(self, key: str) -> None:
        """Forget the conversation. Writers that still hold the old one get `VersionConflict`."""
        ...
