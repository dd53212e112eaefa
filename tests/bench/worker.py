"""The process that is measured: `python -m tests.bench.worker`, one case per process.

It reads what to do as a line of JSON, and then one line per mark: at each mark it notes its CPU time and says so. Its
last line is what it has done and seen, as JSON.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import uvloop

from bots.cards.reporter import CardReporter, Deck
from bots.cards.surface import CardSurface, Priority
from bots.cards.view import CardView
from bots.slack.limits import CHAT_UPDATE, UPDATE_FLOOR_SECONDS, scaled
from bots.telemetry import configure_logging
from harness.admission import InProcessAdmission
from harness.engine import Engine
from harness.limits import Limits
from harness.providers.select import provider_from
from harness.runtime import Runtime, Started
from harness.settings import KernelSettings
from harness.stores.memory import MemorySessionStore
from harness.tools.base import by_name
from harness.tools.builtin import default_tools
from harness.tools.executor import ToolExecutor
from tests.bench.answers import answer_pieces, question

RATE_BUDGET = 0.95
"""The service's default share of the vendor's limits."""


@dataclass(frozen=True)
class Job:
    """What a worker does. `slack`: address, token and chat of the Slack server, for the cards that are posted there."""

    reader: str
    loop: str
    port: int
    streams: int
    deltas: int
    slack: dict[str, Any] | None = None
    protocol: str = "chat"


@dataclass(frozen=True)
class Mark:
    """What the process had used, and read from the model server, at one moment."""

    cpu_s: float
    system_s: float
    reads: int
    wakeups: int


class ReadCounter:
    """Counts what arrives from the model server, one Python call per read: the same for every reader."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self.reads = 0
        self.bytes = 0
        self._port = port
        self._classes: dict[type, type] = {}
        self._connect = loop.create_connection
        loop.create_connection = self._counted  # type: ignore[method-assign]

    def mark(self) -> Mark:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Mark(time.process_time(), usage.ru_stime, self.reads, usage.ru_nvcsw)

    async def _counted(self, factory: Callable[[], Any], *args: Any, **options: Any) -> Any:
        def counted_factory() -> Any:
            protocol = factory()
            # One class for all connections, as there is without counting: the interpreter speeds up code that meets
            # one class only, and with a class for each connection the counting would cost more than the reading.
            cls = type(protocol)
            protocol.__class__ = self._classes.get(cls) or self._classes.setdefault(cls, self._counting(cls))
            return protocol

        sock = options.get("sock")
        port = sock.getpeername()[1] if sock is not None else args[1]
        return await self._connect(counted_factory if port == self._port else factory, *args, **options)

    def _counting(self, base: Any) -> Any:
        counter = self

        class Counting(base):
            __slots__ = ()

            def data_received(self, data: bytes) -> None:
                if data:  # aiohttp also calls with nothing, to go on with what it holds
                    counter.reads += 1
                    counter.bytes += len(data)
                base.data_received(self, data)

        return Counting


class MemorySurface:
    """A card that takes every view at once, at the pace of a Slack card."""

    def __init__(self) -> None:
        self.view = CardView()
        self.shows = 0

    def wait_time(self, priority: Priority) -> float:
        return 0.0

    def interval(self, live_cards: int) -> float:
        limit = scaled(CHAT_UPDATE, RATE_BUDGET)
        return max(UPDATE_FLOOR_SECONDS, live_cards * limit.per_seconds / limit.calls)

    def turn(self, priority: Priority) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def show(self, view: CardView, priority: Priority) -> None:
        self.view = view
        self.shows += 1

    async def repost(self, view: CardView) -> None:
        raise AssertionError("nothing here fails")

    async def remove(self) -> None:
        raise AssertionError("nothing here is recalled")


async def bare(job: Job) -> dict[str, Any]:
    """The SDK as everybody uses it, with its defaults; key and address come from the environment."""
    client = _bare_client(job.protocol)

    async def read(number: int) -> int:
        chunks = 0
        async for _chunk in await _BARE_STREAMS[job.protocol](client, question(number, job.deltas)):
            chunks += 1
        return chunks

    chunks = await asyncio.gather(*(read(number) for number in range(job.streams)))
    await client.close()
    return {"deltas": sum(chunks) - _OTHER_EVENTS[job.protocol] * job.streams}


def _bare_client(protocol: str) -> Any:
    # Imported only where it is used: each takes seconds, and a process measures one case.
    if protocol == "anthropic":
        import anthropic

        return anthropic.AsyncAnthropic()
    import openai

    return openai.AsyncOpenAI()


async def _bare_chat(client: Any, asked: str) -> Any:
    messages = [{"role": "user", "content": asked}]
    return await client.chat.completions.create(model="bench", messages=messages, stream=True)


async def _bare_responses(client: Any, asked: str) -> Any:
    return await client.responses.create(model="bench", input=asked, stream=True)


async def _bare_anthropic(client: Any, asked: str) -> Any:
    messages = [{"role": "user", "content": asked}]
    return await client.messages.create(model="bench", messages=messages, max_tokens=100_000, stream=True)


_BARE_STREAMS: dict[str, Callable[[Any, str], Awaitable[Any]]] = {
    "chat": _bare_chat,
    "responses": _bare_responses,
    "anthropic": _bare_anthropic,
}
_OTHER_EVENTS = {"chat": 2, "responses": 8, "anthropic": 5}
"""Events before the first delta and behind the last one, as the SDK shows them (Anthropic's hides its pings)."""


async def memory_cards(job: Job) -> dict[str, Any]:
    """Ours, with cards that stay in memory."""
    surfaces = [MemorySurface() for _ in range(job.streams)]
    answers, deltas = await _ours(job, surfaces)
    for number, surface in enumerate(surfaces):
        assert surface.view.text == answers[number], f"card {number} does not show its answer"
        assert surface.view.phase.is_final
    return {
        "deltas": deltas,
        "shows": sum(surface.shows for surface in surfaces),
    }


async def slack_cards(job: Job) -> dict[str, Any]:
    """Ours, with real Slack cards."""
    from bots.platform import ReplyAddress
    from bots.slack.platform import SlackPlatform

    assert job.slack is not None
    platform = SlackPlatform(
        job.slack["token"], api_url=job.slack["api_url"], rate_budget=job.slack["rate_budget"], model="bench"
    )
    await platform.start()
    try:
        await platform.wait_ready()
        assert platform.identity is not None
        chat, user, team = job.slack["chat"], job.slack["user"], platform.identity.team_id
        cards = [
            platform.card(ReplyAddress("slack", team, chat, ts, ts, user), str(number), "en")
            for number, ts in enumerate(job.slack["threads"])
        ]
        _, deltas = await _ours(job, cards)
    finally:
        await platform.aclose()
    return {"deltas": deltas}


async def _ours(job: Job, surfaces: list[Any]) -> tuple[list[str], int]:
    """One task per surface through runtime, engine, provider and reporter; the checked answers and their deltas."""
    # As the service builds it, from the settings: key and address come from the environment.
    settings = KernelSettings(_env_file=None).model_copy(  # type: ignore[call-arg]
        update={"model_protocol": job.protocol, "openai_model": "bench", "anthropic_model": "bench"}
    )
    provider = provider_from(settings)
    engine = Engine(provider, ToolExecutor(by_name(default_tools()), timeout_s=30), Limits(), system="Be brief.")
    runtime = Runtime(engine, MemorySessionStore(), InProcessAdmission())
    deck = Deck()

    deltas = 0

    async def run(number: int, surface: CardSurface) -> str:
        nonlocal deltas
        outcome = await runtime.start(f"chat {number}", question(number, job.deltas), CardReporter(surface, deck))
        assert isinstance(outcome, Started)
        await outcome.task.wait()
        expected = "".join(answer_pieces(number, job.deltas))
        assert outcome.task.result == expected, f"answer {number}: {outcome.task.error or outcome.task.result!r}"
        kept = [event.seq async for event in outcome.task.events()]
        deltas += kept[-1] - len(kept)  # all events are numbered, and only pieces of the answer are not kept
        return expected

    answers = await asyncio.gather(*(run(number, surface) for number, surface in enumerate(surfaces)))
    await deck.aclose(grace_s=30)
    await runtime.aclose()
    await provider.aclose()
    return answers, deltas


READERS: dict[str, Callable[[Job], Awaitable[dict[str, Any]]]] = {
    "bare": bare,
    "memory_cards": memory_cards,
    "slack_cards": slack_cards,
}


async def _main(job: Job) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    counter = ReadCounter(loop, job.port)
    commands = asyncio.StreamReader()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    marks: list[Mark] = []

    async def keep_marks() -> None:
        while await commands.readline():
            marks.append(counter.mark())
            print("marked", flush=True)

    keeping = asyncio.create_task(keep_marks())
    done = await READERS[job.reader](job)
    keeping.cancel()
    pipe.close()
    return done | {"bytes": counter.bytes, "marks": [asdict(mark) for mark in marks]}


def main() -> None:
    """Do the job on standard input."""
    configure_logging("WARNING", "console")
    job = Job(**json.loads(sys.stdin.buffer.raw.readline()))  # type: ignore[attr-defined]  # unbuffered: more follows
    loop_factory = uvloop.new_event_loop if job.loop == "uvloop" else None
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        print(json.dumps(runner.run(_main(job))))


if __name__ == "__main__":
    main()
