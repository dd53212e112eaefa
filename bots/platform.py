"""What the chat side asks of a platform. What a platform answers when it says no is in `bots.errors`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from bots.cards.approval import QuestionView
from bots.cards.ledger import CardBook
from bots.cards.surface import CardSurface
from bots.inbound import ChatRef, UserRef


@dataclass(frozen=True, slots=True)
class ReplyAddress:
    """Where an answer goes. `thread` "" = into the chat itself; `message` is the request that is answered.

    `scope`: the part of the session's key behind the chat, so that a button on the answer can name the session.
    """

    platform: str
    tenant: str
    chat: str
    thread: str
    message: str
    user: str
    scope: str = ""

    def as_mapping(self) -> dict[str, str]:
        """The form in which a task's origin keeps it."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def of(cls, mapping: Mapping[str, str]) -> "ReplyAddress":
        """The inverse of `as_mapping`; KeyError when a field is missing."""
        return cls(**{name: mapping[name] for name in cls.__slots__})


class ChatPlatform(Protocol):
    """One chat platform as the gateway and the cards use it.

    Contract: methods raise `PlatformError` and nothing else for what the platform or the network does.
    """

    @property
    def name(self) -> str:
        """The first part of every chat's key: `slack`, `feishu`."""
        ...

    @property
    def language(self) -> str:
        """`en` or `zh`: what people on this platform expect when nothing else is set."""
        ...

    @property
    def is_ready(self) -> bool:
        """True once the bot knows who it is and can be reached."""
        ...

    def card(self, address: ReplyAddress, task_id: str, language: str, *, book: CardBook | None = None) -> CardSurface:
        """The card of a task: the first `show` posts it, unless an earlier owner of the task has.

        `book`: where its messages are written down; None: nowhere, so nobody finds them again.
        """
        ...

    async def post_question(self, address: ReplyAddress, question: QuestionView, language: str) -> str:
        """Post a question for permission where an answer would go, and give the id of its message.

        `QuestionTooLong` when its arguments cannot be shown whole; then nothing is posted.
        """
        ...

    async def show_question(self, address: ReplyAddress, message: str, question: QuestionView, language: str) -> None:
        """Make the message of a question show how it stands now."""
        ...

    async def find_question(self, address: ReplyAddress, question_id: str) -> str | None:
        """The message of a question whose post did not answer: "" when there is none, None when nobody can say."""
        ...

    async def say(self, address: ReplyAddress, text: str) -> None:
        """Post one short message that everybody in the chat can see."""
        ...

    async def say_privately(self, address: ReplyAddress, text: str) -> None:
        """Tell `address.user` alone, in that chat."""
        ...

    async def speaker_name(self, user: UserRef) -> str:
        """What people call this user; the id when the platform does not say. Cached."""
        ...

    async def delete_reply(self, chat: ChatRef, message: str) -> None:
        """Delete one of the bot's own messages; a message that is gone already is a success."""
        ...
