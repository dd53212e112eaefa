"""`python -m harness`, and the console script.

It imports nothing of ours before Ctrl-C is taken care of: the first imports take long enough to be interrupted.
"""

import os
import signal

CANCELED = 130


def main() -> None:
    """Run the command."""
    # Until the command puts its own in place there is nothing to end in order, and nobody wants to see a traceback.
    # Not where Ctrl-C is ignored, as by a shell for what it runs in the background.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(CANCELED))
    from harness.cli import main as command

    command()


if __name__ == "__main__":
    main()
