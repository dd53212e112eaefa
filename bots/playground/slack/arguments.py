"""The arguments of a Web API call as real clients send them: query, form or JSON.

docs.slack.dev/apis/web-api/ (POST bodies, supported content types)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import parse_qsl

from bots.playground.chat_server import JsonObject

# These are documented for application/x-www-form-urlencoded only: a JSON body is not read.
FORM_ONLY = frozenset(
    {
        "conversations.history",
        "conversations.info",
        "conversations.list",
        "conversations.replies",
        "users.conversations",
        "users.info",
    }
)


class ApiError(Exception):
    """Slack's `ok: false`. `mistake` = a correct app never gets this one; it says why."""

    def __init__(self, code: str, *, mistake: str | None = None, details: list[str] | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.mistake = mistake
        self.details = details or []


@dataclass(frozen=True, slots=True)
class Arguments:
    """Named values; JSON bodies keep their types, forms have strings."""

    values: JsonObject

    def text(self, name: str, default: str = "") -> str:
        """A string argument; an absent one or null is the default."""
        value = self.values.get(name)
        if value is None:
            return default
        return value if isinstance(value, str) else str(value)

    def given(self, name: str) -> bool:
        """Whether the argument is there and not null."""
        return self.values.get(name) is not None

    def flag(self, name: str) -> bool:
        """A boolean in either notation."""
        return self.values.get(name) in (True, 1, "1", "true", "True")

    def number(self, name: str, default: int) -> int:
        """An integer in either notation."""
        try:
            return int(self.text(name) or default)
        except ValueError:
            raise ApiError("invalid_arguments", mistake=f"{name} is not a number") from None

    def json_list(self, name: str, error: str) -> list[Any] | None:
        """A list, or its JSON text as forms carry it; None when absent."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, str):
            value = _load(value, error)
        if not isinstance(value, list):
            raise ApiError(error, mistake=f"{name} is not a JSON array")
        return cast("list[Any]", value)

    def json_object(self, name: str, error: str) -> JsonObject | None:
        """An object, or its JSON text as forms carry it; None when absent."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if isinstance(value, str):
            value = _load(value, error)
        if not isinstance(value, dict):
            raise ApiError(error, mistake=f"{name} is not a JSON object")
        return cast("JsonObject", value)


def read(method: str, *, query: str, content_type: str, body: bytes) -> Arguments:
    """Query and body together. Raises ApiError as Slack answers to a body that it cannot read."""
    values: JsonObject = dict(parse_qsl(query, keep_blank_values=True))
    if not body:
        return Arguments(values)
    kind = content_type.partition(";")[0].strip().lower()
    match kind:
        case "application/x-www-form-urlencoded":
            try:
                values |= dict(parse_qsl(body.decode(), keep_blank_values=True, strict_parsing=True))
            except ValueError:
                raise ApiError("invalid_form_data", mistake="the form cannot be parsed") from None
        case "application/json":
            if method in FORM_ONLY:
                raise ApiError("invalid_arguments", mistake=f"{method} does not read JSON bodies")
            loaded = _load(body.decode(errors="replace"), "invalid_json")
            if not isinstance(loaded, dict):
                raise ApiError("json_not_object", mistake="the JSON body is not an object")
            values |= cast("JsonObject", loaded)
        case "":
            raise ApiError("missing_post_type", mistake="a body without Content-Type")
        case _:
            raise ApiError("invalid_post_type", mistake=f"Content-Type {kind}")
    return Arguments(values)


def _load(text: str, error: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ApiError(error, mistake="malformed JSON") from None
