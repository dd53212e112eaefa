"""One measurement: a model server here, the reader of its answers in a fresh process, and marks around the deltas."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bots.playground.slack.server import SlackServer
from tests.bench.answers import answer_pieces
from tests.bench.model import PacedModelServer
from tests.bench.worker import RATE_BUDGET, Job

SETTLE_S = 0.2
_TIMEOUT_S = 120.0
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Case:
    """What is measured. `tier_scale`: the cards are posted to a Slack server with so many times Slack's limits."""

    reader: str
    loop: str
    streams: int
    deltas: int
    spacing_s: float
    tier_scale: float | None = None
    protocol: str = "chat"


@dataclass(frozen=True)
class Sample:
    """What one run of a case gave, between the first delta and the last.

    `cpu_us` per delta, of the measured process alone; `system_us` is the kernel's part of it. `deltas_per_read` and
    `wakeups_per_delta` (how often the process had gone to sleep) tell whether the deltas arrived one by one. `busy`:
    CPU time per time.
    """

    cpu_us: float
    system_us: float
    deltas: int
    deltas_per_read: float
    wakeups_per_delta: float
    busy: float
    edits: int = 0


async def measure(case: Case) -> Sample:
    """Run a case once. Raises RuntimeError when the work was not done as it should be."""
    async with asyncio.timeout(_TIMEOUT_S), PacedModelServer() as model, _slack(case) as slack:
        job = Job(case.reader, case.loop, model.port, case.streams, case.deltas, _slack_job(slack, case), case.protocol)
        async with _worker(job, model.base_url) as worker:
            await worker.unless_it_fails(model.wait_open(case.streams))
            if slack is not None:
                await worker.unless_it_fails(_posted(slack, case.streams))
            await asyncio.sleep(SETTLE_S)
            await worker.mark()
            edits = _edits(slack)
            seconds = await model.play(case.spacing_s)
            await asyncio.sleep(SETTLE_S)
            await worker.mark()
            edits = _edits(slack) - edits
            model.finish()
            done = await worker.result()
        if done["bytes"] != model.bytes_sent:
            raise RuntimeError(f"{case}: {model.bytes_sent} bytes were sent and {done['bytes']} read")
    deltas = case.streams * case.deltas
    if done["deltas"] != deltas:
        raise RuntimeError(f"{case}: {deltas} deltas were sent and {done['deltas']} seen")
    if slack is not None:
        _check_cards(slack, case)
    first, last = done["marks"]
    cpu = last["cpu_s"] - first["cpu_s"]
    return Sample(
        cpu_us=cpu / deltas * 1e6,
        system_us=(last["system_s"] - first["system_s"]) / deltas * 1e6,
        deltas=deltas,
        deltas_per_read=deltas / (last["reads"] - first["reads"]),
        wakeups_per_delta=(last["wakeups"] - first["wakeups"]) / deltas,
        busy=cpu / seconds,
        edits=edits,
    )


class _Worker:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._in = process.stdin
        self._out = process.stdout

    async def send(self, line: str) -> None:
        self._in.write(f"{line}\n".encode())
        await self._in.drain()

    async def mark(self) -> None:
        await self.send("mark")
        if await self._out.readline() != b"marked\n":
            raise RuntimeError("the measured process has failed")

    async def result(self) -> dict[str, Any]:
        line = await self._out.readline()
        if await self._process.wait() or not line:
            raise RuntimeError("the measured process has failed")
        return json.loads(line)

    async def unless_it_fails(self, waiting: Any) -> None:
        """Wait for something that the measured process brings about."""
        waiter, ended = asyncio.ensure_future(waiting), asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait({waiter, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not waiter.done():
                raise RuntimeError("the measured process has failed")
            waiter.result()
        finally:
            for future in (waiter, ended):
                future.cancel()
            await asyncio.gather(waiter, ended, return_exceptions=True)


@asynccontextmanager
async def _worker(job: Job, base_url: str) -> AsyncGenerator[_Worker]:
    # Nothing else of the environment: a proxy or a setting of the person at the keyboard is not what is measured.
    env = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
    env |= {"OPENAI_API_KEY": "sk-bench", "OPENAI_BASE_URL": f"{base_url}/v1", "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"ANTHROPIC_API_KEY": "sk-bench", "ANTHROPIC_BASE_URL": base_url}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=env,
        cwd=_ROOT,
    )
    try:
        worker = _Worker(process)
        await worker.send(json.dumps(asdict(job)))
        yield worker
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def _slack(case: Case) -> AsyncGenerator[SlackServer | None]:
    if case.tier_scale is None:
        yield None
        return
    async with SlackServer(tier_scale=case.tier_scale).serving() as server:
        yield server


def _slack_job(slack: SlackServer | None, case: Case) -> dict[str, Any] | None:
    if slack is None or case.tier_scale is None:
        return None
    space = slack.space
    return {
        "token": slack.token,
        "api_url": slack.api_url,
        "rate_budget": RATE_BUDGET * case.tier_scale,
        "chat": next(channel.id for channel in space.channels.values() if channel.name == "general"),
        "user": next(person.id for person in space.people.values() if person.name == "alice"),
        "threads": [slack.say("general", "alice", f"question {n}", mention=True) for n in range(case.streams)],
    }


async def _posted(slack: SlackServer, cards: int) -> None:
    while len([call for call in slack.calls if call.method == "chat.postMessage"]) < cards:
        await asyncio.sleep(0.02)


def _edits(slack: SlackServer | None) -> int:
    return sum(call.method == "chat.update" for call in slack.calls) if slack is not None else 0


def _check_cards(slack: SlackServer, case: Case) -> None:
    """Each thread holds one card that is done and shows the whole answer of its number."""
    cards: list[Mapping[str, Any]] = [m for m in slack.messages("general") if m["author"] == "bot" and not m["deleted"]]
    shown = {_number(str(card["text"])): "".join(str(card["text"]).split()) for card in cards}
    for number in range(case.streams):
        answer = "".join("".join(answer_pieces(number, case.deltas)).split())
        text = shown.get(number, "")
        if answer not in text or "Done" not in text:
            raise RuntimeError(f"the card of answer {number} is wrong: {text!r}")
    if (violations := slack.stats()["violations"]) or slack.http.rate_limited:
        raise RuntimeError(f"Slack's rules were broken: {violations}, {slack.http.rate_limited} times too fast")


def _number(text: str) -> int:
    return int(text.partition("Answer ")[2].partition(".")[0] or -1)
