"""The tools that `test_blocking.py` runs: in a module of their own, because their processes import it."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from harness.errors import ToolError
from harness.tools.base import tool


class Size(StrEnum):
    S = "small"
    L = "large"


class Place(BaseModel):
    city: str


@tool(blocking=True)
def where(place: Place, size: Size = Size.S, count: Annotated[int, Field(le=9)] = 3) -> str:
    """Say what came, and where."""
    assert isinstance(place, Place)
    assert isinstance(size, Size)
    return f"{place.city} {size.name} {count} {os.getpid()}"


@tool(blocking=True, read_only=True, name="echo")
def repeat(text: str) -> str:
    """Say it again."""
    return text


@tool(blocking=True)
def wait_for(path: str) -> str:
    """Wait until a file is there."""
    while not Path(path).exists():
        time.sleep(0.005)
    return "it is there"


@tool(blocking=True)
def fail(how: str) -> object:
    """Fail in some way."""
    print("last words")  # noqa: T201 - what it prints is the test
    match how:
        case "refuse":
            raise ToolError("Not today.")
        case "raise":
            raise LookupError("no such thing")
        case "leave":
            sys.exit(3)
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            ctypes.string_at(0)
        case "no text":
            return NoText()
        case "fork and exit":
            if os.fork() == 0:
                time.sleep(600)  # holds every pipe that it was born with
            os._exit(4)
        case _:
            pass
    return "alive"


class NoText:
    def __str__(self) -> str:
        raise ValueError("nothing to say")


@tool(blocking=True, timeout_s=600)
def busy(how: str, pids: str) -> str:
    """Never end, with a child."""
    child = subprocess.Popen(["sleep", "600"])
    Path(pids).write_text(f"{os.getpid()} {child.pid} ")
    match how:
        case "sleep":
            time.sleep(600)
        case "loop":
            while True:
                pass
        case "loop in C":
            # The interpreter gets no turn in here, not even for a signal.
            re.match(r"(a+)+b", "a" * 64)
        case _:
            signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
            time.sleep(600)
    return "ended"


@tool(blocking=True)
def leave_a_child(pids: str) -> str:
    """Start something and do not wait for it."""
    child = subprocess.Popen(["sleep", "600"])
    Path(pids).write_text(f"{child.pid} ")
    return "started"


@tool(blocking=True)
def give(what: str) -> Any:
    """Give something that is not a short text."""
    match what:
        case "much":
            return "a" * 5_000_000 + "the end"
        case "lambda":
            return {"call": type(lambda: 0).__name__, "open": open(os.devnull)}
        case "half a character":
            return "\ud83d|\x00|\n"
        case _:
            return None


@tool(blocking=True)
def talk() -> str:
    """Print much, and read."""
    print("x" * 1_000_000, "\ud83d")  # noqa: T201 - likewise
    print("to standard error", file=sys.stderr)  # noqa: T201 - likewise
    os.write(1, b"raw")
    try:
        return input("your name? ")
    except EOFError:
        return "nobody answers"
