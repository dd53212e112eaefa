"""The `bots` command: the service and its local playground.

Exit codes: 0 ended in order, 1 the database cannot be used now, 2 wrong use, a missing setting or a newer database.
"""

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

import typer
import uvloop

from bots.settings import Settings
from harness import __version__
from harness.errors import ConfigError, SchemaTooNew, StoreError

USAGE = 2
Result = TypeVar("Result")

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def root() -> None:
    """An agent for chat platforms: mention the bot, watch one card stream the answer, recall the message to stop it."""


@app.command()
def demo(
    *,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="port of the page; 8000 or the next free")] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="do not open a browser")] = False,
) -> None:
    """Try everything on this machine: a local stand-in for Slack, no account, no key."""
    from bots.playground.demo import run_demo

    raise typer.Exit(_run(run_demo(port=port, open_browser=not no_open)) or 0)


@app.command()
def serve() -> None:
    """Serve the platforms whose settings are present, until SIGTERM or Ctrl-C."""
    from bots.app import serve as serve_until_stopped

    try:
        _run(serve_until_stopped(Settings.load()))
    except (ConfigError, SchemaTooNew) as error:
        typer.echo(f"bots: {error}", err=True)
        raise typer.Exit(USAGE) from None
    except StoreError as error:
        # Not a matter of settings: the same command may work in a minute, and whoever supervises it tries again.
        typer.echo(f"bots: {error}", err=True)
        raise typer.Exit(1) from None


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Entry point of the console script."""
    app()


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
