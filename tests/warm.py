"""A command of ours in a process of its own, forked from one that has loaded it: most of its time was the loading.

For tests of what a command says and of its exit code. How it starts, and what signals and terminals do to it, is only
true of a process that was started as a person starts it.
"""

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    ["bots.app", "bots.cli", "harness.cli", "harness.providers.openai_chat", "harness.stores.sql", "tests.warm"]
)


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command has left: its exit code and what it wrote."""

    code: int
    out: str
    errors: str


def run_warm(module: str, *args: str, env: Mapping[str, str], folder: Path, within_s: float = 30.0) -> Ended:
    """Run `python -m module args` in `folder`, with `env` as its whole environment and nothing to read; blocks."""
    out, errors = folder / "stdout", folder / "stderr"
    process = _forks.Process(target=_command, args=(module, args, dict(env), folder, out, errors))
    process.start()
    process.join(within_s)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"{module} {args} did not end within {within_s} s: {errors.read_text()}")
    ended = Ended(process.exitcode, out.read_text(), errors.read_text())
    process.close()
    return ended


def _command(module: str, args: Sequence[str], env: Mapping[str, str], folder: Path, out: Path, errors: Path) -> None:
    for number, path, flags in ((0, Path(os.devnull), os.O_RDONLY), (1, out, os.O_WRONLY), (2, errors, os.O_WRONLY)):
        os.dup2(os.open(path, flags | os.O_CREAT), number)
    # The streams that the first process had opened buffer for what it was attached to then.
    sys.stdin, sys.stdout, sys.stderr = (open(number, mode) for number, mode in ((0, "r"), (1, "w"), (2, "w")))  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.argv = [module, *args]
    runpy.run_module(module, run_name="__main__")
