"""`python -m tests.bench [--quick]`: measure and print one JSON object; progress goes to standard error.

The baseline of the first row is what somebody writes who has read the SDK's page: `async for chunk in stream` over
`AsyncOpenAI()` with its default HTTP client, on the event loop that comes with Python. The target is a share of that.
The same loop on uvloop, the event loop of our service, is measured beside it: against it only the code differs.

Both rows are measured for each wire protocol, against the bare loop over the SDK of that protocol's vendor; the chat
protocol, which nearly all servers speak, with more cases than the others.

The second row is measured twice, because text costs at two rates: each delta once (with cards that stay in memory),
and each edit of a card, which draws the answer so far (`slack_drawing`, a figure without a target).
"""

import argparse
import asyncio
import importlib.metadata
import json
import os
import platform
import selectors
import sys
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.appends import appends
from tests.bench.measure import Case, Sample, measure
from tests.bench.memory import memory
from tests.bench.rendering import DELTAS_PER_EDIT, Drawn, draw

STREAMS = 50
SPACING_S = 1 / (STREAMS * 30)
"""Between two deltas, over all streams, at 30 a second in each: the slowest reader is busy a third of the time, so it
waits for every delta, and each is read alone."""
GROWTH_SPACING_S = 0.0004
EDIT_EVERY_S = 1.5
"""What each Slack card does when it is the only one in its workspace; here all are in one, with scaled limits."""
TARGET_CPU_US = 50.0
TARGET_RATIO = 0.2
TARGET_GROWTH = 0.3
PACKAGES = ("anthropic", "openai", "httpx2", "aiohttp", "uvloop", "orjson", "pydantic", "slack-sdk")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="The figures of the speed targets.")
    parser.add_argument("--quick", action="store_true", help="a smoke run of a few seconds; its figures mean nothing")
    parser.add_argument("--rounds", type=int, default=3, help="how often each case of the first row runs (default 3)")
    options = parser.parse_args()
    # epoll waits whole milliseconds; select keeps the pace of the deltas.
    loop_factory = lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())  # noqa: E731
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        print(json.dumps(runner.run(bench(quick=options.quick, rounds=options.rounds)), indent=2))


async def bench(*, quick: bool = False, rounds: int = 3) -> dict[str, Any]:
    """All rows."""
    machine = _machine()
    rows = {
        "delta": await _delta_row(quick=quick, rounds=rounds),
        "growth": await _growth_row(quick=quick),
        **{name: await _protocol_rows(name, quick=quick, rounds=rounds) for name in ("responses", "anthropic")},
        "appends": await appends(quick=quick, rounds=rounds),
        "memory": await memory(quick=quick),
    }
    return {"quick": quick, "machine": machine, "versions": _versions(), **rows}


async def _delta_row(*, quick: bool, rounds: int) -> dict[str, Any]:
    """CPU per streamed delta, ours against a bare loop over the SDK."""
    streams, deltas, rounds = (5, 10, 1) if quick else (STREAMS, 60, rounds)
    tier_scale = streams * 60 / (50 * 0.95 * EDIT_EVERY_S)
    cases = {
        "bare_asyncio": Case("bare", "asyncio", streams, deltas, SPACING_S),
        "bare_uvloop": Case("bare", "uvloop", streams, deltas, SPACING_S),
        "ours": Case("memory_cards", "uvloop", streams, deltas, SPACING_S),
        "ours_slack": Case("slack_cards", "uvloop", streams, deltas, SPACING_S, tier_scale),
    }
    figures = await _rounds("delta", cases, rounds, at_once=quick)
    medians = {name: found["cpu_us_per_delta"]["median"] for name, found in figures.items()}
    ours = medians["ours"]
    ratio = ours / medians["bare_asyncio"]
    edits = figures["ours_slack"]["edits"]
    return {
        "what": "CPU per streamed delta through provider, engine and CardReporter against a bare loop over the SDK",
        "streams": streams,
        "deltas_per_stream": deltas,
        "spacing_ms": round(SPACING_S * 1000, 3),
        "rounds": rounds,
        "cases": figures,
        "baseline": "bare_asyncio: AsyncOpenAI() with all its defaults, on the event loop that comes with Python",
        "ratio": round(ratio, 3),
        "ratio_to_bare_uvloop": round(ours / medians["bare_uvloop"], 3),
        "cpu_us_per_slack_edit": round((medians["ours_slack"] - ours) * streams * deltas / edits) if edits else None,
        "targets": _delta_targets(ours, ratio),
    }


async def _protocol_rows(protocol: str, *, quick: bool, rounds: int) -> dict[str, Any]:
    """Both rows for another protocol; of a smoke run the first."""
    streams, deltas, rounds = (5, 10, 1) if quick else (STREAMS, 60, rounds)
    cases = {
        "bare_asyncio": Case("bare", "asyncio", streams, deltas, SPACING_S, protocol=protocol),
        "ours": Case("memory_cards", "uvloop", streams, deltas, SPACING_S, protocol=protocol),
    }
    figures = await _rounds(f"{protocol} delta", cases, rounds, at_once=quick)
    medians = {name: found["cpu_us_per_delta"]["median"] for name, found in figures.items()}
    ours, ratio = medians["ours"], medians["ours"] / medians["bare_asyncio"]
    rows = {"delta": {"cases": figures, "ratio": round(ratio, 3), "targets": _delta_targets(ours, ratio)}}
    if not quick:  # the same measurement as for the chat protocol, on the provider that has just been tried
        growth, ratio = await _growth(protocol, quick=quick)
        rows["growth"] = {"cases": growth, "ratio": round(ratio, 3), "targets": _growth_targets(ratio)}
    return rows


def _delta_targets(ours: float, ratio: float) -> dict[str, Any]:
    return {
        "cpu_us_per_delta": {"at_most": TARGET_CPU_US, "reached": ours <= TARGET_CPU_US},
        "ratio": {"at_most": TARGET_RATIO, "reached": ratio <= TARGET_RATIO},
    }


def _growth_targets(ratio: float) -> dict[str, Any]:
    return {"ratio": {"at_most": 1 + TARGET_GROWTH, "reached": ratio <= 1 + TARGET_GROWTH}}


async def _growth(protocol: str, *, quick: bool) -> tuple[dict[str, dict[str, Any]], float]:
    """One long answer and short ones with as many deltas together; and the ratio of their costs per delta."""
    long, short, rounds = _growth_sizes(quick=quick)
    cases = {
        "long": Case("memory_cards", "uvloop", 1, long, GROWTH_SPACING_S, protocol=protocol),
        "short": Case("memory_cards", "uvloop", long // short, short, GROWTH_SPACING_S, protocol=protocol),
    }
    figures = await _rounds(f"{protocol} growth", cases, rounds, at_once=quick)
    per_delta = {name: found["cpu_us_per_delta"]["median"] for name, found in figures.items()}
    return figures, per_delta["long"] / per_delta["short"]


def _growth_sizes(*, quick: bool) -> tuple[int, int, int]:
    return (80, 20, 1) if quick else (8_000, 200, 2)


async def _growth_row(*, quick: bool) -> dict[str, Any]:
    """Whether a delta of a long answer costs what one of a short answer costs."""
    long, short, rounds = _growth_sizes(quick=quick)
    figures, ratio = await _growth("chat", quick=quick)
    per_delta = {name: found["cpu_us_per_delta"]["median"] for name, found in figures.items()}
    drawing = await _drawing(long, short, rounds)
    with_drawing = {name: cpu + drawing["cases"][name]["cpu_us_per_delta"] for name, cpu in per_delta.items()}
    return {
        "what": "CPU per delta of one long answer against short answers with as many deltas together",
        "deltas_per_stream": {"long": long, "short": short},
        "rounds": rounds,
        "cases": figures,
        "ratio": round(ratio, 3),
        "ratio_with_slack_drawing": round(with_drawing["long"] / with_drawing["short"], 3),
        "slack_drawing": drawing,
        "targets": _growth_targets(ratio),
    }


async def _drawing(long: int, short: int, rounds: int) -> dict[str, Any]:
    """What drawing Slack cards adds to a delta, of one long answer and of short ones with as many deltas together."""
    longs: list[Drawn] = []
    shorts: list[Drawn] = []
    for _ in range(rounds):
        longs.append(await draw(1, long))
        shorts.append(await draw(long // short, short))
    figures = {"long": _drawn(longs), "short": _drawn(shorts)}
    ratio = figures["long"]["cpu_us_per_delta"] / figures["short"]["cpu_us_per_delta"]
    return {
        "what": "CPU that drawing real Slack cards adds per delta, without sending",
        "deltas_per_edit": DELTAS_PER_EDIT,
        "cases": figures,
        "ratio": round(ratio, 3),
    }


def _drawn(runs: list[Drawn]) -> dict[str, Any]:
    cpu = median(run.cpu_s for run in runs)
    first = runs[0]
    return {
        "cpu_us_per_delta": round(cpu / first.deltas * 1e6, 2),
        "cpu_us_per_view": round(cpu / first.views * 1e6),
        "views": first.views,
        "messages_written": first.writes,
    }


async def _rounds(row: str, cases: dict[str, Case], rounds: int, *, at_once: bool) -> dict[str, dict[str, Any]]:
    """Every case once per round, so that what the machine does besides meets them all; the order alternates."""
    samples: dict[str, list[Sample]] = {name: [] for name in cases}

    async def run(name: str, number: int) -> None:
        sample = await measure(cases[name])
        samples[name].append(sample)
        print(
            f"{row:16} {number}/{rounds} {name:13}{sample.cpu_us:7.1f} us per delta ({sample.system_us:4.1f} kernel), "
            f"{sample.deltas_per_read:.3f} deltas per read, {sample.busy:4.0%} busy",
            file=sys.stderr,
        )

    for number in range(1, rounds + 1):
        order = list(cases) if number % 2 else list(reversed(cases))
        if at_once:
            await asyncio.gather(*(run(name, number) for name in order))
        else:
            for name in order:
                await run(name, number)
    return {name: _figures(found) for name, found in samples.items()}


def _figures(samples: list[Sample]) -> dict[str, Any]:
    cpu = [sample.cpu_us for sample in samples]
    figures: dict[str, Any] = {
        "cpu_us_per_delta": {"median": round(median(cpu), 2), "min": round(min(cpu), 2), "max": round(max(cpu), 2)},
        "system_us_per_delta": round(median(sample.system_us for sample in samples), 2),
        "deltas": samples[0].deltas,
        "deltas_per_read": round(median(sample.deltas_per_read for sample in samples), 4),
        "wakeups_per_delta": round(median(sample.wakeups_per_delta for sample in samples), 3),
        "busy": round(median(sample.busy for sample in samples), 3),
    }
    figures["edits"] = median(sample.edits for sample in samples)
    return figures


def _machine() -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "cpu": model or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in PACKAGES}


if __name__ == "__main__":
    main()
