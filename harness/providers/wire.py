"""Small readings of JSON values that came off the wire, where any field may be missing or of a wrong type."""

import json
import math
import uuid
from collections.abc import Sequence
from typing import cast

import orjson

from harness.messages import JsonObject


def new_call_id() -> str:
    """A tool call id of our own, unique in every session."""
    return f"call_{uuid.uuid4().hex[:20]}"


def as_object(value: object) -> JsonObject | None:
    """The JSON object, or None when it is something else."""
    return cast("JsonObject", value) if isinstance(value, dict) else None


def as_list(value: object) -> Sequence[object]:
    """The JSON array, or an empty one when it is something else."""
    return cast("list[object]", value) if isinstance(value, list) else ()


def as_text(value: object) -> str:
    """The string, or "" when it is something else."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """A non-negative whole number, or 0 when it is something else (null is common)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    if isinstance(value, float) and not math.isfinite(value):
        return 0  # NaN, which the laxer reader of events lets pass
    return max(0, int(value))


def parse_arguments(raw: str) -> JsonObject | None:
    """A call's arguments: the object that `raw` is, `{}` for nothing at all, None when it is not one JSON object."""
    text = raw.strip()
    if text in {"", "null"}:
        return {}
    try:
        orjson.loads(text)  # strict: refuses NaN, endless nesting and half characters
        return as_object(json.loads(text))  # exact: keeps whole numbers of any length
    except (ValueError, RecursionError):
        return None
