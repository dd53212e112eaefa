"""Standard output and standard error as a run uses them."""

import os
import sys
from collections.abc import Callable
from typing import IO

from rich.console import Console

from harness.events import Event
from harness.reporters.base import CanRetract, Reporter
from harness.reporters.terminal import TerminalReporter
from harness.terminal.keyboard import is_terminal


def console_on(stream: IO[str], *, plain: bool = False) -> Console:
    """A console on this stream. No colours and no other escape codes where nobody wants them: NO_COLOR, or `plain`."""
    console = Console(file=stream, highlight=False)
    if plain or console.no_color:
        console = Console(file=stream, highlight=False, color_system=None)
    return console


def answer_reporter(status: Console, *, plain: bool = False) -> TerminalReporter:
    """Shows a run: the answer on standard output, as markdown where that is a terminal with colours."""
    screen = console_on(sys.stdout, plain=plain)
    rendered = is_terminal(sys.stdout) and screen.color_system is not None and not screen.is_dumb_terminal
    if not rendered:
        return TerminalReporter(sys.stdout, status)
    from harness.reporters.markdown import MarkdownPainter  # here, because without it a run starts faster

    return TerminalReporter(sys.stdout, status, painter=MarkdownPainter(sys.stdout, screen))


class Output:
    """A reporter, until its stream breaks: then nobody reads the answer (`| head`), and `stop` is called."""

    def __init__(self, reporter: Reporter) -> None:
        self.error: OSError | None = None
        self.stop: Callable[[], object] = lambda: None
        self._reporter = reporter

    @property
    def can_retract(self) -> bool:
        """Whether the reporter behind can take text back."""
        return isinstance(self._reporter, CanRetract) and self._reporter.can_retract

    async def emit(self, event: Event) -> None:
        """Pass the event on."""
        if self.error is not None:
            return
        try:
            await self._reporter.emit(event)
        except OSError as error:
            self.error = error
            self.stop()

    def close(self) -> str:
        """What to tell the person: "" when it was a reader who had enough. Writing does nothing from now on."""
        # What is left in the buffer would break again when the interpreter flushes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(self.error, BrokenPipeError):
            return ""
        return f"the answer cannot be written: {self.error}"


def reconfigure(stream: object, **options: str) -> None:
    """Change the encoding or the treatment of errors, if the stream can: one that a test put there need not."""
    if (change := getattr(stream, "reconfigure", None)) is not None:
        change(**options)
