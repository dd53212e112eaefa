"""The stand-in must be able to prove us wrong: it shares nothing with the adapter or the kernel."""

import subprocess
import sys

LOADED = """
import sys
import bots.playground.slack.server, bots.playground.control
print(*sorted(name for name in sys.modules if name.split(".")[0] == "harness" or name.startswith("bots.")))
"""


def test_the_slack_server_imports_no_adapter_and_no_kernel():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    foreign = [name for name in done.stdout.split() if not name.startswith("bots.playground")]
    assert foreign == []


def test_it_needs_no_slack_sdk():
    script = LOADED.replace('name.startswith("bots.")', 'name.startswith("slack")')
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
