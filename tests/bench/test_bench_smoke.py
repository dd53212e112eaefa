"""The bench does what it says. How fast it is says nothing here: this machine is busy with tests."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.answers import answer_pieces, asked_for, question

ROOT = Path(__file__).parents[2]


def test_an_answer_is_known_by_its_question() -> None:
    assert asked_for(question(7, 300)) == (7, 300)
    assert len(answer_pieces(7, 300)) == 300
    assert answer_pieces(7, 300) != answer_pieces(8, 300)
    assert all(answer_pieces(7, 300))


@pytest.mark.timeout(180)  # a dozen processes, each of which loads an SDK
async def test_quick_run() -> None:
    # That every delta was read and every answer and card is right is checked in each case: a wrong one ends the run.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench", "--quick"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    out, progress = await process.communicate()
    assert process.returncode == 0, progress.decode()
    report: dict[str, Any] = json.loads(out)
    assert report["quick"] is True
    assert report["machine"]["cores"] > 0
    assert {"python", "openai", "aiohttp", "uvloop"} <= set(report["versions"])

    for name in ("responses", "anthropic"):
        found = report[name]["delta"]
        assert found["ratio"] > 0
        assert {case["deltas"] for case in found["cases"].values()} == {5 * 10}

    assert set(report["appends"]["cases"]) == {
        f"{database}_{kind}" for database in ("sqlite_file", "postgresql") for kind in ("events", "sessions")
    }
    assert report["memory"]["turns"] == 100

    delta, growth = report["delta"], report["growth"]
    assert set(delta["cases"]) == {"bare_asyncio", "bare_uvloop", "ours", "ours_slack"}
    assert set(growth["cases"]) == {"long", "short"}
    for case in delta["cases"].values():
        assert case["deltas"] == 5 * 10
    for case in growth["cases"].values():
        assert case["deltas"] == 80
    for case in (*delta["cases"].values(), *growth["cases"].values()):
        assert 0 < case["cpu_us_per_delta"]["min"] <= case["cpu_us_per_delta"]["median"]
        assert case["deltas_per_read"] > 0
    assert delta["baseline"].startswith("bare_asyncio")
    assert delta["ratio"] > 0
    assert delta["ratio_to_bare_uvloop"] > 0
    drawing = growth["slack_drawing"]
    assert [drawing["cases"][name]["views"] for name in ("long", "short")] == [2, 4]
    assert drawing["cases"]["long"]["messages_written"] >= drawing["cases"]["long"]["views"]
    for row in (delta, growth):
        for target in row["targets"].values():
            assert set(target) == {"at_most", "reached"}
