"""The `harness` command: one question or a conversation in the terminal.

Exit codes: 0 completed, 1 failed, 2 wrong use or a missing setting, 130 canceled.
"""

import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from typing import Annotated, Any, NoReturn

import typer

from harness import __version__
from harness.errors import ConfigError, StoreError
from harness.reporters.base import Reporter
from harness.reporters.jsonl import JsonLinesReporter
from harness.reporters.timeline import TimelineReporter
from harness.settings import KernelSettings
from harness.status import TaskStatus
from harness.terminal.assembly import opened
from harness.terminal.exits import fail
from harness.terminal.keyboard import is_terminal, unechoed
from harness.terminal.logs import quiet_logs
from harness.terminal.state import state_folder
from harness.terminal.stored import StateHome, grants, sessions
from harness.terminal.streams import Output, answer_reporter, console_on, reconfigure
from harness.terminal.turn import Asker, Turns

EXIT_CODES = {TaskStatus.COMPLETED: 0, TaskStatus.CANCELED: 130, TaskStatus.INTERRUPTED: 130}

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.add_typer(sessions, name="sessions")
app.add_typer(grants, name="grants")

NoStream = Annotated[bool, typer.Option("--no-stream", help="show the answer when it is complete")]
Model = Annotated[str | None, typer.Option(help="the model's name, or `scripted` for the built-in one")]
Allow = Annotated[
    list[str] | None, typer.Option(metavar="TOOL", help="run this tool without asking; may be given several times")
]


@app.callback()
def root() -> None:
    """An agent in your terminal."""


@app.command()
def run(
    prompt: Annotated[str | None, typer.Argument(help="the question; read from standard input when left out")] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="one JSON object per event and line")] = False,
    timeline: Annotated[bool, typer.Option("--timeline", help="show every event, and a summary at the end")] = False,
    no_stream: NoStream = False,
    model: Model = None,
    allow: Allow = None,
) -> None:
    """Answer one question, with tools, and exit; nothing of it is kept.

    A tool that needs permission asks on the terminal; where there is none, and with --json, it is denied at once.
    """
    if json and timeline:
        fail("--json and --timeline show the same events: choose one of them.")
    prompt = _readable(_piped() if prompt is None else prompt)
    if not prompt.strip():
        fail('There is no question. Write it behind the command: harness run "What time is it?"')
    try:
        settings = _settings(model, no_stream=no_stream)
        # JSON is UTF-8 everywhere; of plain text a sign that the terminal lacks must not end the answer.
        reconfigure(sys.stdout, **({"encoding": "utf-8"} if json else {"errors": "replace"}))
        output = Output(_reporter(json=json, timeline=timeline))
        status = _until_killed(_run(settings, prompt, output, allow or (), may_ask=not json))
    except ConfigError as error:
        fail(str(error))
    _end(output, status)


@app.command()
def chat(
    *,
    no_stream: NoStream = False,
    model: Model = None,
    allow: Allow = None,
    state: StateHome = None,
) -> None:
    """Talk over many turns; /help there lists the commands.

    At a terminal the conversation is kept: /resume goes on with an earlier one. Of a pipe each line is one turn, and
    nothing is kept.
    """
    from harness.repl import terminal_chat  # here, because `run` starts faster without a line editor

    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]  # None when closed
        fail("Standard input is closed: there is nobody to talk to.")
    try:
        settings = _settings(model, no_stream=no_stream)
        status = _until_killed(terminal_chat(settings=settings, allow=allow or (), state=state_folder(state)))
    except (ConfigError, StoreError) as error:
        fail(str(error))
    except BrokenPipeError:
        raise typer.Exit(EXIT_CODES[TaskStatus.CANCELED]) from None  # nobody reads on: that is how a pipe says stop
    except OSError as error:
        typer.echo(f"harness: the answer cannot be written: {error}", err=True)
        raise typer.Exit(1) from None
    # At a terminal the person has seen how each turn ended; a script learns it by the exit code.
    at_terminal = is_terminal(sys.stdin) and is_terminal(sys.stdout)
    seen = at_terminal and status is not TaskStatus.INTERRUPTED
    raise typer.Exit(0 if seen else EXIT_CODES.get(status, 1))


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Entry point of the console script."""
    quiet_logs()
    app()


def _reporter(*, json: bool, timeline: bool) -> Reporter:
    if json:
        return JsonLinesReporter(sys.stdout)
    if timeline:
        return TimelineReporter(sys.stdout, console_on(sys.stdout))
    return answer_reporter(console_on(sys.stderr))


def _piped() -> str:
    if sys.stdin is None or sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]  # None when closed
        return ""
    reconfigure(sys.stdin, errors="surrogateescape")
    return sys.stdin.read()


def _readable(text: str) -> str:
    """Bytes that are no text arrive as half characters, which no model and no JSON takes."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _settings(model: str | None, *, no_stream: bool) -> KernelSettings:
    settings = KernelSettings.load()
    if model is not None:
        settings = settings.with_model(model)
    return settings.model_copy(update={"model_stream": False}) if no_stream else settings


async def _run(
    settings: KernelSettings, prompt: str, output: Output, allow: Sequence[str], *, may_ask: bool
) -> TaskStatus:
    async with opened(settings, allow=allow) as kernel:
        turns = Turns(kernel.runtime, _asker() if may_ask else None)
        output.stop = turns.interrupt
        # The first Ctrl-C ends the run in order, the connection to the model included; the second is Python's own.
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            loop.remove_signal_handler(signal.SIGINT)
            turns.interrupt()

        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            with unechoed():
                return await turns.run("terminal", prompt, output)
        finally:
            await turns.aclose()


def _asker() -> Asker | None:
    """Who can be asked: the person at the terminal, also when the answer itself goes into a file."""
    if not is_terminal(sys.stdin):
        return None
    stream = next((stream for stream in (sys.stdout, sys.stderr) if is_terminal(stream)), None)
    if stream is None:
        return None
    from harness.terminal.question import TerminalAsker

    return TerminalAsker(stream, console_on(stream))


def _until_killed(work: Coroutine[Any, Any, TaskStatus]) -> TaskStatus:
    """Run it. A polite kill ends it in order as well: a terminal that does not echo must get its echo back."""

    async def main() -> TaskStatus:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        return TaskStatus.INTERRUPTED


def _end(output: Output, status: TaskStatus) -> NoReturn:
    if output.error is not None and (message := output.close()):
        typer.echo(f"harness: {message}", err=True)
        raise typer.Exit(1)
    raise typer.Exit(EXIT_CODES.get(status, 1))
