"""The keyboard while nobody reads it: what is typed during a turn must not disturb the screen or answer a question."""

import contextlib
import os
import sys
from collections.abc import Generator

try:
    import termios
except ImportError:  # not on Windows; there typed characters simply show
    termios = None


def is_terminal(stream: object) -> bool:
    """Is this standard stream open and a terminal?"""
    isatty = getattr(stream, "isatty", None)
    return bool(isatty is not None and isatty())


@contextlib.contextmanager
def unechoed() -> Generator[None]:
    """Typed characters do not show until the end of the block. Ctrl-C still interrupts; the rest waits for a reader."""
    # A process in the background that touches the terminal's modes is stopped by the system.
    if termios is None or not is_terminal(sys.stdin) or os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    during = termios.tcgetattr(fd)
    during[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSANOW, during)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(fd, termios.TCSANOW, before)


def forget_typed() -> None:
    """Drop what was typed so far: it was typed before the question was there, so it is no answer to it."""
    if termios is not None and is_terminal(sys.stdin):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
