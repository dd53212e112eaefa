"""Find what a person means by an id, or by the beginning of one."""

from collections.abc import Iterable, Sequence
from typing import Final

from harness.errors import HarnessError
from harness.reporters.visible import one_line
from harness.stores.base import Stores
from harness.stores.records import TaskRecord

CHAT: Final = "terminal"
"""What all conversations of terminals have in common: the part of their keys before the slash."""
_MOST: Final = 1000
_NAMED: Final = 5


class WrongId(HarnessError):
    """An id that means nothing, or more than one thing; the message says so in one sentence."""


class UnknownId(WrongId):
    """There is no such thing."""


def only(ids: Iterable[str], beginning: str, what: str) -> str:
    """The one of these ids that begins so; one that is written whole is meant, whatever else begins with it.

    Raises `WrongId`, and `UnknownId` when there is none. `what`: the word for such a thing.
    """
    found = sorted({name for name in ids if beginning and name.startswith(beginning)})
    if beginning in found:
        return beginning
    if not found:
        raise UnknownId(f"There is no {what} {one_line(beginning, 80)}.")
    if len(found) > 1:
        names = ", ".join(one_line(name, 80) for name in found[:_NAMED]) + (", ..." if len(found) > _NAMED else "")
        raise WrongId(f"More than one {what} begins with {one_line(beginning, 80)}: {names}.")
    return found[0]


async def find_key(stores: Stores, beginning: str) -> str:
    """The key of a conversation; of a terminal's the part behind the slash is enough. Raises `WrongId`."""
    written = (beginning, f"{CHAT}/{beginning}") if beginning else ()
    for key in written:
        # Also one that was cleared: its turns are still known.
        if await stores.tasks.of_session(key, limit=1) or (await stores.sessions.load(key)).messages:
            return key
    keys = {found.key for key in written for found in await stores.index.summaries(prefix=key, limit=_MOST)}
    matching = {key if key.startswith(beginning) else key.removeprefix(f"{CHAT}/"): key for key in keys}
    return matching[only(matching, beginning, "conversation")]


async def find_tasks(stores: Stores, beginning: str) -> Sequence[TaskRecord]:
    """A task by its id, or all tasks of a conversation, the oldest first. Raises `WrongId`."""
    if (record := await stores.tasks.get(beginning)) is not None:
        return [record]
    try:
        key = await find_key(stores, beginning)
    except UnknownId:
        return [await _find_task(stores, beginning)]
    return list(reversed(await stores.tasks.of_session(key, limit=_MOST)))


async def _find_task(stores: Stores, beginning: str) -> TaskRecord:
    """Among those of the conversations used last: tasks have no list of their own."""
    tasks: dict[str, TaskRecord] = {}
    for summary in await stores.index.summaries(limit=_MOST):
        tasks |= {record.id: record for record in await stores.tasks.of_session(summary.key, limit=_MOST)}
    return tasks[only(tasks, beginning, "conversation or task")]
