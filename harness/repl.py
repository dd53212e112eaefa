"""`harness chat`: one conversation over many turns, at a terminal or through a pipe."""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Protocol

import structlog
from prompt_toolkit import PromptSession
from prompt_toolkit.filters import is_searching
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.shortcuts import CompleteStyle
from rich.console import Console
from rich.text import Text as Styled

from harness import __version__
from harness.reporters.base import Reporter
from harness.settings import KernelSettings
from harness.status import TaskStatus
from harness.terminal.assembly import Kernel, opened
from harness.terminal.commands import CommandCompleter, Commands
from harness.terminal.history import history_in
from harness.terminal.keyboard import is_terminal, unechoed
from harness.terminal.lines import LineReader
from harness.terminal.logs import quiet_logs
from harness.terminal.question import TerminalAsker, line_output
from harness.terminal.state import state_folder
from harness.terminal.streams import Output, answer_reporter, console_on, reconfigure
from harness.terminal.turn import Turns
from harness.tools.base import Tool

PROMPT: Final = "you> "
HOW_TO_LEAVE: Final = "Ctrl-D or /exit leaves."


class Source(Protocol):
    """Where the messages come from."""

    async def read(self) -> str | None:
        """The next message, None when there are no more. Raises KeyboardInterrupt after Ctrl-C."""
        ...

    def interrupt(self) -> None:
        """The process got the signal of Ctrl-C while nothing but `read` was going on."""
        ...


class Prompt:
    """Messages typed at a terminal: Enter sends, Alt-Enter begins a new line, a paste may have many."""

    def __init__(self, history: History) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=history,
            completer=CommandCompleter(),
            complete_style=CompleteStyle.READLINE_LIKE,
            complete_while_typing=False,
            multiline=True,
            prompt_continuation=lambda width, _number, wraps: " " * width if wraps else "... ".rjust(width),
            key_bindings=_keys(),
            output=line_output(sys.stdout),
        )

    async def read(self) -> str | None:
        """See `Source`."""
        try:
            # The signal stays ours: the library would not give it back, and Ctrl-C would be dead in every later turn.
            return await self._session.prompt_async(PROMPT, handle_sigint=False)
        except EOFError:
            return None

    def interrupt(self) -> None:
        """See `Source`."""
        app = self._session.app
        if app.is_running and not app.is_done:
            app.exit(exception=KeyboardInterrupt())


class Chat:
    """Reads messages, runs commands and turns. `reporter` makes what shows a turn, `console` is for everything else.

    `patient`: Ctrl-C between two turns only clears the line (a terminal); else it ends the chat (a pipe).
    """

    def __init__(
        self,
        kernel: Kernel,
        source: Source,
        turns: Turns,
        console: Console,
        reporter: Callable[[], Reporter],
        *,
        patient: bool,
    ) -> None:
        self._source = source
        self._turns = turns
        self._console = console
        self._reporter = reporter
        self._patient = patient
        self._commands = Commands(kernel, console)
        self._left = False

    async def run(self) -> TaskStatus:
        """Go on until the person leaves; the status of the last turn that did not complete, else completed."""
        ending = TaskStatus.COMPLETED
        while not self._left:
            try:
                message = await self._source.read()
            except KeyboardInterrupt:
                if not self._patient:
                    return TaskStatus.CANCELED
                self._console.print(Styled(HOW_TO_LEAVE, style="dim"))
                continue
            if message is None:
                break
            status = await self._take(message)
            if status is not TaskStatus.COMPLETED:
                ending = status
        return ending

    def interrupt(self) -> None:
        """Ctrl-C: stop the turn, or tell whoever reads the next message."""
        if not self._turns.interrupt():
            self._source.interrupt()

    def leave(self) -> None:
        """Stop the turn, read no further message."""
        self._left = True
        self._turns.interrupt()

    async def _take(self, message: str) -> TaskStatus:
        text = message.strip()
        if not text:
            return TaskStatus.COMPLETED
        if text in ("exit", "quit"):
            self._left = True
            return TaskStatus.COMPLETED
        if text.startswith("/") and not text.startswith("//"):
            self._left = await self._commands.run(text) or self._left
            return TaskStatus.COMPLETED
        prompt = text[1:] if text.startswith("//") else text
        # Typed bytes that are no text arrive as half characters, which no model takes.
        prompt = prompt.encode(errors="surrogatepass").decode(errors="replace")
        with unechoed():
            status = await self._turns.run(self._commands.session_key, prompt, self._reporter())
        if self._turns.unkept is not None:
            self._console.print(Styled(f"This permission was for one call only: {self._turns.unkept}", style="yellow"))
            self._turns.unkept = None
        return status


async def chat(
    kernel: Kernel,
    reporter: Callable[[], Reporter],
    console: Console,
    *,
    state: Path | None,
    started: Callable[[Chat], None],
) -> TaskStatus:
    """Run a chat to its end; see `Chat.run`. `state`: the folder of the history at a terminal, None for a pipe.

    `started` is given the chat before the first message is read.
    """
    async with AsyncExitStack() as stack:
        turns = Turns(kernel.runtime, None if state is None else TerminalAsker(sys.stdout, console))
        stack.push_async_callback(turns.aclose)
        source: Source = LineReader(sys.stdin.fileno()) if state is None else Prompt(history_in(state))
        conversation = Chat(kernel, source, turns, console, reporter, patient=state is not None)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, conversation.interrupt)
        stack.callback(loop.remove_signal_handler, signal.SIGINT)
        started(conversation)
        if state is not None:
            console.print(
                Styled(f"harness {__version__}, model {kernel.model}. /help lists the commands. {HOW_TO_LEAVE}")
            )
            if kernel.note:
                console.print(Styled(kernel.note, style="yellow"))
        return await conversation.run()


async def terminal_chat(
    tools: Iterable[Tool] = (),
    *,
    settings: KernelSettings | None = None,
    allow: Sequence[str] = (),
    state: Path | None = None,
) -> TaskStatus:
    """`harness chat` in a program of one's own, with these tools beside the built-in ones; see `Chat.run`.

    `settings`: read from the environment when left out. `allow`: tools that run without asking. `state`: the folder
    that keeps the typed lines, the conversations and the permissions (those two in the database of DATABASE_URL when it
    is set), `~/.local/state/harness-bots` when left out; of a pipe nothing is kept. Raises ConfigError for a wrong or
    missing setting, StoreError for a database that cannot be opened, and OSError when standard output breaks; then
    whatever is still written there goes nowhere. Logs that the program has not configured are reduced to faults, on
    standard error.
    """
    if not structlog.is_configured():
        quiet_logs()  # else they would stand in the middle of the answer
    at_terminal = is_terminal(sys.stdin) and is_terminal(sys.stdout)
    reconfigure(sys.stdout, errors="replace")
    console = console_on(sys.stdout if at_terminal else sys.stderr, plain=not at_terminal)
    output = Output(answer_reporter(console, plain=not at_terminal))
    folder = (state or state_folder()) if at_terminal else None

    def started(conversation: Chat) -> None:
        output.stop = conversation.leave

    async with opened(settings or KernelSettings.load(), tools=tools, allow=allow, state=folder) as kernel:
        status = await chat(kernel, lambda: output, console, state=folder, started=started)
    if output.error is not None:
        output.close()
        raise output.error
    return status


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=~is_searching)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
