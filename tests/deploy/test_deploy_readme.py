"""The guide names what exists: files, commands, settings, and no place that nobody here can vouch for."""

import re
import shlex
import subprocess
from urllib.parse import urlsplit

import pytest

from tests.deploy.reading import COMMANDS, DEPLOY, README, ROOT, SETTINGS, compose, steps

BLOCKS = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
LINES = [line for block in BLOCKS for line in block.replace("\\\n", " ").strip().splitlines()]
FILES = sorted(path for path in DEPLOY.iterdir() if path.is_file())


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_is_what_a_shell_can_read(block: str) -> None:
    done = subprocess.run(["sh", "-n"], input=block, capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_link_leads_to_a_file() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (DEPLOY / link).is_file()] == []


def test_every_file_of_the_folder_is_explained() -> None:
    told = README + "".join((DEPLOY / name).read_text() for name in ("Dockerfile", "compose.yaml"))
    unexplained = [path.name for path in FILES if path.name not in told and path.name != "README.md"]
    assert unexplained == ["Dockerfile.dockerignore"], "Docker finds that one by its name"


def test_every_file_that_a_command_reads_exists() -> None:
    words = [word for line in LINES for word in shlex.split(line)]
    named = {word for word in words if re.fullmatch(r"deploy/[\w./-]+|[\w-]+\.lock", word)}
    assert {"deploy/Dockerfile", "deploy/harness-bots.service", "requirements.lock"} <= named
    assert [name for name in named if not (ROOT / name).is_file()] == []
    assert {"../.env.example", ".env.example"} <= set(words)
    assert (DEPLOY / "../.env.example").is_file()


def test_every_command_of_the_program_and_every_service_of_compose_exists() -> None:
    called = set(re.findall(r"-m bots (\w+)|harness-bots:local (\w+)", README))
    assert {name or other for name, other in called} <= COMMANDS
    services = compose()["services"].keys()
    for line in LINES:
        if line.startswith("docker compose") and (found := re.search(r" (?:exec|run) (.*)", line)):
            words = iter(shlex.split(found[1]))
            name = next(word for word in words if not word.startswith("-") and word != "tar")
            assert name in services, line
        if found := re.search(r"--scale (\w+)=", line):
            assert found[1] in services


def test_every_name_in_capitals_is_a_setting_a_variable_or_an_argument() -> None:
    arguments = {name for step in steps() if step.name == "ARG" for name in step.pairs}
    variables = set(re.findall(r"^(\w+)=", (DEPLOY / ".env.example").read_text(), re.MULTILINE))
    named = set(re.findall(r"\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)\b", README)) - {"AF_NETLINK"}
    assert named
    assert named <= SETTINGS | arguments | variables


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_sends_anybody_to_a_host_of_its_own_choice(path: object) -> None:
    text = DEPLOY.joinpath(str(path)).read_text(encoding="utf-8")
    hosts = {urlsplit(url).hostname for url in re.findall(r"https?://[^\s\"'`)>]+", text)}
    assert hosts <= {"127.0.0.1", "caddyserver.com"}
    assert not re.search(r"index-url|find-links|trusted-host", text)
