"""Bodies as Slack sends them, made here: only the fields that mean something to us, under names of this file."""

import hashlib
import hmac
import json
from typing import Any

from bots.slack.parse import Identity

APP, TEAM, BOT_USER, BOT = "A0OURAPP", "T0HOME", "U0BOT", "B0BOT"
CHANNEL, DM = "C0ROOM", "D0ALICE"
ALICE, BOB = "U0ALICE", "U0BOB"
TS, LATER = "1750000000.000100", "1750000060.000200"
IDENTITY = Identity(APP, TEAM, BOT_USER, BOT)
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
NOW = 1_750_000_100.0

Json = dict[str, Any]


def message(text: str = "hello", **fields: Any) -> Json:
    """The inner event of a message in a channel by Alice; None takes a field away."""
    event = {
        "type": "message",
        "channel": CHANNEL,
        "channel_type": "channel",
        "user": ALICE,
        "team": TEAM,
        "text": text,
        "ts": TS,
        "event_ts": TS,
    } | fields
    return {key: value for key, value in event.items() if value is not None}


def mention(text: str = f"<@{BOT_USER}> hello", **fields: Any) -> Json:
    return message(text, **({"type": "app_mention", "channel_type": None} | fields))


def changed(after: Json, before: Json | None, **fields: Any) -> Json:
    event = {
        "type": "message",
        "subtype": "message_changed",
        "hidden": True,
        "channel": CHANNEL,
        "channel_type": "channel",
        "ts": LATER,
        "event_ts": LATER,
        "message": after,
        **({"previous_message": before} if before is not None else {}),
    }
    return event | fields


def deleted(**fields: Any) -> Json:
    return {
        "type": "message",
        "subtype": "message_deleted",
        "hidden": True,
        "channel": CHANNEL,
        "channel_type": "channel",
        "ts": LATER,
        "event_ts": LATER,
        "deleted_ts": TS,
    } | fields


def envelope(event: Any, **fields: Any) -> Json:
    body = {
        "type": "event_callback",
        "team_id": TEAM,
        "api_app_id": APP,
        "event_id": "Ev0000000001",
        "event_time": 1750000000,
        "event": event,
        "authorizations": [
            {
                "enterprise_id": None,
                "team_id": TEAM,
                "user_id": BOT_USER,
                "is_bot": True,
                "is_enterprise_install": False,
            }
        ],
        "is_ext_shared_channel": False,
    } | fields
    return {key: value for key, value in body.items() if value is not None}


def rich_text(*elements: Json) -> list[Json]:
    return [{"type": "rich_text", "block_id": "b1", "elements": list(elements)}]


def section(*elements: Json) -> Json:
    return {"type": "rich_text_section", "elements": list(elements)}


def words(text: str, **style: bool) -> Json:
    return {"type": "text", "text": text, **({"style": style} if style else {})}


def click(**fields: Any) -> Json:
    return {
        "type": "block_actions",
        "api_app_id": APP,
        "team": {"id": TEAM, "domain": "home"},
        "enterprise": None,
        "user": {"id": ALICE, "username": "alice", "team_id": TEAM},
        "container": {"type": "message", "message_ts": LATER, "channel_id": CHANNEL, "thread_ts": TS},
        "channel": {"id": CHANNEL, "name": "room"},
        "trigger_id": "123.456.abc",
        "response_url": "https://hooks.slack.com/actions/T0HOME/1/x",
        "actions": [{"type": "button", "action_id": "stop", "block_id": "b", "value": "task-1", "action_ts": LATER}],
    } | fields


def command(**fields: str) -> dict[str, str]:
    return {
        "api_app_id": APP,
        "team_id": TEAM,
        "channel_id": CHANNEL,
        "user_id": ALICE,
        "command": "/stop",
        "text": "",
        "trigger_id": "123.456.cmd",
        "response_url": "https://hooks.slack.com/commands/T0HOME/1/x",
    } | fields


def signed(
    body: bytes, *, secret: str = SECRET, timestamp: str | None = None, kind: str = "application/json"
) -> dict[str, str]:
    """The headers of a request that Slack has signed. Own arithmetic: slack_sdk's verifier is under test."""
    timestamp = timestamp if timestamp is not None else str(int(NOW))
    digest = hmac.new(secret.encode(), b"v0:" + timestamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    return {"content-type": kind, "x-slack-request-timestamp": timestamp, "x-slack-signature": f"v0={digest}"}


def encoded(payload: Json) -> bytes:
    return json.dumps(payload).encode()
