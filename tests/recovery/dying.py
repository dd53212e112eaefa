"""Processes that die: `python -m tests.recovery.dying` reads lines `COMMITS FOLDER`, and for each forks a process that
runs the whole of `SCRIPT` in the folder and is killed as soon as so many commits are durable (0: it comes to its end).

Answers each line with `begun` or `fresh`, which is what the coordinator would know, and the number of commits.
Forked because a new interpreter would take longer to start than all the rest.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from harness.admission import Lease
from harness.events import ApprovalRequested
from harness.runtime import Started
from harness.status import TaskStatus
from tests.recovery.kernel import ASKED, PROMPT, SCRIPT, SESSION, opened


async def run(folder: Path, last: int, tell: int) -> None:
    def after(number: int) -> None:
        os.write(tell, b"c")
        if number == last:
            os.kill(os.getpid(), signal.SIGKILL)

    async with opened(folder, *SCRIPT, after_commit=after) as kernel:
        begin = kernel.admission.mark_started

        async def begun(lease: Lease) -> None:
            os.write(tell, b"b")
            await begin(lease)

        kernel.admission.mark_started = begun  # type: ignore[method-assign]  # only to tell that it was called
        outcome = await kernel.runtime.start(SESSION, PROMPT, origin=ASKED)
        assert isinstance(outcome, Started)
        async for event in outcome.task.events():
            if isinstance(event, ApprovalRequested):
                await kernel.runtime.decide(event.approval.id, "once", by="bob")
        assert outcome.task.status is TaskStatus.COMPLETED


def main() -> None:
    for line in sys.stdin:
        last, folder = line.rstrip("\n").split(" ", 1)
        hear, tell = os.pipe()
        if (child := os.fork()) == 0:
            asyncio.run(run(Path(folder), int(last), tell))
            os._exit(0)
        os.close(tell)
        with os.fdopen(hear, "rb") as pipe:
            told = pipe.read()
        _, status = os.waitpid(child, 0)
        died = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        words = ("begun" if b"b" in told else "fresh", told.count(b"c"), "killed" if died else status)
        sys.stdout.write(f"{words[0]} {words[1]} {words[2]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
