"""The run in a terminal: the answer as it is written, one line per tool call."""

from typing import IO, assert_never

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
from harness.status import TaskStatus


class TerminalReporter:
    """Writes the answer, raw as it streams, to `out`, and everything else on lines of its own to `console`.

    With the two on different streams `harness run "..." > answer.md` keeps the answer alone.
    """

    def __init__(self, out: IO[str], console: Console) -> None:
        self._out = out
        self._console = console
        self._open_line = False
        self._turn_text = False

    async def emit(self, event: Event) -> None:
        """Show one event."""
        match event:
            case ModelStarted():
                self._turn_text = False
            case ModelDelta(text=text):
                self._write(text)
            case ModelEnded(text=text):
                if text and not self._turn_text:
                    self._write(text)
                self._end_line()
            case ModelRetrying(attempt=attempt, delay_s=delay, reason=reason):
                self._line(f"! {reason}: asking again in {delay:.1f} s (attempt {attempt})", "yellow")
            case MessageRetracted(reason=reason):
                self._line(f"! {reason}: the text above is void, the answer starts anew", "yellow")
            case ToolStarted(call=call):
                self._line(f"> {call.name} {call.raw_arguments}", "cyan")
            case ToolProgressed(text=text):
                self._line(f"  {text}", "dim")
            case ToolEnded(name=name, result=result, is_error=is_error, duration_ms=ms):
                mark = "x" if is_error else "="
                self._line(f"{mark} {name}: {_first_line(result)} ({ms} ms)", "red" if is_error else "green")
            case RunEnded():
                self._ended(event)
            case ApprovalRequested(approval=approval):
                self._line(f"? {approval.tool} needs permission", "yellow")
            case ApprovalDecided(decision=decision, by=by):
                self._line(f"  {decision} by {by}", "dim")
            case RunStarted() | ModelReasoning() | StepTaken() | TaskStateChanged() | UsageReported():
                pass
            case _:
                assert_never(event)

    def _ended(self, event: RunEnded) -> None:
        self._end_line()
        if event.status is not TaskStatus.COMPLETED:
            reason = f": {event.error.message}" if event.error else ""
            self._line(f"[{event.status.value}]{reason}", "red" if event.error else "yellow")

    def _write(self, text: str) -> None:
        # No wrapping, no markup: what is piped on is exactly the model's text.
        self._out.write(text)
        self._out.flush()
        self._turn_text = True
        self._open_line = not text.endswith("\n")

    def _line(self, text: str, style: str) -> None:
        self._end_line()
        self._console.print(Styled(text, style=style), soft_wrap=True)

    def _end_line(self) -> None:
        if self._open_line:
            self._out.write("\n")
            self._out.flush()
            self._open_line = False


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 200 else line[:199] + "…"
