"""Group commit: one writer takes what has gathered and commits it in one transaction.

Fifty callers that write at once wait for one commit, not for fifty. Each of them still gets its own answer:

- what is refused (a conflict, a full disk) is parted from its group by halves, so that it fails alone;
- what passes by itself (locked, restarting) is tried again until the caller's time is up;
- a commit whose answer was lost is looked up, never guessed at and never done twice.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from harness.errors import StoreError
from harness.stores.faults import passing, refusal
from harness.task_registry import TaskRegistry

log = structlog.stdlib.get_logger(__name__)

MAX_GROUP: Final = 256
MAX_WAITING: Final = 4096
PATIENCE_S: Final = 10.0
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 0.5
_CLOSED: Final = "the store is closed"

Apply = Callable[[AsyncConnection, Sequence[Any]], Awaitable[Sequence[Any]]]


class OutcomeUnknown(StoreError):
    """The connection was lost during a commit and does not come back: the write took effect, or it did not.

    The one StoreError after which it is not known that nothing was written. Nothing is tried again.
    """


class NotTogether(StoreError):
    """Two changes of one group that cannot be done by one statement; they are done one after the other."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One change. `apply` does any number of its kind at once and gives a result for each, in order.

    It raises when one of them is refused: then the whole transaction is undone, and the changes are tried in smaller
    groups. It is called for changes of several callers together, and must not keep anything between two calls.
    """

    apply: Apply
    change: Any


class Link(Protocol):
    """How the writer reaches its database."""

    async def connect(self) -> AsyncConnection:
        """A connection for writing."""
        ...

    async def mark(self, connection: AsyncConnection) -> int | None:
        """Begin the transaction: a number by which its outcome can be looked up, None when that is never needed."""
        ...

    async def was_committed(self, connection: AsyncConnection, mark: int) -> bool:
        """The outcome of the last marked transaction, once it is over."""
        ...

    @property
    def turn(self) -> asyncio.Lock:
        """Held during a transaction: readers of the same connection must not see half of it."""
        ...


@dataclass(slots=True, eq=False)
class _Unit:
    operations: tuple[Operation, ...]
    done: asyncio.Future[Sequence[Any]]
    deadline: float


class Writer:
    """The one writer of a database in this process. `patience_s`: how long a write may wait for the database."""

    def __init__(self, link: Link, *, patience_s: float = PATIENCE_S) -> None:
        self._link = link
        self._patience_s = patience_s
        self._queue: asyncio.Queue[_Unit | None] = asyncio.Queue(MAX_WAITING)
        self._registry = TaskRegistry()
        self._connection: AsyncConnection | None = None
        self._closed = False
        self._trouble = ""
        self._task = self._registry.start(self._run(), "store writer")

    async def write(self, *operations: Operation) -> Sequence[Any]:
        """Do all of it in one transaction, durably, and return the results in order.

        Raises StoreError when the database could not do it in time, and whatever the operations raise; then nothing
        of it was done, but for `OutcomeUnknown`. A caller that is canceled while it waits leaves a write that is done
        whole, or not at all.
        """
        loop = asyncio.get_running_loop()
        unit = _Unit(operations, loop.create_future(), loop.time() + self._patience_s)
        unit.done.add_done_callback(_retrieve)
        if self._closed:
            raise StoreError(_CLOSED)
        try:
            async with asyncio.timeout_at(unit.deadline):
                await self._queue.put(unit)
        except TimeoutError:
            raise StoreError(
                f"the database is too slow: {MAX_WAITING} writes wait for it, and none was done in "
                f"{self._patience_s:g} s"
            ) from None
        if self._task.done():
            # It ended while this unit waited for a place in the queue.
            raise StoreError(_CLOSED)
        # Shielded: the write goes on without its caller, and the future belongs to the writer.
        return await asyncio.shield(unit.done)

    async def aclose(self) -> None:
        """Do what still waits, then let go of the database."""
        if not self._closed:
            self._closed = True
            await self._queue.put(None)
        await asyncio.wait([self._task])
        await self._disconnect()

    async def _run(self) -> None:
        while (unit := await self._queue.get()) is not None:
            group = [unit]
            while len(group) < MAX_GROUP and not self._queue.empty():
                following = self._queue.get_nowait()
                if following is None:
                    self._queue.put_nowait(None)
                    break
                group.append(following)
            try:
                # Behind a database that is away a queue has gathered: whose time is up is not tried any more.
                await self._settle(self._still_in_time(group, self._trouble) if self._trouble else group)
            except Exception as error:
                # A fault of ours must not stop every later write.
                log.exception("the store's writer failed")
                for lost in group:
                    _fail(lost, StoreError(f"the store failed inside ({type(error).__name__}): this is a bug"))
        while not self._queue.empty():
            if late := self._queue.get_nowait():
                _fail(late, StoreError(_CLOSED))

    async def _settle(self, group: Sequence[_Unit]) -> None:
        """Give every unit its result or its error."""
        pause = _FIRST_PAUSE_S
        while group:
            try:
                results = await self._transaction(group)
            except OutcomeUnknown as error:
                for unit in group:
                    _fail(unit, error)
                return
            except Exception as error:
                if reason := passing(error):
                    self._trouble = reason
                    group = self._still_in_time(group, reason)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
                    continue
                if len(group) == 1:
                    _fail(group[0], refusal(error))
                    return
                half = len(group) // 2
                await self._settle(group[:half])
                await self._settle(group[half:])
                return
            self._trouble = ""
            for unit, result in zip(group, results, strict=True):
                if not unit.done.done():
                    unit.done.set_result(result)
            return

    def _still_in_time(self, group: Sequence[_Unit], reason: str) -> Sequence[_Unit]:
        now = asyncio.get_running_loop().time()
        for unit in group:
            if unit.deadline <= now:
                _fail(unit, StoreError(f"{reason} (waited {self._patience_s:g} s)"))
        return [unit for unit in group if not unit.done.done()]

    async def _transaction(self, group: Sequence[_Unit]) -> Sequence[Sequence[Any]]:
        async with self._link.turn:
            connection = self._connection or await self._link.connect()
            self._connection = connection
            try:
                mark = await self._link.mark(connection)
                results = await _apply(connection, group)
            except BaseException:
                await self._undo(connection)
                raise
            try:
                await connection.commit()
            except Exception as error:
                await self._undo(connection)
                if mark is None or not passing(error):
                    raise
                if not await self._was_committed(mark, group):
                    raise
            return results

    async def _was_committed(self, mark: int, group: Sequence[_Unit]) -> bool:
        """The outcome of a commit whose answer was lost."""
        loop = asyncio.get_running_loop()
        # The callers have waited for the commit itself already: looking it up gets time of its own.
        deadline = max(max(unit.deadline for unit in group), loop.time() + self._patience_s)
        while True:
            try:
                connection = self._connection or await self._link.connect()
                self._connection = connection
                committed = await self._link.was_committed(connection, mark)
                await connection.rollback()
                return committed
            except Exception as error:
                await self._disconnect()
                if not passing(error):
                    raise
            if loop.time() >= deadline:
                raise OutcomeUnknown(
                    "the connection to the database was lost during a commit, and it does not come back: whether the "
                    "write took effect is unknown"
                )
            await asyncio.sleep(_FIRST_PAUSE_S)

    async def _undo(self, connection: AsyncConnection) -> None:
        try:
            await connection.rollback()
        except Exception:
            await self._disconnect()
        else:
            if connection.invalidated:
                await self._disconnect()

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # A connection that is lost cannot say goodbye.
            with contextlib.suppress(Exception):
                await connection.close()


async def _apply(connection: AsyncConnection, group: Sequence[_Unit]) -> Sequence[Sequence[Any]]:
    """Do the changes of the whole group, all of a kind at once, kinds in the order of their first appearance."""
    kinds: dict[Apply, list[tuple[int, int]]] = {}
    results: list[list[Any]] = [[None] * len(unit.operations) for unit in group]
    for number, unit in enumerate(group):
        for position, operation in enumerate(unit.operations):
            kinds.setdefault(operation.apply, []).append((number, position))
    for apply, places in kinds.items():
        done = await apply(connection, [group[number].operations[position].change for number, position in places])
        for (number, position), result in zip(places, done, strict=True):
            results[number][position] = result
    return results


def _fail(unit: _Unit, error: Exception) -> None:
    if not unit.done.done():
        unit.done.set_exception(error)


def _retrieve(done: asyncio.Future[Sequence[Any]]) -> None:
    # The caller may have been canceled: then nobody asks for the error, and that is no leak.
    if not done.cancelled():
        done.exception()
