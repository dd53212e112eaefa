"""How a command ends that was called in a wrong way, or whose output broke."""

import os
import sys
from typing import Final, NoReturn

import typer

FAILED: Final = 1
USAGE: Final = 2
CANCELED: Final = 130


def fail(message: str) -> NoReturn:
    """Say it in one sentence on standard error, and end with the exit code of a wrong call."""
    typer.echo(f"harness: {message}", err=True)
    raise typer.Exit(USAGE)


def broken_output(error: OSError) -> NoReturn:
    """End because standard output takes nothing more; a reader who had enough (`| head`) need not be told."""
    # What is left in the buffer would break again when the interpreter flushes it.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        raise typer.Exit(CANCELED)
    typer.echo(f"harness: the output cannot be written: {error}", err=True)
    raise typer.Exit(FAILED)
