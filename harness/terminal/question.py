"""The question for permission on a terminal: everything that would run, then one line to answer."""

import asyncio
import json
from collections.abc import Iterator
from typing import IO, Final, Literal

from prompt_toolkit import PromptSession
from prompt_toolkit.input import create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.console import Console
from rich.text import Text as Styled

from harness.approval import Approval, Decision
from harness.messages import JsonObject
from harness.reporters.visible import one_line, rows
from harness.terminal.keyboard import forget_typed

ANSWERS: Final[dict[str, Decision]] = {
    "y": "once", "yes": "once", "once": "once", "s": "session", "session": "session",
    "a": "always", "always": "always", "n": "deny", "no": "deny", "deny": "deny",
}  # fmt: skip
_PROMPT: Final = "  y once, s session, a always, n deny: "


class TerminalAsker:
    """Asks on the terminal that `stream` writes to; `console` writes to the same stream."""

    def __init__(self, stream: IO[str], console: Console) -> None:
        self._stream = stream
        self._console = console

    async def ask(self, approval: Approval, closed: asyncio.Event) -> Decision | Literal["stop"] | None:
        """Show the call and wait for an answer with Enter. Ctrl-C stops the turn, the end of input denies."""
        self._console.print(Styled("\n".join(shown_call(approval, self._console.width))), soft_wrap=True)
        keys = create_input()
        session: PromptSession[str] = PromptSession(input=keys, output=line_output(self._stream))
        forget_typed()
        clear_typeahead(keys)
        while not closed.is_set():
            try:
                answer = await _line(session, closed)
            except KeyboardInterrupt:
                return "stop"
            except EOFError:
                return "deny"
            except _Closed:
                return None
            if decision := ANSWERS.get(answer.strip().lower()):
                return decision
            self._console.print("  Type one of the four letters, then Enter. Ctrl-C stops the whole turn.")
        return None


class _Closed(Exception):
    """Nobody needs the answer any more."""


async def _line(session: "PromptSession[str]", closed: asyncio.Event) -> str:
    app = session.app

    async def close() -> None:
        await closed.wait()
        if app.is_running and not app.is_done:
            app.exit(exception=_Closed())

    # Once the library has had the signal it never gives it back, and Ctrl-C would be dead for the rest of the turn.
    return await session.prompt_async(
        _PROMPT, handle_sigint=False, pre_run=lambda: _started(app.create_background_task(close()))
    )


def _started(_: "asyncio.Task[None]") -> None:
    """The library holds the task, and cancels it when the prompt is over."""


def line_output(stream: IO[str]) -> Output:
    """Where a prompt is drawn. It never asks where the cursor is: the answer could arrive as typed text."""
    output = create_output(stdout=stream)  # pyright: ignore[reportArgumentType]  # any stream with a descriptor does
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False
    return output


def shown_call(approval: Approval, width: int) -> Iterator[str]:
    """The call with all its arguments, nothing left out and nothing hidden, in rows that fit the width.

    Rows begin with two spaces and a bar, also where a long line goes on: no argument can look like the question.
    """
    yield f"  {one_line(approval.tool)} would run with" + (":" if approval.arguments else "out arguments.")
    inner = max(width - 5, 8)
    for line in _argument_lines(approval.arguments):
        for row in rows(line, inner):
            yield f"  | {row}"


def _argument_lines(arguments: JsonObject) -> Iterator[str]:
    for name, value in arguments.items():
        if isinstance(value, str) and "\n" in value:
            lines = value.split("\n")
            yield f"{_printable(name)}: {len(lines)} lines"
            yield from (f"    {_printable(line)}" for line in lines)
        else:
            yield f"{_printable(name)}: {_printable(json.dumps(value, ensure_ascii=False))}"


def _printable(text: str) -> str:
    """Everything that is not a visible character or a plain space, as its escape."""
    return "".join(
        char if char.isprintable() or char == "\N{IDEOGRAPHIC SPACE}" else ascii(char)[1:-1] for char in text
    )
