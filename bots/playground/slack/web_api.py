"""The Web API methods, each by its page under docs.slack.dev/reference/methods. State and JSON, no HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

from bots.playground.chat_server import JsonObject
from bots.playground.clock import Clock
from bots.playground.slack import blocks as block_rules
from bots.playground.slack import limits, mrkdwn, visible, wire
from bots.playground.slack.arguments import ApiError, Arguments
from bots.playground.slack.model import Change, Channel, Message, Person, Workspace
from bots.playground.slack.violations import Violations

# Slack does not document what a reply to a deleted parent without replies does: it fails, or stays in the channel.
OrphanReplies = Literal["fail", "post"]

_TIMESTAMP = re.compile(r"\d{10}\.\d{6}")
_EMOJI_NAME = re.compile(r"[a-z0-9_+'-]+(::skin-tone-[2-6])?")


class WebApi:
    """One app's view of the workspace.

    Contract: `call` returns the fields beside `ok` or raises ApiError; every change goes to `announce`.
    """

    def __init__(
        self,
        space: Workspace,
        *,
        clock: Clock,
        announce: Callable[[Iterable[Change]], object],
        violations: Violations,
        orphan_replies: OrphanReplies = "fail",
    ) -> None:
        self.orphan_replies: OrphanReplies = orphan_replies
        self._space = space
        self._clock = clock
        self._announce = announce
        self._violations = violations
        self._methods: dict[str, Callable[[Arguments], JsonObject]] = {
            "assistant.threads.setStatus": self._set_status,
            "auth.test": self._auth_test,
            "chat.delete": self._delete,
            "chat.postEphemeral": self._post_ephemeral,
            "chat.postMessage": self._post_message,
            "chat.update": self._update,
            "conversations.history": self._history,
            "conversations.info": self._info,
            "conversations.list": self._list,
            "conversations.open": self._open,
            "conversations.replies": self._replies,
            "reactions.add": self._add_reaction,
            "users.conversations": self._list,
            "users.info": self._user_info,
        }

    @property
    def methods(self) -> frozenset[str]:
        """Every method there is."""
        return frozenset(self._methods)

    def call(self, method: str, args: Arguments) -> JsonObject:
        """Run a known method."""
        return self._methods[method](args)

    # -- identity and people

    def _auth_test(self, args: Arguments) -> JsonObject:
        del args
        team, bot = self._space.team, self._space.bot
        return {
            "url": f"https://{team.domain}.slack.com/",
            "team": team.name,
            "user": bot.name,
            "team_id": team.id,
            "user_id": bot.user_id,
            "bot_id": bot.bot_id,
            "is_enterprise_install": False,
        }

    def _user_info(self, args: Arguments) -> JsonObject:
        return {"user": self._user(args.text("user"))}

    def _user(self, user_id: str) -> JsonObject:
        bot = self._space.bot
        person = self._space.people.get(user_id)
        if person is None and user_id != bot.user_id:
            raise ApiError("user_not_found")
        name, real_name = (person.name, person.real_name) if person else (bot.name, bot.real_name)
        return {
            "id": user_id,
            "team_id": self._space.team.id,
            "name": name,
            "real_name": real_name,
            "deleted": False,
            "is_bot": person is None,
            "is_app_user": False,
            "is_restricted": False,
            "is_ultra_restricted": False,
            "tz": "Europe/Amsterdam",
            "profile": {
                "display_name": name,
                "real_name": real_name,
                **({"api_app_id": bot.app_id} if person is None else {}),
            },
        }

    # -- conversations

    def _info(self, args: Arguments) -> JsonObject:
        return {"channel": self._conversation(self._channel(args, member=False))}

    def _list(self, args: Arguments) -> JsonObject:
        kinds = (args.text("types") or "public_channel").split(",")
        wanted = {"im" if kind == "im" else "channel" for kind in kinds if kind in {"im", "public_channel"}}
        found = [self._conversation(c) for c in self._space.channels.values() if c.kind in wanted]
        page, cursor = _page(found, args, default=100)
        return {"channels": page, "response_metadata": {"next_cursor": cursor}}

    def _open(self, args: Arguments) -> JsonObject:
        if args.given("channel"):
            channel = self._channel(args, member=False)
        else:
            users = args.text("users").split(",")
            if users == [""]:
                raise ApiError("users_list_not_supplied", mistake="neither channel nor users")
            if len(users) > 1:
                # A group conversation: nothing of ours needs one.
                raise ApiError("users_list_not_supplied", mistake="this server opens direct messages only")
            channel = self._space.open_dm(self._person(users[0]))
        return {"channel": self._conversation(channel) if args.flag("return_im") else {"id": channel.id}}

    def _conversation(self, channel: Channel) -> JsonObject:
        bot = self._space.bot.user_id
        if channel.kind == "im":
            user = next(member for member in channel.members if member != bot)
            return {"id": channel.id, "is_im": True, "user": user, "is_archived": channel.archived}
        return {
            "id": channel.id,
            "name": channel.name,
            "is_channel": True,
            "is_im": False,
            "is_private": False,
            "is_archived": channel.archived,
            "is_member": bot in channel.members,
            "is_ext_shared": False,
            "num_members": len(channel.members),
        }

    def _history(self, args: Arguments) -> JsonObject:
        channel = self._channel(args)
        roots = [m for m in channel.messages.values() if m.thread_ts is None and _readable(m)]
        found = _between(roots, args)
        page, cursor = _page(list(reversed(found)), args, default=100)
        return self._messages(channel, page, cursor, args)

    def _replies(self, args: Arguments) -> JsonObject:
        channel = self._channel(args)
        asked = channel.messages.get(args.text("ts"))
        if asked is None or not _readable(asked):
            raise ApiError("thread_not_found")
        root_ts = asked.thread_ts or asked.ts
        thread = [m for m in channel.messages.values() if root_ts in (m.ts, m.thread_ts) and _readable(m)]
        page, cursor = _page(_between(thread, args), args, default=1_000)
        return self._messages(channel, page, cursor, args)

    def _messages(self, channel: Channel, page: list[Message], cursor: str, args: Arguments) -> JsonObject:
        metadata = args.flag("include_all_metadata")
        return {
            "messages": [wire.snapshot(self._space, channel, message, metadata=metadata) for message in page],
            "has_more": bool(cursor),
            "response_metadata": {"next_cursor": cursor},
        }

    # -- messages

    def _post_message(self, args: Arguments) -> JsonObject:
        channel = self._channel(args, by_name=True, writable=True)
        thread_ts = self._thread(channel, args)
        text, blocks = self._content(args, update=False)
        metadata = args.json_object("metadata", "invalid_metadata_format")
        if metadata is not None:
            self._check_metadata(metadata)
        change = self._space.post(
            channel,
            self._space.bot.user_id,
            "chat.postMessage",
            text[: limits.POST_TEXT_TRUNCATED],
            blocks,
            thread_ts=thread_ts,
            metadata=metadata,
        )
        self._announce([change])
        message = change.message
        shown = wire.snapshot(self._space, channel, message, metadata=True)
        return {"channel": channel.id, "ts": message.ts, "message": shown}

    def _post_ephemeral(self, args: Arguments) -> JsonObject:
        channel = self._channel(args, writable=True)
        person = self._person(args.text("user"))
        if person.id not in channel.members:
            raise ApiError("user_not_in_channel")
        thread_ts = self._thread(channel, args)
        text, blocks = self._content(args, update=False)
        change = self._space.post(
            channel,
            self._space.bot.user_id,
            "chat.postEphemeral",
            text,
            blocks,
            thread_ts=thread_ts,
            private_to=person.id,
        )
        return {"message_ts": change.message.ts}

    def _update(self, args: Arguments) -> JsonObject:
        channel = self._channel(args, writable=True)
        message = self._own_message(channel, args, "cant_update_message")
        text, blocks = self._content(args, update=True)
        # docs: "edited" is not shown for an update with blocks, and is for one with text.
        by_text = not blocks
        if by_text:
            self._violations.add("edited_mark", "chat.update", f"{message.ts}: an edit without blocks shows (edited)")
        change = self._space.edit(
            channel, message, "chat.update", text, blocks, edited_by=self._space.bot.user_id if by_text else None
        )
        if args.given("metadata"):
            message.metadata = args.json_object("metadata", "invalid_metadata_format")
        self._announce([change])
        shown = wire.snapshot(self._space, channel, message, metadata=True)
        return {"channel": channel.id, "ts": message.ts, "text": text, "message": shown}

    def _delete(self, args: Arguments) -> JsonObject:
        channel = self._channel(args, member=False)
        message = self._own_message(channel, args, "cant_delete_message")
        self._announce(self._space.delete(channel, message, "chat.delete"))
        return {"channel": channel.id, "ts": message.ts}

    def _add_reaction(self, args: Arguments) -> JsonObject:
        channel = self._channel(args)
        name = args.text("name").strip(":")
        if not _EMOJI_NAME.fullmatch(name):
            raise ApiError("invalid_name", mistake=f"no emoji is called {name!r}")
        if not args.text("timestamp"):
            raise ApiError("no_item_specified", mistake="no timestamp")
        message = channel.messages.get(args.text("timestamp"))
        if message is None or not message.live or message.private_to:
            raise ApiError("message_not_found")
        users = message.reactions.setdefault(name, [])
        if self._space.bot.user_id in users:
            raise ApiError("already_reacted")
        users.append(self._space.bot.user_id)
        self._space.touch()
        return {}

    def _set_status(self, args: Arguments) -> JsonObject:
        channel = self._channel(Arguments(args.values | {"channel": args.text("channel_id")}))
        thread_ts = args.text("thread_ts")
        if not _TIMESTAMP.fullmatch(thread_ts):
            raise ApiError("invalid_thread_ts", mistake=f"thread_ts {thread_ts!r}")
        if not args.given("status"):
            raise ApiError("invalid_arguments", mistake="no status; an empty one clears")
        self._space.set_status(channel, thread_ts, args.text("status"), self._clock.now())
        return {}

    # -- rules that several methods share

    def _channel(
        self, args: Arguments, *, member: bool = True, writable: bool = False, by_name: bool = False
    ) -> Channel:
        wanted = args.text("channel")
        channel = self._space.channels.get(wanted)
        if channel is None and by_name:
            # chat.postMessage alone also takes a user id (their direct messages) and a channel's name.
            person = self._space.people.get(wanted)
            named = self._space.channel_named(wanted.removeprefix("#"))
            channel = self._space.open_dm(person) if person else named if named and named.kind == "channel" else None
        if channel is None:
            raise ApiError("channel_not_found")
        if writable and channel.archived:
            raise ApiError("is_archived")
        if member and self._space.bot.user_id not in channel.members:
            raise ApiError("not_in_channel")
        return channel

    def _person(self, user_id: str) -> Person:
        person = self._space.people.get(user_id)
        if person is None:
            raise ApiError("user_not_found")
        return person

    def _own_message(self, channel: Channel, args: Arguments, error: str) -> Message:
        ts = args.text("ts")
        message = channel.messages.get(ts)
        if message is None or not message.live or message.private_to is not None:
            raise ApiError("message_not_found", mistake=None if _TIMESTAMP.fullmatch(ts) else f"ts {ts!r}")
        if message.author_id != self._space.bot.user_id:
            raise ApiError(error, mistake=f"{ts} was written by {self._space.name_of(message.author_id)}")
        return message

    def _thread(self, channel: Channel, args: Arguments) -> str | None:
        """The root that a post goes under. An empty thread_ts is refused, not taken as absent."""
        if not args.given("thread_ts"):
            return None
        thread_ts = args.text("thread_ts")
        if not _TIMESTAMP.fullmatch(thread_ts):
            raise ApiError("invalid_thread_ts", mistake=f"thread_ts {thread_ts!r}")
        root = channel.messages.get(thread_ts)
        if root is not None and root.thread_ts is not None:
            raise ApiError("invalid_thread_ts", mistake=f"thread_ts {thread_ts} is a reply, not the thread's root")
        if root is None or root.private_to is not None or root.now.shape == "gone":
            if self.orphan_replies == "post":
                return None
            raise ApiError("thread_not_found")
        return thread_ts

    def _content(self, args: Arguments, *, update: bool) -> tuple[str, list[JsonObject]]:
        """Text and blocks of a post or an update, checked."""
        blocks = args.json_list("blocks", "invalid_blocks_format")
        attachments = args.json_list("attachments", "invalid_attachments")
        text = args.text("text")
        if args.given("markdown_text"):
            if text or blocks:
                raise ApiError("markdown_text_conflict", mistake="markdown_text together with text or blocks")
            markdown = args.text("markdown_text")
            if len(markdown) > limits.MARKDOWN_ARGUMENT:
                raise ApiError("msg_too_long", mistake=f"markdown_text of {len(markdown)} characters")
            if not markdown:
                raise ApiError("no_text", mistake="an empty message")
            blocks = [{"type": "markdown", "text": markdown}]
        elif not text and not blocks and not attachments:
            raise ApiError("no_text", mistake="an empty message")
        if update and len(text) > limits.UPDATE_TEXT:
            raise ApiError("msg_too_long", mistake=f"text of {len(text)} characters")
        checked = self._blocks(blocks or [], update=update)
        for written in visible.formatted_texts(text, checked):
            if re.search(r"<!(here|channel|everyone)\b", written):
                self._violations.add("broadcast", "chat.update" if update else "chat.postMessage", written[:200])
        return mrkdwn.escape(text), checked

    def _blocks(self, blocks: list[Any], *, update: bool) -> list[JsonObject]:
        faults = block_rules.validate(blocks, escaped=update)
        if faults:
            raise ApiError("invalid_blocks", mistake="; ".join(faults), details=faults)
        length = block_rules.markdown_length(blocks)
        if length > limits.MARKDOWN_TEXT_PER_MESSAGE:
            raise ApiError("msg_blocks_too_long", mistake=f"{length} characters of markdown")
        return blocks

    def _check_metadata(self, metadata: JsonObject) -> None:
        if not isinstance(metadata.get("event_type"), str) or not isinstance(metadata.get("event_payload"), dict):
            raise ApiError("invalid_metadata_format", mistake="metadata needs event_type and event_payload")
        if len(json.dumps(metadata)) > limits.METADATA_JSON:
            raise ApiError("metadata_too_large", mistake="metadata over 16 kB")


def _readable(message: Message) -> bool:
    return message.private_to is None and message.now.shape != "gone"


def _between(messages: list[Message], args: Arguments) -> list[Message]:
    """The messages between `oldest` and `latest`; the ends count only when `inclusive`."""
    oldest, latest = args.text("oldest"), args.text("latest")
    inclusive = args.flag("inclusive")

    for name, value in (("oldest", oldest), ("latest", latest)):
        if value and not re.fullmatch(r"\d+(\.\d+)?", value):
            raise ApiError(f"invalid_ts_{name}", mistake=f"{name} {value!r}")

    def inside(ts: str) -> bool:
        after = not oldest or float(oldest) < float(ts) or (inclusive and ts == oldest)
        before = not latest or float(ts) < float(latest) or (inclusive and ts == latest)
        return after and before

    return [message for message in messages if inside(message.ts)]


def _page(items: list[Any], args: Arguments, *, default: int) -> tuple[list[Any], str]:
    """One page and the cursor of the next, empty on the last."""
    cursor = args.text("cursor", "page:0") or "page:0"
    if not re.fullmatch(r"page:\d+", cursor):
        raise ApiError("invalid_cursor", mistake=f"cursor {cursor!r}")
    start = int(cursor.removeprefix("page:"))
    end = start + max(1, args.number("limit", default))
    return items[start:end], f"page:{end}" if end < len(items) else ""
