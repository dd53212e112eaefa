"""The parts of one answer in the order they came, kept in pieces until the end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness.messages import JsonObject, Part, Reasoning, Text, ToolCall


@dataclass(slots=True)
class _Run:
    """A stretch of text of one sort."""

    reasoning: bool
    refusal: bool
    source: str
    pieces: list[str] = field(default_factory=list[str])


class Transcript:
    """Collects text and thinking; a change from one to the other begins a new part."""

    __slots__ = ("_details", "_details_source", "_run", "_runs")

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._run: _Run | None = None
        self._details: list[JsonObject] = []
        self._details_source = ""

    def add_text(self, text: str, *, refusal: bool = False) -> None:
        """More answer text; `refusal`: the model declines."""
        run = self._run
        if run is None or run.reasoning or run.refusal is not refusal:
            run = self._open(_Run(reasoning=False, refusal=refusal, source=""))
        run.pieces.append(text)

    def add_reasoning(self, text: str, source: str) -> None:
        """More thinking; `source` is the wire field it came in."""
        run = self._run
        if run is None or not run.reasoning or run.source != source:
            run = self._open(_Run(reasoning=True, refusal=False, source=source))
        run.pieces.append(text)

    def add_details(self, details: Iterable[JsonObject], source: str) -> None:
        """Opaque thinking that the server wants back as it is; `source` is the wire field it came in."""
        before = len(self._details)
        self._details.extend(details)
        if len(self._details) > before:
            self._details_source = source

    def parts(self, calls: Sequence[ToolCall]) -> tuple[Part, ...]:
        """The message's parts; the calls come last, as they are carried out after everything that was said."""
        parts: list[Part] = []
        details = tuple(self._details)
        for run in self._runs:
            text = "".join(run.pieces)
            if run.reasoning:
                # The details belong to the response as a whole: they travel with its first thought.
                parts.append(Reasoning(text, run.source, details))
                details = ()
            else:
                parts.append(Text(text, run.refusal))
        if details:
            parts.insert(0, Reasoning("", self._details_source, details))
        return (*parts, *calls)

    def _open(self, run: _Run) -> _Run:
        self._run = run
        self._runs.append(run)
        return run
