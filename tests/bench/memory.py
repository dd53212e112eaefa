"""How much memory thousands of turns leave behind: `python -m tests.bench.memory TURNS` runs them and prints JSON.

Everything is as in the service but the platform and the model: tasks, events, calls and conversations in a SQLite file,
twenty turns at a time, a tool in each turn.
"""

import asyncio
import gc
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from bots.telemetry import configure_logging
from harness.admission import InProcessAdmission
from harness.engine import Engine
from harness.gate import ApprovalGate
from harness.limits import Limits
from harness.providers.scripted import ScriptedProvider
from harness.runtime import Runtime, Started
from harness.status import TaskStatus
from harness.stores.sql import open_stores
from harness.tools.base import by_name
from harness.tools.builtin import default_tools
from harness.tools.executor import ToolExecutor

AT_ONCE: Final = 20
TURNS_PER_SESSION: Final = 25
WARM_UP: Final = 1_000
"""Turns before the first look: caches and pools are full by then."""
TARGET_MB: Final = 5.0
_TIMEOUT_S: Final = 300.0
_ROOT: Final = Path(__file__).parents[2]


async def memory(*, quick: bool = False) -> dict[str, Any]:
    """The growth over many turns, measured in a process of its own."""
    turns = 100 if quick else 10_000
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.memory", str(turns)), stdout=asyncio.subprocess.PIPE, cwd=_ROOT
    )
    out, _ = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    if process.returncode:
        raise RuntimeError("the measured process has failed")
    found: dict[str, Any] = json.loads(out)
    grown = found["grown_mb"]
    return {
        "what": "growth of resident memory over so many turns with a tool, everything kept in SQLite",
        **found,
        "targets": {"grown_mb": {"at_most": TARGET_MB, "reached": grown < TARGET_MB}},
    }


async def _measure(turns: int) -> dict[str, Any]:
    warm_up = min(WARM_UP, turns)
    with tempfile.TemporaryDirectory() as folder:
        async with open_stores(None, Path(folder)) as stores:
            gate = ApprovalGate(stores.grants)
            executor = ToolExecutor(by_name(default_tools()))
            engine = Engine(ScriptedProvider(speed=float("inf")), executor, Limits(), system="Be brief.", gate=gate)
            runtime = Runtime(engine, stores.sessions, InProcessAdmission(), parking=stores.parking, records=stores)
            engine.provider.requests = _Nothing()  # type: ignore[attr-defined]  # a scripted model remembers, for tests
            await _turns(runtime, range(warm_up))
            before = _resident_mb()
            await _turns(runtime, range(warm_up, warm_up + turns))
            after = _resident_mb()
            await runtime.aclose()
    return {
        "turns": turns,
        "before_mb": round(before, 2),
        "after_mb": round(after, 2),
        "grown_mb": round(after - before, 2),
    }


class _Nothing(list[Any]):
    """Keeps nothing."""

    def append(self, _item: object, /) -> None:
        pass


async def _turns(runtime: Runtime, numbers: range) -> None:
    waiting = iter(numbers)

    async def worker() -> None:
        for number in waiting:
            session = f"chat/{number // TURNS_PER_SESSION}-{number % 5}"
            outcome = await runtime.run(session, f"calc {number}+1")
            assert isinstance(outcome, Started) or await outcome.task.wait()  # type: ignore[union-attr]
            task = outcome.task  # type: ignore[union-attr]
            assert task.status is TaskStatus.COMPLETED, task.error

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


def _resident_mb() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


if __name__ == "__main__":
    configure_logging("error", "console")
    print(json.dumps(asyncio.run(_measure(int(sys.argv[1])))))
