"""A reporter that remembers, for tests and for callers who look afterwards."""

from harness.events import Event, to_json


class RecordingReporter:
    """Keeps every event in `events`."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    @property
    def can_retract(self) -> bool:
        """Readers get `message:retracted` and act on it."""
        return True

    async def emit(self, event: Event) -> None:
        """Remember the event."""
        self.events.append(event)

    @property
    def kinds(self) -> list[str]:
        """The kinds in order, the quickest way to see what happened."""
        return [event.kind for event in self.events]

    @property
    def text(self) -> str:
        """All text that was streamed."""
        return "".join(str(to_json(event)["text"]) for event in self.events if event.kind == "model:delta")
