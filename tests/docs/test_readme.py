"""What the README says is true: its commands run, its promises are proved by tests that exist."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bots.playground.serving import free_port

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.strip().splitlines()]


def clean_env(**extra: str) -> dict[str, str]:
    keep = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
    return {**keep, "PYTHONDONTWRITEBYTECODE": "1", **extra}


def run(command: str, *, typed: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the README as it stands, with this interpreter in the place of the environment's."""
    line = command.replace(".venv/bin/python", sys.executable)
    return subprocess.run(
        line, shell=True, cwd=ROOT, env=clean_env(**extra), input=typed, capture_output=True, text=True, timeout=60
    )


def get(url: str, body: object = None) -> object:
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.loads(answer.read())


async def demo(command: str, tmp_path: Path, **extra: str) -> str:
    """Start the demo as the README says, have the bot answer, stop it with Ctrl-C; gives what it printed."""
    port = free_port()
    option = f'ARGS="--port {port} --no-open"' if "make" in command else f"--port {port} --no-open"
    line = f"exec {command.replace('.venv/bin/python', sys.executable)} {option}"
    if line.startswith("exec OPENAI"):
        line = line.removeprefix("exec ")
    process = await asyncio.create_subprocess_shell(
        line, cwd=ROOT, env=clean_env(BOTS_DATA_DIR=str(tmp_path / "data"), **extra), start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    printed = b""
    try:
        async with asyncio.timeout(40):
            while b"Ctrl-C" not in printed:
                line_read = await process.stdout.readline()
                assert line_read, printed.decode()
                printed += line_read
        base = f"http://127.0.0.1:{port}/api"
        assert f"http://127.0.0.1:{port}" in printed.decode()
        if "scripted" in printed.decode():
            say = {"platform": "slack", "chat": "general", "user": "alice", "text": "calc 2*(3+4)", "mention": True}
            await asyncio.to_thread(get, f"{base}/say", say)
            end = time.monotonic() + 20
            texts: list[str] = []
            while time.monotonic() < end and not any("Done" in text and "14" in text for text in texts):
                messages = await asyncio.to_thread(get, f"{base}/messages?platform=slack&chat=general")
                assert isinstance(messages, list)
                texts = [message["text"] for message in messages]
                await asyncio.sleep(0.1)
            assert any("Done" in text and "14" in text for text in texts), texts
            stats = await asyncio.to_thread(get, f"{base}/stats")
            assert isinstance(stats, dict)
            assert stats["violations"] == []
    finally:
        os.killpg(process.pid, signal.SIGINT)
        rest = await asyncio.wait_for(process.stdout.read(), 20)
        await process.wait()
    return (printed + rest).decode()


SERVE = (
    "SLACK_BOT_TOKEN=xoxb-... SLACK_SIGNING_SECRET=... OPENAI_API_KEY=sk-... OPENAI_MODEL=gpt-5-mini "
    ".venv/bin/python -m bots serve"
)


def test_every_command_is_known_to_this_file() -> None:
    assert set(COMMANDS) == {
        "make demo",
        "make test",
        "OPENAI_API_KEY=sk-... OPENAI_MODEL=gpt-5-mini make demo",
        "OPENAI_API_KEY=none OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=qwen3 make demo",
        "python3 -m venv .venv",
        ".venv/bin/pip install --require-hashes -r requirements.lock",
        ".venv/bin/python -m bots demo",
        '.venv/bin/python -m harness run --model scripted "calc 2*(3+4)"',
        '.venv/bin/python -m harness run --model scripted --json "hello"',
        '.venv/bin/python -m harness run --model scripted --timeline "calc 2*(3+4)"',
        ".venv/bin/python -m harness chat --model scripted",
        SERVE,
    }


needs_environment = pytest.mark.skipif(
    not (ROOT / ".venv/.product").exists(), reason="make demo would install an environment here first"
)


@needs_environment
async def test_make_demo_shows_the_product_and_ctrl_c_stops_it(tmp_path: Path) -> None:
    printed = await demo("make demo", tmp_path)
    assert "scripted" in printed
    assert "Installing" not in printed, "the environment is there already"


def test_the_demo_without_make_is_the_very_same_command() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "-n", "demo", "ARGS="], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert shown.splitlines()[-1].strip() == ".venv/bin/python -m bots demo"


@needs_environment
async def test_the_demo_with_a_model_of_ones_own(tmp_path: Path) -> None:
    command = "OPENAI_API_KEY=none OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=qwen3 make demo"
    assert "Model: qwen3" in await demo(command, tmp_path)


def test_make_test_runs_every_check() -> None:
    shown = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for check in ("ruff format --check", "ruff check", "pyright", "lint-imports", "pytest"):
        assert check in shown


def test_the_locked_dependencies_install_with_their_hashes() -> None:
    command = ".venv/bin/pip install --require-hashes -r requirements.lock"
    # Everything is installed here already, so a dry run checks all of it and fetches nothing.
    done = run(command.replace(".venv/bin/pip", ".venv/bin/python -m pip").replace("install", "install --dry-run -q"))
    assert done.returncode == 0, done.stderr


def test_a_question_in_the_terminal() -> None:
    with ThreadPoolExecutor() as at_once:  # the scripted model takes its time
        done, as_json, as_timeline = at_once.map(
            run,
            [
                '.venv/bin/python -m harness run --model scripted "calc 2*(3+4)"',
                '.venv/bin/python -m harness run --model scripted --json "hello"',
                '.venv/bin/python -m harness run --model scripted --timeline "calc 2*(3+4)"',
            ],
        )
    assert done.returncode == 0
    assert "14" in done.stdout
    assert "calculator" in done.stderr
    lines = as_json.stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines][-1] == "run:end"
    assert "calculator = 14" in as_timeline.stdout
    assert as_timeline.stdout.endswith("Status  completed\n")


def test_a_conversation_in_the_terminal() -> None:
    done = run(".venv/bin/python -m harness chat --model scripted", typed="calc 2*(3+4)\n/help\nquit\n")
    assert done.returncode == 0
    assert "= 14" in done.stdout
    assert "/grants" in done.stderr


def test_the_service_starts_as_described(tmp_path: Path) -> None:
    port = free_port()
    env = clean_env(BOTS_DATA_DIR=str(tmp_path / "data"), BOTS_PORT=str(port), SLACK_API_URL="http://127.0.0.1:9/api/")
    line = SERVE.replace(".venv/bin/python", f"exec {sys.executable}")
    process = subprocess.Popen(line, shell=True, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 20
        alive = ""
        while time.monotonic() < end and alive != "ok":
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=1) as answer:
                    alive = answer.read().decode()
            except OSError:
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.05)
        assert alive == "ok"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 0


def test_every_promise_names_a_test_that_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", README)
    assert len(named) >= 7
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"


def test_every_file_that_it_points_to_exists() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README) + re.findall(r'(?:src|srcset)="([^"]+)"', README)
    assert "docs/playground.png" in links
    assert [link for link in links if not (ROOT / link).exists()] == []
