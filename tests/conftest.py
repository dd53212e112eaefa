"""What every test has: no real model can be reached, and nothing is left running behind a test."""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import pytest_asyncio
import structlog

# On a build server the examples are the same every time: a new find belongs to the developer who runs the suite, not to
# whoever happens to build next.
hypothesis.settings.register_profile("quick", max_examples=40)
hypothesis.settings.register_profile("ci", max_examples=40, derandomize=True)
hypothesis.settings.register_profile("chaos", max_examples=1_000)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "quick")

# A key in the developer's environment must never turn a test into a bill.
structlog.configure(
    processors=[
        structlog.stdlib.add_log_level,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

for name in [name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_", "SLACK_", "BOTS_", "REDIS_URL"))]:
    del os.environ[name]

# Nobody outside is trusted: what a test reaches is on this machine. Reading the system's certificates would also take
# longer than most tests that make a client.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("nobody.pem"))

# What importing makes is kept: until all is collected there is no garbage to look for, and afterwards not among that.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--chaos"):
        hypothesis.settings.load_profile("chaos")


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()


@pytest_asyncio.fixture(autouse=True)
async def no_task_left_behind(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Fail when a test leaves a task running on its event loop: in production that is a leak."""
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0)
    left = [task for task in asyncio.all_tasks() - before if not task.done() and task is not asyncio.current_task()]
    if left and "allow_tasks" not in request.keywords:
        names = ", ".join(task.get_name() for task in left)
        for task in left:
            task.cancel()
        pytest.fail(f"left running: {names}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos", action="store_true", help="more kills at more moments, and many more examples")
    parser.addoption("--no-skips", action="store_true", help="a skipped test fails the run: for machines that have all")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    report = outcome.get_result()
    if item.config.getoption("--no-skips") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but nothing may be skipped here: {report.longrepr}"
