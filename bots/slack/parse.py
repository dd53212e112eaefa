"""Slack's payloads as inbound values. Pure: plain data in, plain data out.

Each function gives None for what is nothing for us, and raises `MalformedPayload` when a field that must be there is
missing or of the wrong type. What is said here about Slack's events: docs.slack.dev/reference/events/message.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from bots.inbound import (
    BotRemoved,
    ButtonClicked,
    ChatKind,
    ChatRef,
    Inbound,
    MessageEdited,
    MessageRecalled,
    MessageReceived,
    MessageRef,
    UserRef,
)
from bots.slack.decode import Decoded, JsonObject, decode_blocks, decode_text

PLATFORM: Final = "slack"

_USER_SUBTYPES: Final = frozenset({"", "file_share", "thread_broadcast", "me_message", "bot_message"})
"""Subtypes that carry what somebody wrote; joins, topics, pins and all others do not."""
_TS: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_SYSTEM_USERS: Final = frozenset({"USLACK", "USLACKBOT", "UREVOKEDU"})
_CHAT_CLOSED: Final = frozenset(
    {"channel_archive", "group_archive", "channel_deleted", "group_deleted", "channel_left", "group_left"}
)
_ARCHIVE_SUBTYPES: Final = frozenset({"channel_archive", "group_archive"})


class MalformedPayload(ValueError):
    """A body that Slack would never send: a required field is missing or has the wrong type."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the bot is in the workspace where it is installed. `app_id` is "" when Slack does not tell."""

    app_id: str
    team_id: str
    bot_user_id: str
    bot_id: str


def parse_event(envelope: JsonObject, identity: Identity) -> Inbound | None:
    """The inbound value of one body of the Events API, None when it is nothing for us."""
    if envelope.get("type") != "event_callback":
        _required_string(envelope, "type")  # app_rate_limited and the like have no inner event
        return None
    event = _required_object(envelope, "event")
    if not _is_our_installation(envelope, identity):
        return None
    kind = _required_string(event, "type")
    match kind:
        case "message":
            return _message_event(envelope, event, identity)
        case "app_mention":
            return _received(envelope, event, identity)
        case "member_left_channel" if event.get("user") == identity.bot_user_id:
            return _removed(event, identity)
        case _ if kind in _CHAT_CLOSED:
            return _removed(event, identity)
        case _:
            return None


def parse_interaction(payload: JsonObject, identity: Identity) -> Inbound | None:
    """The click that a `block_actions` payload tells of; None for every other kind of interaction."""
    if _required_string(payload, "type") != "block_actions":
        return None
    actions = payload.get("actions")
    first = cast("list[object]", actions)[0] if isinstance(actions, list) and actions else None
    if not isinstance(first, Mapping):
        raise MalformedPayload("'actions' must be a list that begins with an object")
    action = cast("JsonObject", first)
    container = _object(payload, "container")
    message = _object(payload, "message")
    channel = _string(container, "channel_id") or _string(_object(payload, "channel"), "id")
    ts = _string(container, "message_ts") or _string(message, "ts")
    if not channel or not ts:
        return None  # a click in a modal or the app's home belongs to no message
    thread = _string(container, "thread_ts") or _string(message, "thread_ts")
    user = _required_object(payload, "user")
    return ButtonClicked(
        ref=MessageRef(_chat(channel, "", thread, ts, identity), ts),
        user=UserRef(
            PLATFORM,
            identity.team_id,
            _required_string(user, "id"),
            external=_clicker_is_external(payload, user, identity),
        ),
        action=_required_string(action, "action_id"),
        value=_string(action, "value"),
        private_reply=_string(payload, "response_url"),
    )


def parse_command(form: Mapping[str, str], identity: Identity, *, sent_at: float) -> Inbound | None:
    """A slash command as the message that it stands for: `/stop` and what follows it.

    Slack gives it no message and no thread, so `ref.message` and `ref.chat.thread` are "". `sent_at`: Unix seconds.
    """
    channel, user, command = (_required_string(form, key) for key in ("channel_id", "user_id", "command"))
    kind = _kind(channel, "")
    # Slack offers an app's commands only where it is installed: in this workspace, or in the whole organisation.
    is_local = form.get("team_id", identity.team_id) == identity.team_id
    is_local = is_local or form.get("is_enterprise_install") == "true"
    argument = decode_text(_string(form, "text"), identity.bot_user_id).text
    return MessageReceived(
        ref=MessageRef(ChatRef(PLATFORM, identity.team_id, channel, "", kind), ""),
        sender=UserRef(PLATFORM, identity.team_id, user, external=not is_local),
        text=f"{command} {argument}".strip(),
        mentions_bot=True,
        in_thread=False,
        sent_at=sent_at,
        dedupe_id=_dedupe_id(_string(form, "api_app_id"), identity, channel, f"command:{_string(form, 'trigger_id')}"),
    )


def _message_event(envelope: JsonObject, event: JsonObject, identity: Identity) -> Inbound | None:
    subtype = _string(event, "subtype")
    if subtype == "message_deleted":
        return _deleted(event, identity)
    if subtype == "message_changed":
        return _changed(envelope, event, identity)
    if subtype in _ARCHIVE_SUBTYPES:
        return _removed(event, identity)
    if subtype not in _USER_SUBTYPES:
        return None
    return _received(envelope, event, identity)


def _received(envelope: JsonObject, event: JsonObject, identity: Identity) -> MessageReceived | None:
    channel = _required_string(event, "channel")
    ts = _string(event, "ts") or _required_string(event, "event_ts")
    sent_at = _seconds(ts)
    sender = _sender(envelope, event, identity)
    if sender is None:
        return None
    decoded = _decoded(event, identity)
    thread = _string(event, "thread_ts")
    return MessageReceived(
        ref=MessageRef(_chat(channel, _string(event, "channel_type"), thread, ts, identity), ts),
        sender=sender,
        text=decoded.text,
        mentions_bot=decoded.mentions_bot,
        in_thread=bool(thread) and thread != ts,
        sent_at=sent_at,
        dedupe_id=_dedupe_id(_string(envelope, "api_app_id"), identity, channel, ts),
        unsupported="" if decoded.text else _unreadable(event),
    )


def _changed(envelope: JsonObject, event: JsonObject, identity: Identity) -> Inbound | None:
    """An edit by a person, or a deletion in disguise: a parent with replies only turns into a tombstone."""
    message = _required_object(event, "message")
    previous = _object(event, "previous_message")
    channel = _required_string(event, "channel")
    ts = _string(message, "ts") or _string(previous, "ts")
    if not ts:
        raise MalformedPayload("'message_changed' names no message")
    thread = _string(message, "thread_ts") or _string(previous, "thread_ts")
    ref = MessageRef(_chat(channel, _string(event, "channel_type"), thread, ts, identity), ts)
    if _string(message, "subtype") == "tombstone":
        return MessageRecalled(ref)
    # The same event tells of unfurled links, of reply counts and of our own edits.
    edited = _string(_object(message, "edited"), "ts")
    edited_before = _string(_object(previous, "edited"), "ts")
    text_changed = bool(previous) and _string(message, "text") != _string(previous, "text")
    if not text_changed and edited == edited_before:
        return None
    author = _string(message, "user") or _string(_object(message, "edited"), "user") or _string(previous, "user")
    sender = _sender(envelope, {**message, "user": author}, identity)
    if sender is None or sender.is_bot:
        return None
    return MessageEdited(ref, sender, _decoded(message, identity).text)


def _deleted(event: JsonObject, identity: Identity) -> MessageRecalled:
    previous = _object(event, "previous_message")
    channel = _required_string(event, "channel")
    ts = _string(event, "deleted_ts") or _string(previous, "ts")
    if not ts:
        raise MalformedPayload("'message_deleted' names no message")
    thread = _string(previous, "thread_ts")
    return MessageRecalled(MessageRef(_chat(channel, _string(event, "channel_type"), thread, ts, identity), ts))


def _removed(event: JsonObject, identity: Identity) -> BotRemoved:
    return BotRemoved(ChatRef(PLATFORM, identity.team_id, _required_string(event, "channel")))


def _sender(envelope: JsonObject, message: JsonObject, identity: Identity) -> UserRef | None:
    """Who wrote the message; None for ourselves, for Slack's own notices, and when there is nobody to answer."""
    user = _string(message, "user")
    bot = _string(message, "bot_id") or _string(_object(message, "bot_profile"), "id")
    app = _string(message, "app_id") or _string(_object(message, "bot_profile"), "app_id")
    own_app = identity.app_id or _string(envelope, "api_app_id")
    if user == identity.bot_user_id or (bot and bot == identity.bot_id) or (app and app == own_app):
        return None
    if user in _SYSTEM_USERS or not (user or bot):
        return None
    return UserRef(
        PLATFORM,
        identity.team_id,
        user or bot,
        external=_is_external(envelope, message, identity),
        is_bot=bool(bot) or _string(message, "subtype") == "bot_message",
    )


def _decoded(message: JsonObject, identity: Identity) -> Decoded:
    """The text by its blocks, which keep code as it was typed, else by `text`; a mention in either one counts."""
    by_text = decode_text(_string(message, "text"), identity.bot_user_id)
    by_blocks = decode_blocks(message.get("blocks"), identity.bot_user_id)
    if by_blocks is None or not (by_blocks.text or by_blocks.mentions_bot):
        return by_text
    return Decoded(by_blocks.text, by_blocks.mentions_bot or by_text.mentions_bot)


def _unreadable(event: JsonObject) -> str:
    if event.get("files"):
        return "file"
    return "attachment" if event.get("attachments") else ""


def _is_our_installation(envelope: JsonObject, identity: Identity) -> bool:
    """False when the event was authorised by another workspace's installation of the same app."""
    installed = _authorization(envelope)
    team = _string(installed, "team_id")
    return not team or team == identity.team_id or installed.get("is_enterprise_install") is True


def _is_external(envelope: JsonObject, message: JsonObject, identity: Identity) -> bool:
    """Whether the sender is from outside; who cannot be placed in a channel shared with outsiders counts as one."""
    shared = envelope.get("is_ext_shared_channel")
    if shared is False:
        return False  # members of other workspaces of the same organisation are no strangers
    team = (
        _string(message, "user_team")
        or _string(message, "source_team")
        or _string(message, "team")
        or _string(_object(message, "user_profile"), "team")
    )
    if not team:
        return bool(shared)
    installed = _authorization(envelope)
    ours = {identity.team_id, _string(installed, "team_id"), _string(installed, "enterprise_id")}
    return team not in ours


def _clicker_is_external(payload: JsonObject, user: JsonObject, identity: Identity) -> bool:
    team = _string(user, "team_id") or _string(_object(payload, "team"), "id")
    return team not in {identity.team_id, _string(_object(payload, "enterprise"), "id")} if team else True


def _authorization(envelope: JsonObject) -> JsonObject:
    """`authorizations` holds one entry: the installation that this event was sent for."""
    entries = envelope.get("authorizations")
    first = cast("list[object]", entries)[0] if isinstance(entries, list) and entries else None
    return cast("JsonObject", first) if isinstance(first, Mapping) else {}


def _chat(channel: str, channel_type: str, thread_ts: str, ts: str, identity: Identity) -> ChatRef:
    kind = _kind(channel, channel_type)
    # In a channel the answer to a message starts its thread; a DM is one conversation until somebody opens a thread.
    thread = thread_ts or (ts if kind == "group" else "")
    return ChatRef(PLATFORM, identity.team_id, channel, thread, kind)


def _kind(channel: str, channel_type: str) -> ChatKind:
    if channel_type:
        return "dm" if channel_type in ("im", "app_home") else "group"
    return "dm" if channel.startswith("D") else "group"


def _dedupe_id(app: str, identity: Identity, channel: str, message: str) -> str:
    return f"{PLATFORM}:{app or identity.app_id}:{identity.team_id}:{channel}:{message}"


def _seconds(ts: str) -> float:
    if not _TS.fullmatch(ts):
        raise MalformedPayload("'ts' must be a number in a string")
    return float(ts)


def _required_string(holder: Mapping[str, object], key: str) -> str:
    value = holder.get(key)
    if not isinstance(value, str) or not value:
        raise MalformedPayload(f"{key!r} must be a string that is not empty")
    return value


def _required_object(holder: JsonObject, key: str) -> JsonObject:
    value = holder.get(key)
    if not isinstance(value, Mapping):
        raise MalformedPayload(f"{key!r} must be an object")
    return cast("JsonObject", value)


def _string(holder: Mapping[str, object], key: str) -> str:
    value = holder.get(key)
    return value if isinstance(value, str) else ""


def _object(holder: JsonObject, key: str) -> JsonObject:
    value = holder.get(key)
    return cast("JsonObject", value) if isinstance(value, Mapping) else {}
