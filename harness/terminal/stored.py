"""`harness sessions` and `harness grants`: what is kept of conversations, and of permissions."""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from json import dumps
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text as Styled

from harness.errors import ConfigError, StoreError
from harness.events import Event
from harness.messages import JsonObject
from harness.reporters.base import Reporter
from harness.reporters.jsonl import JsonLinesReporter
from harness.reporters.timeline import TimelineReporter
from harness.reporters.visible import one_line, visible
from harness.settings import KernelSettings
from harness.stores.base import Stores
from harness.stores.records import TaskRecord
from harness.terminal.claims import claims_in
from harness.terminal.exits import broken_output, fail
from harness.terminal.keyboard import is_terminal
from harness.terminal.listing import grant_row, session_rows, when
from harness.terminal.lookup import WrongId, find_key, find_tasks, only
from harness.terminal.state import state_folder, stores_in
from harness.terminal.streams import console_on, reconfigure
from harness.terminal.transcript import markdown, shown, to_json

sessions = typer.Typer(no_args_is_help=True, help="Conversations that are kept: list, show, export, delete, trace.")
grants = typer.Typer(no_args_is_help=True, help="Standing permissions that are kept: list, revoke.")

StateHome = Annotated[Path | None, typer.Option(envvar="XDG_STATE_HOME", hidden=True)]
Id = Annotated[str, typer.Argument(metavar="ID", help="the conversation, or how its id begins")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object per line")]
_EVENTS: Final = 10_000


@sessions.command("list")
def list_sessions(
    *, limit: Annotated[int, typer.Option(min=1, help="so many at most")] = 50, state: StateHome = None
) -> None:
    """Key, last use, turns and first words of each conversation, the last used first."""

    async def work(stores: Stores) -> None:
        found = await stores.index.summaries(limit=limit + 1)
        console = console_on(sys.stdout)
        for row in session_rows(found[:limit]):
            line = Styled(row)
            if console.is_terminal:
                line.truncate(console.width - 1, overflow="ellipsis")
            console.print(line, soft_wrap=True)
        if not found:
            typer.echo("There are no conversations.", err=True)
        elif len(found) > limit:
            typer.echo(f"There are more than these {limit}: --limit N shows more.", err=True)

    _with_stores(state, work)


@sessions.command()
def show(id: Id, *, state: StateHome = None) -> None:
    """Show a conversation as a person reads it."""

    async def work(stores: Stores) -> None:
        session = await stores.sessions.load(await find_key(stores, id))
        console = console_on(sys.stdout)
        for row, style in shown(session.messages, width=console.width - 1 if console.is_terminal else None):
            console.print(Styled(row, style=style), soft_wrap=True)

    _with_stores(state, work)


@sessions.command()
def export(id: Id, *, json: AsJson = False, state: StateHome = None) -> None:
    """Write a conversation as Markdown, or each message as JSON."""

    async def work(stores: Stores) -> None:
        session = await stores.sessions.load(key := await find_key(stores, id))
        if json:
            sys.stdout.writelines(f"{_json(to_json(message))}\n" for message in session.messages)
            return
        title = next((s.title for s in await stores.index.summaries(prefix=key) if s.key == key), "")
        text = markdown(title, session.messages)
        # In a file the very text; a terminal would obey what is in it.
        sys.stdout.write(visible(text) if is_terminal(sys.stdout) else text)

    _with_stores(state, work, as_json=json)


@sessions.command()
def delete(
    id: Id,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    state: StateHome = None,
) -> None:
    """Delete all that is kept of a conversation: messages, events, calls, and permissions for it alone."""

    async def work(stores: Stores) -> None:
        key = await find_key(stores, id)
        with claims_in(state_folder(state), is_proof=False) as claims:
            if not claims.take(key):
                raise WrongId(f"{one_line(key)} is open in a terminal: leave it there first.")
            if not yes:
                _confirm(f"Delete {one_line(key)} for good?")
            await stores.retention.forget_session(key)
        typer.echo("Deleted.", err=True)

    _with_stores(state, work)


@sessions.command()
def trace(
    id: Annotated[
        str, typer.Argument(metavar="TASK_OR_SESSION", help="a task or a conversation, or how its id begins")
    ],
    *,
    json: AsJson = False,
    state: StateHome = None,
) -> None:
    """Show everything that happened in one task, or in all tasks of a conversation."""

    async def work(stores: Stores) -> None:
        for number, record in enumerate(await find_tasks(stores, id)):
            if not json:
                if number:
                    sys.stdout.write("\n")
                _announce(record)
            reporter = _tracer(json=json)
            async for event in _events(stores, record.id):
                await reporter.emit(event)

    _with_stores(state, work, as_json=json)


@grants.command("list")
def list_grants(*, state: StateHome = None) -> None:
    """The standing permissions: id, scope, end, tool, arguments; then where they hold and for whom."""

    async def work(stores: Stores) -> None:
        found = await stores.grants.list(now=time.time())
        console = console_on(sys.stdout)
        for grant in found:
            place = one_line(grant.session_key or grant.chat)
            console.print(Styled(f"{grant_row(grant)}  in {place} for {one_line(grant.user) or '-'}"), soft_wrap=True)
        if not found:
            typer.echo("There are no standing permissions.", err=True)

    _with_stores(state, work)


@grants.command()
def revoke(
    id: Annotated[str, typer.Argument(metavar="ID", help="the permission, or how its id begins")],
    *,
    state: StateHome = None,
) -> None:
    """Take a standing permission back."""

    async def work(stores: Stores) -> None:
        found = await stores.grants.list(now=time.time())
        await stores.grants.revoke(only([grant.id for grant in found], id, "permission"))
        typer.echo("Taken back.", err=True)

    _with_stores(state, work)


def _with_stores(state: Path | None, work: Callable[[Stores], Awaitable[None]], *, as_json: bool = False) -> None:
    # JSON is UTF-8 everywhere; of plain text a sign that the terminal lacks must not end the rest.
    reconfigure(sys.stdout, errors="replace", **({"encoding": "utf-8"} if as_json else {}))

    async def opened() -> None:
        async with stores_in(state_folder(state), KernelSettings.load(), create=False) as stores:
            await work(stores)
            sys.stdout.flush()

    try:
        asyncio.run(opened())
    except (ConfigError, StoreError, WrongId) as error:
        fail(str(error))
    except OSError as error:
        broken_output(error)


def _json(message: JsonObject) -> str:
    return dumps(message, ensure_ascii=False, separators=(",", ":"), default=str)


def _confirm(question: str) -> None:
    if not is_terminal(sys.stdin):
        raise WrongId("Nobody can be asked here: add --yes to delete it.")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


def _announce(record: TaskRecord) -> None:
    status = record.status.value if record.status.is_terminal else f"{record.status.value}, not ended"
    text = f"task {record.id}  {when(record.created_at)}  {status}"
    console_on(sys.stdout).print(Styled(text, style="bold"), soft_wrap=True)


def _tracer(*, json: bool) -> Reporter:
    return JsonLinesReporter(sys.stdout) if json else TimelineReporter(sys.stdout, console_on(sys.stdout))


async def _events(stores: Stores, task_id: str) -> AsyncGenerator[Event]:
    after = 0
    while found := await stores.traces.read(task_id, after=after, limit=_EVENTS):
        for event in found:
            yield event
        after = found[-1].seq
