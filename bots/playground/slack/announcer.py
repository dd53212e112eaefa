"""Which events a change causes, and in which order they go out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from bots.playground.slack import wire
from bots.playground.slack.delivery import Deliverer, Delivery
from bots.playground.slack.model import Change, Workspace

MentionOrder = Literal["message_first", "mention_first"]


class Announcer:
    """Tells the app what happened in the conversations that its bot is in (message.channels, message.im, app_mention).

    The app hears of its own writes too. `reply_counts`: a new or vanished reply also changes its parent, as in Slack.
    """

    def __init__(
        self,
        space: Workspace,
        deliverer: Deliverer,
        *,
        mention_order: MentionOrder = "message_first",
        reply_counts: bool = True,
    ) -> None:
        self.mention_order: MentionOrder = mention_order
        self._space = space
        self._deliverer = deliverer
        self._reply_counts = reply_counts

    def announce(self, changes: Iterable[Change]) -> list[Delivery]:
        """Send the events of these changes, in order of time."""
        sent: list[Delivery] = []
        for change in changes:
            if change.message.private_to is None and self._space.bot.user_id in change.channel.members:
                sent += self._announce_one(change)
        return sent

    def _announce_one(self, change: Change) -> list[Delivery]:
        space, channel, message = self._space, change.channel, change.message
        if change.kind != "posted":
            event = wire.change_event(space, change, space.new_ts())
            sent = self._deliverer.send(wire.envelope(space, event))
            return sent + (self._parent_changed(change) if change.kind == "deleted" else [])
        events = [wire.message_event(space, channel, message)]
        from_person = message.author_id != space.bot.user_id
        if from_person and channel.kind == "channel" and f"<@{space.bot.user_id}>" in message.now.text:
            events.append(wire.mention_event(space, channel, message))
            if self.mention_order == "mention_first":
                events.reverse()
        sent = self._deliverer.send(*(wire.envelope(space, event) for event in events))
        return sent + self._parent_changed(change)

    def _parent_changed(self, change: Change) -> list[Delivery]:
        """A parent's reply count is part of it: hidden message_changed, same text, no `edited`."""
        parent = change.channel.messages.get(change.message.thread_ts or "")
        if parent is None or not parent.live or not self._reply_counts:
            return []
        counted = Change("changed", change.channel, parent, parent.now)
        event = wire.change_event(self._space, counted, self._space.new_ts())
        return self._deliverer.send(wire.envelope(self._space, event))
