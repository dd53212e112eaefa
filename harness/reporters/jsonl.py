"""One JSON object per line and event: for programs that read along."""

import json
from typing import IO, Any

import orjson

from harness.events import Event, to_json


class JsonLinesReporter:
    """Writes each event to a text stream as it comes and flushes at once, so that a reader sees it live."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    @property
    def can_retract(self) -> bool:
        """Readers get `message:retracted` and act on it."""
        return True

    async def emit(self, event: Event) -> None:
        """Write one line."""
        self._out.write(_line(to_json(event)) + "\n")
        self._out.flush()


def _line(event: dict[str, Any]) -> str:
    try:
        return orjson.dumps(event, default=str).decode()
    except TypeError:
        # A model's arguments may hold whole numbers of any length, a prompt half characters: orjson takes neither.
        return json.dumps(event, separators=(",", ":"), default=str)
