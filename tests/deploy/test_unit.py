"""The systemd unit: systemd accepts it, it stops in the service's order, and it names what exists."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bots.app import CARD_GRACE_S
from bots.cli import USAGE
from bots.settings import Settings
from tests.deploy.reading import COMMANDS, DEPLOY, README, SECRETS, SETTINGS, seconds, service_section

UNIT = DEPLOY / "harness-bots.service"
DROP_IN = DEPLOY / "without-shell.conf"
SERVICE = service_section(UNIT)
TIGHT = service_section(DROP_IN)

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")


def only(name: str) -> str:
    (value,) = SERVICE[name]
    return value


@pytest.fixture(params=["alone", "with the drop-in"])
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, float]:
    """The unit as it would be installed, with a program that this machine has, and the exposure that it may have."""
    unit = tmp_path / UNIT.name
    program = shlex.split(only("ExecStart"))[0]
    unit.write_text(UNIT.read_text(encoding="utf-8").replace(program, sys.executable), encoding="utf-8")
    if request.param == "alone":
        return unit, 3.5
    (tmp_path / f"{UNIT.name}.d").mkdir()
    shutil.copy(DROP_IN, tmp_path / f"{UNIT.name}.d")
    return unit, 2.0


@needs_systemd
def test_systemd_finds_nothing_wrong(installed: tuple[Path, float]) -> None:
    unit, _ = installed
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=50
    )  # fmt: skip
    # It checks the units around it as well; only what it says of ours counts.
    assert [line for line in done.stderr.splitlines() if UNIT.name in line] == []
    assert done.returncode == 0, done.stderr


@needs_systemd
def test_its_exposure_stays_low(installed: tuple[Path, float]) -> None:
    unit, most = installed
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={most * 10:.0f}", unit],
        capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


def test_a_stop_signals_the_service_alone_and_waits_longer_than_the_drain_and_what_follows_it() -> None:
    assert only("KillMode") == "mixed"
    drain = Settings.model_fields["drain_s"].default
    assert seconds(only("TimeoutStopSec")) >= drain + CARD_GRACE_S + 20


def test_a_crash_starts_it_again_and_a_wrong_setting_does_not() -> None:
    assert only("Restart") == "on-failure"
    assert only("RestartPreventExitStatus").split() == [str(USAGE)]


def test_its_program_is_where_the_readme_installs_it_and_its_command_exists() -> None:
    program, *arguments = shlex.split(only("ExecStart"))
    assert arguments[:2] == ["-m", "bots"]
    assert set(arguments[2:]) <= COMMANDS
    folder = only("WorkingDirectory")
    assert f"\ncd {folder}\nsudo /usr/bin/python3 -m venv .venv\n" in README
    assert program.startswith(f"{folder}/.venv/bin/")


def test_its_state_lies_in_the_folder_that_systemd_makes_and_nothing_else_can_be_written() -> None:
    given = dict(word.split("=", 1) for line in SERVICE["Environment"] for word in line.split())
    assert given["BOTS_DATA_DIR"] == f"/var/lib/{only('StateDirectory')}"
    assert {name for name in given if not name.startswith("PYTHON")} <= SETTINGS
    assert not SECRETS & set(given)
    assert only("ProtectSystem") == "strict"
    assert "ReadWritePaths" not in SERVICE


def test_the_file_with_the_secrets_is_made_before_it_is_filled_and_for_root_alone() -> None:
    file = only("EnvironmentFile")
    assert not file.startswith("-"), "without it the service must not start"
    made, filled = README.index(f"sudo install -m 600 /dev/null {file}"), README.index(f"sudoedit {file}")
    assert made < filled


def test_the_unit_leaves_open_what_bubblewrap_needs() -> None:
    for name in ("RestrictNamespaces", "ProtectHostname", "ProtectKernelTunables", "ProtectKernelLogs", "ProcSubset"):
        assert name not in SERVICE
    assert "AF_NETLINK" in only("RestrictAddressFamilies").split()
    assert {"@mount", "sethostname"} <= set(" ".join(SERVICE["SystemCallFilter"]).split())


def test_the_readme_explains_every_setting_that_only_the_drop_in_has() -> None:
    explained = set(re.findall(r"`(\w+)=`", README.partition("| setting | what breaks |")[2].partition("\n\n")[0]))
    assert explained == TIGHT.keys() - {"SystemCallFilter"}
    assert "AF_NETLINK" not in " ".join(TIGHT["RestrictAddressFamilies"])
    # A list is emptied first, else the drop-in would only add to it.
    assert TIGHT["RestrictAddressFamilies"][0] == TIGHT["SystemCallFilter"][0] == ""
