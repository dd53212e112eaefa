"""The `harness` command: one question in the terminal.

Exit codes: 0 completed, 1 failed, 2 wrong use or a missing setting, 130 canceled.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Annotated, NoReturn

import structlog
import typer
from rich.console import Console
from structlog.typing import EventDict, WrappedLogger

from harness import __version__
from harness.admission import InProcessAdmission
from harness.engine import Engine, Limits
from harness.errors import ConfigError
from harness.events import Event
from harness.providers.select import provider_from
from harness.reporters.base import Reporter
from harness.reporters.jsonl import JsonLinesReporter
from harness.reporters.terminal import TerminalReporter
from harness.runtime import Refused, Runtime
from harness.settings import KernelSettings
from harness.status import TaskStatus
from harness.stores.memory import MemorySessionStore
from harness.tools.base import by_name
from harness.tools.builtin import default_tools
from harness.tools.executor import ToolExecutor

EXIT_CODES = {TaskStatus.COMPLETED: 0, TaskStatus.CANCELED: 130, TaskStatus.INTERRUPTED: 130}
USAGE = 2

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def root() -> None:
    """An agent in your terminal."""


@app.command()
def run(
    prompt: Annotated[str | None, typer.Argument(help="the question; read from standard input when left out")] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="one JSON object per event and line")] = False,
    no_stream: Annotated[bool, typer.Option("--no-stream", help="show the answer when it is complete")] = False,
    model: Annotated[str | None, typer.Option(help="the model's name, or `scripted` for the built-in one")] = None,
) -> None:
    """Answer one question, with tools, and exit."""
    prompt = _readable(_piped() if prompt is None else prompt)
    if not prompt.strip():
        _fail('There is no question. Write it behind the command: harness run "What time is it?"')
    try:
        settings = _settings(model, no_stream=no_stream)
        # JSON is UTF-8 everywhere; of plain text a sign that the terminal lacks must not end the answer.
        _reconfigure(sys.stdout, **({"encoding": "utf-8"} if json else {"errors": "replace"}))
        reporter: Reporter = (
            JsonLinesReporter(sys.stdout)
            if json
            else TerminalReporter(sys.stdout, Console(stderr=True, highlight=False))
        )
        output = _Output(reporter)
        status = asyncio.run(_run(settings, prompt, output))
    except ConfigError as error:
        _fail(str(error))
    if output.error is not None:
        output.close()
    raise typer.Exit(EXIT_CODES.get(status, 1))


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Entry point of the console script."""
    # Logs are for operators: in a terminal only what matters, on standard error, without local variables.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        processors=[
            _only_faults,
            structlog.stdlib.add_log_level,
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ],
    )
    app()


class _Output:
    """The reporter, until its stream breaks: then nobody reads the answer (`| head`), and the run is stopped."""

    def __init__(self, reporter: Reporter) -> None:
        self.error: OSError | None = None
        self.stop: Callable[[], object] = lambda: None
        self._reporter = reporter

    async def emit(self, event: Event) -> None:
        """Pass the event on."""
        if self.error is not None:
            return
        try:
            await self._reporter.emit(event)
        except OSError as error:
            self.error = error
            self.stop()

    def close(self) -> None:
        """Say what broke, unless it was a reader who had enough, and exit."""
        # What is left in the buffer would break again when the interpreter flushes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(self.error, BrokenPipeError):
            typer.echo(f"harness: the answer cannot be written: {self.error}", err=True)
            raise typer.Exit(1)


def _only_faults(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """What failed is shown by the reporter already; a log line adds something only where there is a traceback."""
    if not event.get("exc_info"):
        raise structlog.DropEvent
    return event


def _piped() -> str:
    if sys.stdin is None or sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]  # None when closed
        return ""
    _reconfigure(sys.stdin, errors="surrogateescape")
    return sys.stdin.read()


def _reconfigure(stream: object, **options: str) -> None:
    # What replaces a standard stream, in a test or a notebook, need not be able to.
    if (change := getattr(stream, "reconfigure", None)) is not None:
        change(**options)


def _readable(text: str) -> str:
    """Bytes that are no text arrive as half characters, which no model and no JSON takes."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _settings(model: str | None, *, no_stream: bool) -> KernelSettings:
    settings = KernelSettings.load()
    changes: dict[str, object] = {}
    if model == "scripted":
        changes["model_protocol"] = "scripted"
    elif model is not None:
        changes["openai_model"] = model
    if no_stream:
        changes["model_stream"] = False
    return settings.model_copy(update=changes)


async def _run(settings: KernelSettings, prompt: str, output: _Output) -> TaskStatus:
    system = settings.system_prompt()
    provider = provider_from(settings)
    executor = ToolExecutor(by_name(default_tools()), timeout_s=settings.tool_timeout_s)
    engine = Engine(provider, executor, Limits.of(settings), system=system)
    runtime = Runtime(engine, MemorySessionStore(), InProcessAdmission())
    try:
        outcome = await runtime.start("terminal", prompt, output)
        assert not isinstance(outcome, Refused), "a fresh runtime refuses nothing"
        output.stop = lambda: outcome.task.cancel("the output is closed")
        if output.error is not None:
            output.stop()  # it broke at the first event already
        # The first Ctrl-C ends the run in order, the connection to the model included; the second is Python's own.
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            loop.remove_signal_handler(signal.SIGINT)
            outcome.task.cancel("Ctrl-C")

        loop.add_signal_handler(signal.SIGINT, interrupt)
        return await outcome.task.wait()
    finally:
        await runtime.aclose()
        await provider.aclose()


def _fail(message: str) -> NoReturn:
    typer.echo(f"harness: {message}", err=True)
    raise typer.Exit(USAGE)
