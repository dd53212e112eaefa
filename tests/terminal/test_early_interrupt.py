"""Ctrl-C while the command is still starting: it ends at once, and nobody is shown a traceback."""

import fcntl
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.terminal.rig import PATIENCE_S, clean_env

NO_SERVER = {"OPENAI_API_KEY": "sk-local", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_MODEL": "local-model"}


def start(folder: Path, args: list[str], moment: str) -> "subprocess.Popen[str]":
    """The command, at the moment when it has just imported this module."""
    process = subprocess.Popen(
        # It says on standard error what it has just imported: moments that no machine's speed moves.
        [sys.executable, "-X", "importtime", "-m", "harness", *args],
        env=clean_env(**NO_SERVER),
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    # Small, so that it cannot run far ahead of what is read here.
    fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
    for line in process.stderr:
        if line.startswith("import time:") and line.rpartition("|")[2].strip() == moment:
            return process
        assert line.startswith("import time:"), line
    raise AssertionError(f"ended before {moment}")


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Exit code, standard output, and what stands on standard error beside the list of imports."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    return (
        process.returncode,
        out,
        "".join(line for line in err.splitlines(keepends=True) if not line.startswith("import time:")),
    )


@pytest.mark.parametrize(
    ("args", "moment"),
    [
        (["run", "hello"], "asyncio"),
        (["run", "hello"], "typer"),
        (["run", "hello"], "pydantic_settings"),
        (["run", "hello"], "harness.engine"),
        (["run", "hello"], "openai._types"),  # imported when the event loop runs already
        (["chat"], "typer"),
        (["chat"], "prompt_toolkit.document"),
        (["chat"], "openai._types"),
    ],
)
def test_ctrl_c_during_the_start_ends_the_command_without_a_word(tmp_path: Path, args: list[str], moment: str) -> None:
    process = start(tmp_path, args, moment)
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, "", "")


def test_a_command_that_was_started_with_ctrl_c_ignored_is_not_ended_by_it(tmp_path: Path) -> None:
    # A shell starts so what it runs in the background; a child inherits it.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = start(tmp_path, ["version"], "asyncio")
    finally:
        signal.signal(signal.SIGINT, before)
    process.send_signal(signal.SIGINT)
    code, out, err = ended(process)
    assert (code, err) == (0, "")
    assert out.strip()
