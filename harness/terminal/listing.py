"""Rows of lists: conversations and standing permissions. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.cells import cell_len

from harness.approval import Grant
from harness.reporters.visible import one_line
from harness.stores.records import SessionSummary


def session_rows(summaries: Sequence[SessionSummary], *, without: str = "") -> Iterator[str]:
    """Key, last use, turns, title; the columns stand below each other. `without`: a beginning of keys to leave out."""
    keys = [one_line(summary.key.removeprefix(without), 200) for summary in summaries]
    width = max(map(cell_len, keys), default=0)
    for key, summary in zip(keys, summaries, strict=True):
        padding = " " * (width - cell_len(key))
        turns = f"{summary.turns} turn{'s' if summary.turns != 1 else ' '}"
        yield f"{key}{padding}  {when(summary.updated_at)}  {turns:>9}  {one_line(summary.title)}".rstrip()


def grant_row(grant: Grant) -> str:
    """Id, scope, end, tool, arguments."""
    scope = "session" if grant.session_key else "always"
    arguments = one_line(str(dict(grant.arguments)), 100)
    return f"{grant.id}  {scope:<7}  until {when(grant.expires_at)}  {one_line(grant.tool, 80)} {arguments}"


def when(at: float) -> str:
    """The time on the clock of this place."""
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M}"
