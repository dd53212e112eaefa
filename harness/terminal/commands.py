"""The commands of `harness chat`, one method each."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from rich.console import Console
from rich.text import Text as Styled

from harness.context.instructions import read_instructions
from harness.context.skills import find_skills
from harness.errors import ConfigError, StoreError
from harness.reporters.visible import one_line
from harness.terminal.assembly import Kernel
from harness.terminal.conversations import CannotResume, Conversations, Resumed
from harness.terminal.listing import grant_row, session_rows
from harness.terminal.lookup import CHAT, WrongId, only
from harness.terminal.transcript import last_exchange, shown

HELP: Final = {
    "/help": "this list",
    "/clear": "forget what was said; permissions stay",
    "/new": "begin another conversation; permissions for the session end",
    "/resume": "the last conversations; /resume ID continues one of them",
    "/tools": "the tools, which of them need permission, and what this folder says",
    "/grants": "standing permissions in this folder; /grants revoke ID takes one back",
    "/model": "the model; /model NAME uses another one from now on",
    "/exit": "leave (also /quit, exit, quit, Ctrl-D)",
}
KEYS: Final = (
    "Enter sends, Alt-Enter begins a new line, Tab completes a command, Ctrl-C stops the answer, Ctrl-D leaves.\n"
    "A message that begins with a slash: write it twice, //like this."
)
_LAST_ROWS: Final = 8
"""So much of each text of the last exchange reminds a person of where a conversation stands."""
_WORDS: Final = (*HELP, "/quit")


class Commands:
    """Runs a line that begins with a slash. `session_key` is the conversation that the next message belongs to."""

    def __init__(self, kernel: Kernel, console: Console) -> None:
        self._kernel = kernel
        self._console = console
        self._conversations = Conversations(kernel)
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
        return self._conversations.key

    async def run(self, line: str) -> bool:
        """Run the command; True when the person wants to leave."""
        name, *rest = line.split()
        if name in ("/exit", "/quit"):
            return True
        if command := self._known.get(name):
            try:
                await command(rest)
            except (CannotResume, WrongId) as error:
                self._say(str(error))
            except StoreError as error:
                self._say(f"The database: {error}")
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
        self._conversations.begin()
        self._say("A new conversation.")

    async def _tools(self, _: list[str]) -> None:
        words = {"allow": "", "ask": "(asks) ", "deny": "(off) "}
        for tool in self._kernel.tools.values():
            self._say(f"{tool.name:<14} {words[self._kernel.policy(tool)]}{one_line(tool.description, 100)}")
        if self._kernel.note:
            self._say(self._kernel.note)
        prompt = self._kernel.prompt
        # Of this folder, and anybody may have filled it.
        instructions = await asyncio.to_thread(read_instructions, prompt.instructions)
        skills = await asyncio.to_thread(find_skills, prompt.skills)
        if instructions.files:
            self._say(f"Instructions: {one_line(', '.join(path for path, _ in instructions.files), 500)}")
        if skills.found:
            self._say(f"Skills: {', '.join(skill.name for skill in skills.found)}")
        for warning in (*instructions.warnings, *skills.warnings):
            self._say(f"Note: {one_line(warning, 500)}")

    async def _grants(self, rest: list[str]) -> None:
        grants = self._kernel.runtime.gate.grants
        match rest:
            case []:
                found = await grants.list(now=time.time(), chat=CHAT)
                for grant in found:
                    self._say(grant_row(grant))
                if not found:
                    self._say("There are no standing permissions.")
            case ["revoke", beginning]:
                found = await grants.list(now=time.time(), chat=CHAT)
                done = await grants.revoke(only([grant.id for grant in found], beginning, "permission"))
                self._say("Taken back." if done else "It is taken back already.")
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

    async def _resume(self, rest: list[str]) -> None:
        match rest:
            case []:
                found = await self._conversations.stored()
                for row in session_rows(found, without=f"{CHAT}/"):
                    self._line(f"{'*' if row.startswith(self._conversations.id) else ' '} {row}")
                self._say("/resume ID continues one." if found else "There are no conversations yet.")
            case [beginning]:
                self._show(await self._conversations.resume(beginning))
            case _:
                self._say("/resume lists the last conversations, /resume ID continues one.")

    def _show(self, resumed: Resumed) -> None:
        for row, style in shown(last_exchange(resumed.messages), width=self._console.width - 1, most=_LAST_ROWS):
            self._console.print(Styled(row, style=style), soft_wrap=True)
        if resumed.cut_off:
            self._say(
                f"Its terminal ended while the last turn {one_line(resumed.cut_off)}: the turn counts as interrupted, "
                "and nothing of it is run again."
            )
        self._say(f"This is {resumed.id} again, {resumed.turns} turn{'s' if resumed.turns != 1 else ''}.")

    def _line(self, text: str) -> None:
        """One row, cut where the screen ends."""
        row = Styled(text)
        if self._console.is_terminal:
            row.truncate(self._console.width - 1, overflow="ellipsis")
        self._console.print(row, soft_wrap=True)

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
