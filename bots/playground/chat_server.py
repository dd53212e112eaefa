"""The seam between the control API and a platform's stand-in. A new platform is one more class with these members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from bots.playground.faults import Fault

# The vendors' JSON and ours: checked by value where it matters, shapeless for the type checker.
JsonObject: TypeAlias = dict[str, Any]


class ControlError(Exception):
    """A request that cannot be served; the text says what to do. `status` is its HTTP status."""

    status = 400


class UnknownNameError(ControlError):
    """A chat, user, message or button that does not exist; lists those that do."""

    status = 404


@dataclass(frozen=True, slots=True)
class ChatInfo:
    """A chat as the page lists it. `members` are the names of the people in it, without the bot."""

    name: str
    title: str
    kind: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UserInfo:
    """A person whom the page can be."""

    name: str
    title: str


class ChatServer(Protocol):
    """A platform's stand-in, driven as its people would drive it.

    Contract: unknown names raise UnknownNameError, impossible wishes ControlError; nothing waits for the bot.
    """

    @property
    def platform(self) -> str:
        """The platform's name in the control API."""
        ...

    @property
    def version(self) -> int:
        """Grows with every change that a person could see."""
        ...

    def chats(self) -> tuple[ChatInfo, ...]:
        """Every chat, in the order in which the page shows them."""
        ...

    def users(self) -> tuple[UserInfo, ...]:
        """Every person."""
        ...

    def say(self, chat: str, user: str, text: str, *, thread: str | None = None, mention: bool = False) -> str:
        """Write a message; returns its id."""
        ...

    def recall(self, chat: str, message: str, *, user: str | None = None) -> None:
        """Delete a message, as its author (checked when `user` is given)."""
        ...

    async def click(self, chat: str, message: str, action: str, user: str) -> None:
        """Press a button and tell the app; returns when the app has answered or its time is up."""
        ...

    def messages(self, chat: str) -> list[JsonObject]:
        """All messages of a chat, in the form of the control API."""
        ...

    def view(self, chat: str, viewer: str) -> list[JsonObject]:
        """The messages that `viewer` sees, with the display trees that the page draws."""
        ...

    def add_fault(self, fault: Fault) -> None:
        """Order a fault; an unknown method is a ControlError."""
        ...

    def stats(self) -> JsonObject:
        """Counts of the calls that the app made, and what it did wrong."""
        ...
