"""The run in a terminal: the answer as it is written, one line per tool call."""

from typing import IO, TYPE_CHECKING, Final, assert_never

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text as Styled

from harness.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    MessageRetracted,
    ModelDelta,
    ModelEnded,
    ModelReasoning,
    ModelRetrying,
    ModelStarted,
    RunEnded,
    RunStarted,
    StepTaken,
    TaskStateChanged,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    UsageReported,
)
from harness.messages import ToolCall
from harness.reporters.visible import Harmless, one_line, visible
from harness.status import TaskStatus

if TYPE_CHECKING:
    from harness.reporters.markdown import MarkdownPainter

_THOUGHT_CELLS: Final = 100
"""So much of the model's thinking is shown: enough to see that it thinks, and about what."""


class TerminalReporter:
    """Writes the answer, raw as it streams, to `out`, and everything else on lines of its own to `console`.

    With the two on different streams `harness run "..." > answer.md` keeps the answer alone. On a terminal control
    characters of the model do nothing; in a file or pipe the text is exactly the model's. `painter`: shows the answer
    as markdown, for an `out` that is a terminal.
    """

    def __init__(self, out: IO[str], console: Console, *, painter: "MarkdownPainter | None" = None) -> None:
        self._out = out
        self._console = console
        self._painter = painter
        self._harmless = Harmless() if out.isatty() else None
        self._open_line = False
        self._turn_text = False
        self._thought = 0
        self._numbers: dict[str, str] = {}

    async def emit(self, event: Event) -> None:
        """Show one event."""
        match event:
            case ModelStarted():
                self._turn_text = False
                self._thought = 0
            case ModelReasoning(text=text):
                self._think(text)
            case ModelDelta(text=text):
                self._write(text)
            case ModelEnded(text=text, tool_calls=calls):
                if text and not self._turn_text:
                    self._write(text)
                self._end_text(complete=True)
                self._number(calls)
            case ModelRetrying(attempt=attempt, delay_s=delay, reason=reason):
                self._line(f"! {reason}: asking again in {delay:.1f} s (attempt {attempt})", "yellow")
            case MessageRetracted(reason=reason):
                self._line(f"! {reason}: the text above is void, the answer starts anew", "yellow")
                self._turn_text = False
            case ToolStarted(call=call):
                self._line(f"> {self._name(call.id, call.name)} {one_line(call.raw_arguments)}", "cyan")
            case ToolProgressed(call_id=id, name=name, text=text):
                last = text.strip().rpartition("\n")[2]
                self._line(f"  {self._name(id, name)}: {one_line(last)}", "dim")
            case ToolEnded(call_id=id, name=name, result=result, is_error=is_error, duration_ms=ms):
                mark, style = ("x", "red") if is_error else ("=", "green")
                self._line(f"{mark} {self._name(id, name)}: {_first_line(result)} ({ms} ms)", style)
            case RunEnded():
                self._ended(event)
            case ApprovalRequested(approval=approval):
                self._line(f"? {one_line(approval.tool)} needs permission", "yellow")
            case ApprovalDecided(decision=decision, by=by):
                self._line(f"  {decision} by {by}" if by else "  nobody answered in time: not allowed", "dim")
            case RunStarted() | StepTaken() | TaskStateChanged() | UsageReported():
                pass
            case _:
                assert_never(event)

    def _number(self, calls: tuple[ToolCall, ...]) -> None:
        # Calls of one turn may run at once: then their lines mix, and a number says which belong together.
        self._numbers = {call.id: f" #{n}" for n, call in enumerate(calls, start=1)} if len(calls) > 1 else {}

    def _name(self, call_id: str, name: str) -> str:
        return one_line(name, 80) + self._numbers.get(call_id, "")

    def _ended(self, event: RunEnded) -> None:
        self._end_text(complete=False)
        if event.status is not TaskStatus.COMPLETED:
            reason = f": {one_line(event.error.message, 1000)}" if event.error else ""
            self._line(f"[{event.status.value}]{reason}", "red" if event.error else "yellow")

    def _think(self, text: str) -> None:
        """One dim row with the beginning of the thought, as it comes."""
        left = min(_THOUGHT_CELLS, self._console.width - 4) - self._thought
        if left <= 0 or self._turn_text:
            return
        piece = " ".join(visible(text).split("\n"))
        if self._thought == 0:
            self._end_text(complete=False)
            piece = f"~ {piece.lstrip()}"
        self._thought += cell_len(piece)
        if cell_len(piece) > left:
            piece = Styled(piece)
            piece.truncate(left)
            piece = f"{piece.plain}…"
        self._console.print(Styled(piece, style="dim"), end="", soft_wrap=True)
        self._console.file.flush()
        self._open_line = True

    def _write(self, text: str) -> None:
        if not self._turn_text and self._thought:
            self._close_thought()
        self._turn_text = True
        if self._painter is not None:
            self._painter.write(text)
            return
        # No wrapping, no markup: what is piped on is exactly the model's text.
        self._out.write(self._harmless.feed(text) if self._harmless else text)
        self._out.flush()
        self._open_line = not text.endswith("\n")

    def _line(self, text: str, style: str) -> None:
        self._end_text(complete=False)
        self._console.print(Styled(text, style=style), soft_wrap=True)

    def _end_text(self, *, complete: bool) -> None:
        """Whatever was being written is over: the next line is free."""
        if self._thought and not self._turn_text:
            self._close_thought()
        if self._painter is not None:
            self._painter.end(complete=complete)
        if self._open_line:
            self._out.write("\n")
            self._out.flush()
            self._open_line = False

    def _close_thought(self) -> None:
        if self._open_line:
            self._console.print()
            self._open_line = False


def _first_line(text: str) -> str:
    lines = text.strip().split("\n", 2)
    # Of what others wrote the first line is our own warning to the model.
    line = lines[1] if lines[0].startswith("[Untrusted content from ") and len(lines) > 1 else lines[0]
    return one_line(line)
