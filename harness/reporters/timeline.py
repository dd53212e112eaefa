"""Every event of a run on one screen, in the order it happens, and a summary at the end.

0.000  run:start        What is 2*(3+4)?
0.412  model:start      turn 1
0.430  model:delta      Let me calculate that.
0.447  tool:start       calculator {"expression": "2*(3+4)"}
0.449  tool:end         calculator = 14 (2 ms)
"""

from typing import IO, Final, assert_never

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
from harness.messages import Usage
from harness.reporters.visible import one_line, visible

_KIND_CELLS: Final = 18
_TEXT_COLUMN: Final = 9 + _KIND_CELLS
_STYLES: Final = {
    "model:retry": "yellow", "message:retracted": "yellow", "approval:request": "yellow", "tool:start": "cyan",
    "tool:end": "green", "model:reasoning": "dim", "task:state": "dim", "usage": "dim",
}  # fmt: skip


class TimelineReporter:
    """Writes everything to `console`, which writes to `out`. Pieces of text that follow each other share a row."""

    def __init__(self, out: IO[str], console: Console) -> None:
        self._out = out
        self._console = console
        self._began: float | None = None
        self._open = ""
        self._column = 0

    async def emit(self, event: Event) -> None:
        """Show one event."""
        if self._began is None:
            self._began = event.at
        if isinstance(event, ModelDelta | ModelReasoning):
            self._piece(event)
            return
        self._close()
        style = "red" if isinstance(event, ToolEnded) and event.is_error else _STYLES.get(event.kind, "")
        self._console.print(Styled(self._head(event) + _text_of(event), style=style), soft_wrap=True)
        if isinstance(event, RunEnded):
            self._summary(event)

    def _piece(self, event: ModelDelta | ModelReasoning) -> None:
        if self._open != event.kind:
            self._close()
            head = self._head(event)
            self._print(head, event.kind)
            self._open, self._column = event.kind, cell_len(head)
        text = visible(event.text).replace("\n", "\\n")
        # Broken here, so that the next row begins below the text and not below the time.
        width = max(self._console.width - 1, _TEXT_COLUMN + 20) if self._console.is_terminal else 0
        row = ""
        for char in text.expandtabs(1):
            cells = cell_len(char)
            if width and self._column + cells > width:
                self._print(f"{row}\n{' ' * _TEXT_COLUMN}", event.kind)
                row, self._column = "", _TEXT_COLUMN
            row += char
            self._column += cells
        self._print(row, event.kind)
        self._out.flush()

    def _print(self, text: str, kind: str) -> None:
        self._console.print(Styled(text, style=_STYLES.get(kind, "")), end="", soft_wrap=True)

    def _close(self) -> None:
        if self._open:
            self._out.write("\n")
            self._open = ""

    def _head(self, event: Event) -> str:
        return f"{event.at - (self._began or 0.0):7.3f}  {event.kind:<{_KIND_CELLS}}"

    def _summary(self, end: RunEnded) -> None:
        status = end.status.value
        if end.error is not None:
            status += f" ({end.error.kind}): {one_line(end.error.message, 1000)}"
        elif end.stop_by:
            status += f" by {one_line(end.stop_by)}"
        answer = (visible(end.answer) if self._console.is_terminal else end.answer).strip("\n")
        self._out.write("\n")
        self._console.print(Styled("Answer", style="bold"))
        self._out.write(f"{answer}\n\n" if answer else "(none)\n\n")
        for name, text in (("Steps", str(end.steps)), ("Tokens", _tokens(end.usage)), ("Status", status)):
            self._console.print(Styled.assemble((f"{name:<8}", "bold"), text), soft_wrap=True)
        self._out.flush()


def _text_of(event: Event) -> str:
    match event:
        case RunStarted(input=text) | ModelDelta(text=text) | ModelReasoning(text=text):
            return one_line(text)
        case ModelStarted(turn=turn):
            return f"turn {turn}"
        case ModelRetrying(attempt=attempt, delay_s=delay, reason=reason):
            return f"attempt {attempt} in {delay:.1f} s: {reason}"
        case ModelEnded():
            calls = ", ".join(one_line(call.name, 80) for call in event.tool_calls)
            return f"{event.finish_reason or '-'}, {len(event.text)} characters" + (f", calls {calls}" if calls else "")
        case MessageRetracted(reason=reason):
            return f"{reason}: the text so far is void"
        case ToolStarted(call=call):
            return f"{one_line(call.name, 80)} {one_line(call.raw_arguments)}"
        case ToolProgressed(name=name, text=text):
            return f"{one_line(name, 80)}: {one_line(text)}"
        case ToolEnded(name=name, result=result, is_error=is_error, duration_ms=ms):
            return f"{one_line(name, 80)} {'failed:' if is_error else '='} {one_line(result)} ({ms} ms)"
        case StepTaken(n=n, type=type, summary=summary):
            return f"{n} {type}: {one_line(summary)}"
        case ApprovalRequested(approval=approval):
            return f"{one_line(approval.tool, 80)} needs permission (code {approval.code})"
        case ApprovalDecided(decision=decision, by=by):
            return f"{decision} by {by}" if by else f"{decision}: nobody answered in time"
        case TaskStateChanged():
            reason = f" ({one_line(event.reason)})" if event.reason else ""
            return f"{event.from_ or 'new'} to {event.to}{reason}"
        case UsageReported(usage=usage):
            return _tokens(usage)
        case RunEnded(status=status):
            return status.value
        case _:
            assert_never(event)


def _tokens(usage: Usage) -> str:
    about = " (estimated)" if usage.estimated else ""
    return f"{usage.input_tokens:,} in, {usage.output_tokens:,} out{about}"
