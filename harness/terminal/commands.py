"""The commands of `harness chat`, one method each."""

import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from rich.console import Console
from rich.text import Text as Styled

from harness.errors import ConfigError
from harness.reporters.visible import one_line
from harness.terminal.assembly import Kernel

HELP: Final = {
    "/help": "this list",
    "/clear": "forget what was said; permissions stay",
    "/new": "begin another conversation; permissions for the session end",
    "/tools": "the tools, and which of them need permission",
    "/grants": "standing permissions; /grants revoke ID takes one back",
    "/model": "the model; /model NAME uses another one from now on",
    "/exit": "leave (also /quit, exit, quit, Ctrl-D)",
}
KEYS: Final = (
    "Enter sends, Alt-Enter begins a new line, Tab completes a command, Ctrl-C stops the answer, Ctrl-D leaves.\n"
    "A message that begins with a slash: write it twice, //like this."
)
CHAT: Final = "terminal"
"""What all conversations of a terminal have in common: permissions for always hold in all of them."""
_WORDS: Final = (*HELP, "/quit")


class Commands:
    """Runs a line that begins with a slash. `session_key` is the conversation that the next message belongs to."""

    def __init__(self, kernel: Kernel, console: Console) -> None:
        self._kernel = kernel
        self._console = console
        self._count = 1
        self._known: dict[str, Callable[[list[str]], Awaitable[None]]] = {
            "/help": self._help,
            "/clear": self._clear,
            "/new": self._new,
            "/tools": self._tools,
            "/grants": self._grants,
            "/model": self._model,
            "/resume": self._resume,
        }

    @property
    def session_key(self) -> str:
        """The current conversation."""
        return f"{CHAT}/{self._count}"

    async def run(self, line: str) -> bool:
        """Run the command; True when the person wants to leave."""
        name, *rest = line.split()
        if name in ("/exit", "/quit"):
            return True
        if command := self._known.get(name):
            await command(rest)
        else:
            self._say(f"There is no command {one_line(name, 40)}; /help lists them. To send it as a message: /{line}")
        return False

    async def _help(self, _: list[str]) -> None:
        for name, text in HELP.items():
            self._say(f"{name:<8} {text}")
        self._say(KEYS)

    async def _clear(self, _: list[str]) -> None:
        await self._kernel.runtime.clear(self.session_key)
        self._say("Forgotten.")

    async def _new(self, _: list[str]) -> None:
        self._count += 1
        self._say("A new conversation.")

    async def _tools(self, _: list[str]) -> None:
        words = {"allow": "", "ask": "(asks) ", "deny": "(off) "}
        for tool in self._kernel.tools.values():
            self._say(f"{tool.name:<14} {words[self._kernel.policy(tool)]}{one_line(tool.description, 100)}")
        if self._kernel.note:
            self._say(self._kernel.note)

    async def _grants(self, rest: list[str]) -> None:
        grants = self._kernel.runtime.gate.grants
        match rest:
            case []:
                found = await grants.list(now=time.time(), chat=CHAT)
                for grant in found:
                    until = datetime.fromtimestamp(grant.expires_at).astimezone()
                    scope = "session" if grant.session_key else "always"
                    arguments = one_line(str(dict(grant.arguments)), 100)
                    self._say(f"{grant.id}  {scope:<7}  until {until:%Y-%m-%d %H:%M}  {grant.tool} {arguments}")
                if not found:
                    self._say("There are no standing permissions.")
            case ["revoke", grant_id]:
                done = await grants.revoke(grant_id)
                self._say("Taken back." if done else f"There is no permission {one_line(grant_id, 40)}.")
            case _:
                self._say("/grants lists the standing permissions, /grants revoke ID takes one back.")

    async def _model(self, rest: list[str]) -> None:
        if rest:
            try:
                await self._kernel.use_model(rest[0])
            except ConfigError as error:
                self._say(str(error))
                return
        self._say(f"The model is {one_line(self._kernel.model, 100)}.")

    async def _resume(self, _: list[str]) -> None:
        self._say("Stored conversations come with the database; until then one lasts as long as this process.")

    def _say(self, text: str) -> None:
        # Of a pipe each sentence stays one line.
        self._console.print(Styled(text), soft_wrap=not self._console.is_terminal)


class CommandCompleter(Completer):
    """Completes the first word of a line that begins with a slash."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002 - the library's signature
        """The commands that begin like the text before the cursor."""
        text = document.text_before_cursor
        words = ("/grants revoke",) if text.startswith("/grants ") else _WORDS
        if text.startswith("/"):
            yield from (Completion(word, start_position=-len(text)) for word in words if word.startswith(text))
