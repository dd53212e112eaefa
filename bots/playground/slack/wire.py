"""Slack's JSON: messages as the Web API returns them and events as they are posted to the app. Pure."""

from __future__ import annotations

import base64
import json
import secrets
import string
import time
from dataclasses import dataclass

from bots.playground.chat_server import JsonObject
from bots.playground.slack.model import Change, Channel, Message, Team, Version, Workspace

# The deprecated verification token that still comes with every payload; apps must not trust it.
LEGACY_TOKEN = "local-verification-token"  # noqa: S105 - no secret: Slack's own payloads carry one like it


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event ready to be delivered, any number of times, always with the same bytes."""

    event_id: str
    kind: str
    body: bytes
    channel: str = ""


def snapshot(
    space: Workspace,
    channel: Channel,
    message: Message,
    version: Version | None = None,
    *,
    metadata: bool = False,
) -> JsonObject:
    """A message (or one of its earlier states) as Slack shows it to the app."""
    version = version or message.now
    if version.shape == "tombstone":
        shown: JsonObject = {
            "type": "message",
            "subtype": "tombstone",
            "user": "USLACKBOT",
            "text": version.text,
            "hidden": True,
            "ts": message.ts,
        }
        return shown | _thread_fields(channel, message)
    shown = {
        "type": "message",
        "user": message.author_id,
        "ts": message.ts,
        "text": version.text,
        "team": space.team.id,
    }
    if message.client_msg_id:
        shown["client_msg_id"] = message.client_msg_id
    if message.author_id == space.bot.user_id:
        shown |= {"bot_id": space.bot.bot_id, "app_id": space.bot.app_id, "bot_profile": bot_profile(space)}
    if version.blocks:
        shown["blocks"] = list(version.blocks)
    if version.edited:
        shown["edited"] = {"user": version.edited_by, "ts": version.edited_ts}
    if message.reactions:
        shown["reactions"] = [
            {"name": name, "users": users, "count": len(users)} for name, users in message.reactions.items()
        ]
    if metadata and message.metadata:
        shown["metadata"] = message.metadata
    return shown | _thread_fields(channel, message)


def bot_profile(space: Workspace) -> JsonObject:
    """The app behind a bot message."""
    bot = space.bot
    return {"id": bot.bot_id, "app_id": bot.app_id, "name": bot.real_name, "team_id": space.team.id, "deleted": False}


def message_event(space: Workspace, channel: Channel, message: Message) -> JsonObject:
    """The plain `message` event of a new post, by a person or by the bot."""
    return snapshot(space, channel, message) | _place(channel, message.ts)


def mention_event(space: Workspace, channel: Channel, message: Message) -> JsonObject:
    """The `app_mention` event: the same message without a channel_type."""
    event = message_event(space, channel, message) | {"type": "app_mention"}
    del event["channel_type"]
    return event


def change_event(space: Workspace, change: Change, ts: str) -> JsonObject:
    """`message_changed` or `message_deleted`, both hidden. `ts` is the event's own timestamp.

    A parent with replies is not deleted but changed: to a tombstone.
    """
    channel, message = change.channel, change.message
    event: JsonObject = {"type": "message", "hidden": True, "ts": ts, **_place(channel, ts)}
    if change.before is not None:
        event["previous_message"] = snapshot(space, channel, message, change.before)
    if change.kind == "deleted":
        return event | {"subtype": "message_deleted", "deleted_ts": message.ts}
    return event | {"subtype": "message_changed", "message": snapshot(space, channel, message)}


def envelope(space: Workspace, event: JsonObject) -> Envelope:
    """An event in the outer form of the Events API, with an event_id of its own."""
    event_id = "Ev" + "".join(secrets.choice(string.ascii_uppercase + string.digits) for _ in range(11))
    body: JsonObject = {
        "token": LEGACY_TOKEN,
        "team_id": space.team.id,
        "api_app_id": space.bot.app_id,
        "event": event,
        "type": "event_callback",
        "event_id": event_id,
        "event_time": int(time.time()),
        "authorizations": [
            {
                "enterprise_id": None,
                "team_id": space.team.id,
                "user_id": space.bot.user_id,
                "is_bot": True,
                "is_enterprise_install": False,
            }
        ],
        "is_ext_shared_channel": False,
        "event_context": event_context(space.team, space.bot.app_id, event),
    }
    if event["type"] == "message":
        # app_mention deliveries come without the context fields.
        body |= {"context_team_id": space.team.id, "context_enterprise_id": None}
    kind = event.get("subtype") or event["type"]
    return Envelope(event_id, str(kind), json.dumps(body, ensure_ascii=False).encode(), str(event["channel"]))


def event_context(team: Team, app_id: str, event: JsonObject) -> str:
    """The opaque handle that names who receives this event."""
    inner = {"et": event["type"], "tid": team.id, "aid": app_id, "cid": event.get("channel")}
    return "4-" + base64.urlsafe_b64encode(json.dumps(inner).encode()).decode().rstrip("=")


def block_actions(
    space: Workspace,
    channel: Channel,
    message: Message,
    button: JsonObject,
    user_id: str,
    *,
    trigger_id: str,
    response_url: str,
) -> JsonObject:
    """The interaction payload of a pressed button. An ephemeral message is not repeated in it."""
    name = space.name_of(user_id)
    user = {"id": user_id, "username": name, "name": name, "team_id": space.team.id}
    container: JsonObject = {
        "type": "message",
        "message_ts": message.ts,
        "channel_id": channel.id,
        "is_ephemeral": message.private_to is not None,
    }
    if message.thread_ts:
        container["thread_ts"] = message.thread_ts
    action = {key: button[key] for key in ("action_id", "block_id", "text", "value", "style", "type") if key in button}
    payload: JsonObject = {
        "type": "block_actions",
        "user": user,
        "api_app_id": space.bot.app_id,
        "token": LEGACY_TOKEN,
        "container": container,
        "trigger_id": trigger_id,
        "team": {"id": space.team.id, "domain": space.team.domain},
        "enterprise": None,
        "is_enterprise_install": False,
        "channel": {"id": channel.id, "name": "directmessage" if channel.kind == "im" else channel.name},
        "state": {"values": {}},
        "response_url": response_url,
        "actions": [action | {"action_ts": f"{time.time():.6f}"}],
    }
    if message.private_to is None:
        payload["message"] = snapshot(space, channel, message)
    return payload


def _place(channel: Channel, ts: str) -> JsonObject:
    return {"channel": channel.id, "event_ts": ts, "channel_type": channel.kind}


def _thread_fields(channel: Channel, message: Message) -> JsonObject:
    if message.thread_ts:
        root = channel.messages.get(message.thread_ts)
        return {"thread_ts": message.thread_ts} | ({"parent_user_id": root.author_id} if root else {})
    replies = channel.replies(message.ts)
    if not replies:
        return {}
    users = list(dict.fromkeys(reply.author_id for reply in replies))
    return {
        "thread_ts": message.ts,
        "reply_count": len(replies),
        "reply_users_count": len(users),
        "latest_reply": replies[-1].ts,
        "reply_users": users,
    }
