"""The workspace: people, channels, messages with every state they ever had. No HTTP, no events."""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from bots.playground.chat_server import JsonObject
from bots.playground.slack import limits

Shape = Literal["live", "tombstone", "gone"]
TOMBSTONE_TEXT = "This message was deleted."


@dataclass(frozen=True, slots=True)
class Person:
    """A member of the workspace, known to the control API by `name`."""

    id: str
    name: str
    real_name: str


@dataclass(frozen=True, slots=True)
class BotIdentity:
    """The app's bot: `user_id` speaks and is mentioned, `bot_id` marks its messages."""

    user_id: str = "U0BT5LOCAL1"
    bot_id: str = "B0BT5LOCAL1"
    app_id: str = "A0APPLOCAL1"
    name: str = "bot"
    real_name: str = "Harness Bot"


@dataclass(frozen=True, slots=True)
class Team:
    """The workspace's own ids."""

    id: str = "T0PLAYGRND1"
    domain: str = "playground"
    name: str = "Playground"


PEOPLE = (
    Person("U0ALICE0001", "alice", "Alice Moreau"),
    Person("U0BOB000001", "bob", "Bob Okafor"),
    Person("U0CAROL0001", "carol", "Carol Lindqvist"),
)


@dataclass(frozen=True, slots=True)
class Version:
    """One state of a message. `edited` = people see "(edited)"; a `gone` one is seen by nobody."""

    at: float
    method: str
    text: str
    blocks: tuple[JsonObject, ...] = ()
    edited_by: str | None = None
    edited_ts: str | None = None
    shape: Shape = "live"

    @property
    def edited(self) -> bool:
        """Whether people see "(edited)"."""
        return self.edited_ts is not None


@dataclass(slots=True)
class Message:
    """A message and its history, oldest state first. `thread_ts` is None for a root."""

    ts: str
    author_id: str
    thread_ts: str | None
    versions: list[Version]
    private_to: str | None = None
    client_msg_id: str | None = None
    metadata: JsonObject | None = None
    reactions: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    @property
    def now(self) -> Version:
        """The state that people see."""
        return self.versions[-1]

    @property
    def live(self) -> bool:
        """Neither deleted nor a tombstone."""
        return self.now.shape == "live"


@dataclass(slots=True)
class Channel:
    """A conversation. `name` is what the control API calls it; `members` are user ids, the bot's among them."""

    id: str
    name: str
    kind: Literal["channel", "im"]
    members: set[str]
    archived: bool = False
    messages: dict[str, Message] = field(default_factory=dict[str, Message])
    # thread root -> (text, clock time when it was set)
    statuses: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])

    def replies(self, root_ts: str) -> list[Message]:
        """The live replies of a thread that everyone sees, oldest first."""
        return [m for m in self.messages.values() if m.thread_ts == root_ts and m.live and m.private_to is None]


@dataclass(frozen=True, slots=True)
class Change:
    """What a write did, for the event that tells the app: the message before and after, and its parent if touched."""

    kind: Literal["posted", "changed", "deleted", "tombstoned"]
    channel: Channel
    message: Message
    before: Version | None = None


class Workspace:
    """All state, and the only writer of it. Every write is one version and one step of `version`."""

    def __init__(self, *, wall: Callable[[], float] = time.time) -> None:
        self.team = Team()
        self.bot = BotIdentity()
        self.people = {person.id: person for person in PEOPLE}
        everyone = {self.bot.user_id, *self.people}
        self.channels: dict[str, Channel] = {}
        self._add_channel(Channel("C0GENERAL01", "general", "channel", everyone))
        for person in PEOPLE[:2]:
            self.open_dm(person)
        self.version = 0
        self._wall = wall
        self._last_ts = 0

    def channel_named(self, name: str) -> Channel | None:
        """By the control API's name."""
        return next((channel for channel in self.channels.values() if channel.name == name), None)

    def person_named(self, name: str) -> Person | None:
        """By the control API's name."""
        return next((person for person in self.people.values() if person.name == name), None)

    def name_of(self, user_id: str) -> str | None:
        """The short name of a member, the bot included."""
        if user_id == self.bot.user_id:
            return self.bot.name
        person = self.people.get(user_id)
        return person.name if person else None

    def id_of(self, name: str) -> str | None:
        """The user id behind a short name, the bot included."""
        if name == self.bot.name:
            return self.bot.user_id
        person = self.person_named(name)
        return person.id if person else None

    def open_dm(self, person: Person) -> Channel:
        """The direct conversation of a person and the bot, made on first use."""
        name = f"dm-{person.name}"
        existing = self.channel_named(name)
        return existing or self._add_channel(
            Channel(f"D0DM{person.name.upper():0<7}", name, "im", {self.bot.user_id, person.id})
        )

    def new_ts(self) -> str:
        """A timestamp that no other message of this workspace has, in Slack's form."""
        self._last_ts = max(int(self._wall() * 1_000_000), self._last_ts + 1)
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def post(
        self,
        channel: Channel,
        author_id: str,
        method: str,
        text: str,
        blocks: list[JsonObject],
        *,
        thread_ts: str | None = None,
        private_to: str | None = None,
        metadata: JsonObject | None = None,
        client_msg_id: str | None = None,
    ) -> Change:
        """A new message; a post of the bot ends the thread's status line, as in Slack."""
        first = Version(self._wall(), method, text, tuple(with_block_ids(blocks)))
        message = Message(self.new_ts(), author_id, thread_ts, [first], private_to, client_msg_id, metadata)
        channel.messages[message.ts] = message
        if author_id == self.bot.user_id and private_to is None:
            channel.statuses.pop(thread_ts or message.ts, None)
        self.version += 1
        return Change("posted", channel, message)

    def edit(
        self,
        channel: Channel,
        message: Message,
        method: str,
        text: str,
        blocks: list[JsonObject],
        *,
        edited_by: str | None = None,
    ) -> Change:
        """A new state of a live message. `edited_by` puts the "(edited)" mark, which later edits never take away."""
        before = message.now
        changed = replace(
            before, at=self._wall(), method=method, text=text, blocks=tuple(with_block_ids(blocks, before.blocks))
        )
        if edited_by is not None:
            changed = replace(changed, edited_by=edited_by, edited_ts=self.new_ts())
        return self._write("changed", channel, message, changed)

    def delete(self, channel: Channel, message: Message, method: str) -> list[Change]:
        """Delete a live message. A root with replies becomes a tombstone, which goes with its last reply."""
        shape: Shape = "tombstone" if message.thread_ts is None and channel.replies(message.ts) else "gone"
        changes = [self._remove(channel, message, method, shape)]
        root = channel.messages.get(message.thread_ts or "")
        if root and root.now.shape == "tombstone" and not channel.replies(root.ts):
            changes.append(self._remove(channel, root, method, "gone"))
        return changes

    def set_status(self, channel: Channel, thread_ts: str, text: str, at: float) -> None:
        """The "is thinking" line of a thread; an empty text takes it away."""
        if text:
            channel.statuses[thread_ts] = (text, at)
        else:
            channel.statuses.pop(thread_ts, None)
        self.version += 1

    def status(self, channel: Channel, thread_ts: str, at: float) -> str | None:
        """The status line that people see at the clock time `at`."""
        text, since = channel.statuses.get(thread_ts, ("", 0.0))
        return text if text and at - since < limits.STATUS_LIFETIME_S else None

    def touch(self) -> None:
        """Something else that people see has changed (a reaction)."""
        self.version += 1

    def _add_channel(self, channel: Channel) -> Channel:
        self.channels[channel.id] = channel
        return channel

    def _remove(self, channel: Channel, message: Message, method: str, shape: Shape) -> Change:
        text = TOMBSTONE_TEXT if shape == "tombstone" else ""
        removed = Version(self._wall(), method, text, shape=shape)
        return self._write("tombstoned" if shape == "tombstone" else "deleted", channel, message, removed)

    def _write(
        self, kind: Literal["changed", "deleted", "tombstoned"], channel: Channel, message: Message, version: Version
    ) -> Change:
        before = message.now
        message.versions.append(version)
        self.version += 1
        return Change(kind, channel, message, before)


def with_block_ids(blocks: list[JsonObject], before: tuple[JsonObject, ...] = ()) -> list[JsonObject]:
    """Blocks as Slack stores them: those without a block_id get one, action elements without an action_id too.

    A block that did not change since `before` keeps its id, so that a click on it still finds it.
    """
    known = [(block["block_id"], {k: v for k, v in block.items() if k != "block_id"}) for block in before]
    stored: list[JsonObject] = []
    for block in blocks:
        full = {**block}
        if "elements" in block and block["type"] == "actions":
            full["elements"] = [e if "action_id" in e else {**e, "action_id": random_id(5)} for e in block["elements"]]
        if "block_id" not in full:
            same = next((pair for pair in known if pair[1] == full), None)
            if same:
                known.remove(same)
            full["block_id"] = same[0] if same else random_id(5)
        stored.append(full)
    return stored


def random_id(length: int) -> str:
    """Letters and digits, as in Slack's ids."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(length))
