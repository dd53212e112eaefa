"""What can arrive from a chat platform, in words of no particular platform.

Every adapter's `parse` turns a raw payload into one of these values; the gateway sees nothing else.
"""

from dataclasses import dataclass
from typing import Literal

ChatKind = Literal["group", "dm"]


@dataclass(frozen=True, slots=True)
class ChatRef:
    """A place to talk. `thread` is the root of the thread that the message belongs to ("" = the chat itself)."""

    platform: str
    tenant: str
    chat: str
    thread: str = ""
    kind: ChatKind = "group"


@dataclass(frozen=True, slots=True)
class UserRef:
    """Somebody who writes or clicks. `external`: from outside the organisation that runs the bot."""

    platform: str
    tenant: str
    user: str
    external: bool = False
    is_bot: bool = False

    @property
    def id(self) -> str:
        """`platform:user`, the form in which the settings may name people."""
        return f"{self.platform}:{self.user}"


@dataclass(frozen=True, slots=True)
class MessageRef:
    """One message: its id is unique in its chat."""

    chat: ChatRef
    message: str


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A person or a bot wrote something.

    `text`: decoded, with the bot's own mention removed and white space at the ends stripped; may be empty.
    `mentions_bot`: the bot itself is named (not @all). `in_thread`: a reply below an older message.
    `sent_at`: Unix seconds by the platform's clock. `dedupe_id`: the same for every delivery of this message.
    `unsupported`: what the message consists of when it is nothing the bot can read ("" = readable).
    """

    ref: MessageRef
    sender: UserRef
    text: str
    mentions_bot: bool
    in_thread: bool
    sent_at: float
    dedupe_id: str
    unsupported: str = ""


@dataclass(frozen=True, slots=True)
class MessageEdited:
    """A person changed the text of a message."""

    ref: MessageRef
    sender: UserRef
    text: str


@dataclass(frozen=True, slots=True)
class MessageRecalled:
    """A message was deleted; the platforms do not reliably say by whom."""

    ref: MessageRef


@dataclass(frozen=True, slots=True)
class ButtonClicked:
    """Somebody pressed a button. `action` is the verb, `value` the opaque id that the button carried."""

    ref: MessageRef
    user: UserRef
    action: str
    value: str
    private_reply: str = ""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The platform's own stop was used."""

    chat: ChatRef
    user: UserRef


@dataclass(frozen=True, slots=True)
class BotRemoved:
    """The bot was thrown out of a chat, or the chat was closed."""

    chat: ChatRef


Inbound = MessageReceived | MessageEdited | MessageRecalled | ButtonClicked | StopRequested | BotRemoved
