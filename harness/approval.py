"""Approval as data: what is asked, what may be answered, and what an answer allows later."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Literal

import orjson

from harness.messages import JsonObject

Decision = Literal["once", "session", "always", "deny"]
Policy = Literal["allow", "ask", "deny"]
ApprovalStatus = Literal["pending", "allowed", "denied", "expired", "void"]


@dataclass(frozen=True, slots=True)
class Approval:
    """A call that waits for a person.

    `code` is short enough to type; `arguments` are what will run, whole. `digest` binds the answer to this tool and
    these arguments. `expires_at`: Unix seconds. `decision` and `decided_by` are set once `status` is not pending.
    """

    id: str
    code: str
    tool: str
    arguments: JsonObject
    expires_at: float
    task_id: str = ""
    session_key: str = ""
    call_id: str = ""
    requester: str = ""
    digest: str = ""
    status: ApprovalStatus = "pending"
    decision: Decision | None = None
    decided_by: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """A standing permission: the same tool with the same arguments need not be asked about again.

    `session_key` "" = anywhere in the chat. Bound to the person whose request it was given for. Times: Unix seconds.
    """

    id: str
    tool: str
    digest: str
    chat: str
    user: str
    session_key: str
    granted_by: str
    created_at: float
    expires_at: float
    arguments: JsonObject = field(default_factory=dict[str, object])


def digest_of(tool: str, schema: JsonObject, arguments: JsonObject) -> str:
    """What a decision is bound to: the tool, its schema (a changed tool asks again) and the arguments, order aside."""
    parts = [tool, dict(schema), dict(arguments)]
    try:
        canonical = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # A whole number beyond 64 bits, which JSON may hold and orjson does not write.
        canonical = json.dumps(parts, sort_keys=True).encode()
    return hashlib.sha256(canonical).hexdigest()
