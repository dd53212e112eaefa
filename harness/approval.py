"""Approval as data: what is asked, what may be answered."""

from dataclasses import dataclass
from typing import Literal

from harness.messages import JsonObject

Decision = Literal["once", "session", "always", "deny"]
Policy = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, slots=True)
class Approval:
    """A call that waits for a person.

    `code` is short enough to type; `arguments` are what will run, whole. `expires_at`: Unix seconds.
    """

    id: str
    code: str
    tool: str
    arguments: JsonObject
    expires_at: float
