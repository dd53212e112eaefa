"""What a correct app never does, written down as it happens. Empty after every test of ours."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from bots.playground.chat_server import JsonObject


@dataclass(frozen=True, slots=True)
class Violation:
    """One mistake of the app: `kind` names the rule, `detail` is for the reader."""

    kind: str
    method: str
    detail: str
    at: float

    def as_json(self) -> JsonObject:
        """For the control API."""
        return asdict(self)


class Violations:
    """The list, newest last."""

    def __init__(self) -> None:
        self.all: list[Violation] = []

    def add(self, kind: str, method: str, detail: str) -> None:
        """Write one down."""
        self.all.append(Violation(kind, method, detail, time.time()))

    def clear(self) -> None:
        """For a test that provoked some on purpose."""
        self.all.clear()
