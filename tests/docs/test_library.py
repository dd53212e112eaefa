"""The library as its users meet it: the README's programs run as they stand, and every public name is what it says."""

import ast
import asyncio
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import harness
import harness.testing
from harness.providers.script import Call, Hang, Say, Script
from harness.testing.model_server import ScriptedModelServer
from tests.terminal.pty_rig import CTRL_C, CTRL_D, at_terminal

ROOT = Path(__file__).parents[2]
PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def clean_env(**extra: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **extra}


def run(program: str, folder: Path, typed: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
    """Run the program as a file in an empty folder."""
    (folder / "agent.py").write_text(program, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "agent.py"], cwd=folder, env=clean_env(**extra), input=typed, capture_output=True, text=True,
        timeout=50,
    )  # fmt: skip


def test_the_readme_has_two_programs_of_about_twenty_lines() -> None:
    for program in PROGRAMS:
        compile(program, "README.md", "exec")
        assert len([line for line in program.splitlines() if line.strip()]) <= 27
    assert len(PROGRAMS) == 2


@pytest.mark.parametrize(
    ("typed", "said"), [("y\n", "= order: mapo tofu is on its way, very hot"), ("n\n", "Denied by me")]
)
def test_the_agent_asks_runs_its_tool_and_streams_the_answer_without_a_key(
    tmp_path: Path, typed: str, said: str
) -> None:
    done = run(PROGRAMS[0], tmp_path, typed)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{'dish': 'mapo tofu', 'spicy': True} y or n? Half an hour, they say.\n"
    assert said in done.stderr
    assert ("on its way" in done.stderr) is (typed == "y\n")


async def test_the_same_program_talks_to_a_real_endpoint_when_there_is_a_key(tmp_path: Path) -> None:
    def answer(request: Any) -> Script:
        if request.heard.results:
            return [Say("The kitchen says: "), Say(request.heard.results[-1][1])]
        return [Call("order", json.dumps({"dish": "soup"}))]

    async with ScriptedModelServer(answer=answer) as server:
        environment = {"OPENAI_API_KEY": "sk-local", "OPENAI_BASE_URL": server.base_url, "OPENAI_MODEL": "local"}
        done = await asyncio.to_thread(run, PROGRAMS[0], tmp_path, "y\n", **environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("The kitchen says: soup is on its way\n")
        assert len(server.requests) == 2


def test_the_chat_has_the_tool_of_ones_own_beside_the_built_in_ones(tmp_path: Path) -> None:
    done = run(PROGRAMS[1], tmp_path, "/tools\ncalc 2*(3+4)\nquit\n", MODEL_PROTOCOL="scripted", HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^roll +Roll a die\.$", done.stderr, re.MULTILINE)
    assert re.search(r"^calculator ", done.stderr, re.MULTILINE)
    assert "= 14" in done.stdout


async def test_the_chat_asks_before_a_tool_that_needs_permission_and_ctrl_c_stops_one_turn_only(tmp_path: Path) -> None:
    # As in the README, but for a tool that asks, runs in a process of its own, and prints.
    program = PROGRAMS[1].replace("@tool\n", '@tool(policy="ask", blocking=True)\n')
    program = program.replace(
        "    return str(random", '    print("NOISE ON THE SCREEN")\n    return "a lucky " + str(random'
    )
    (tmp_path / "agent.py").write_text(program, encoding="utf-8")

    def answer(request: Any) -> Script:
        if "wait" in request.heard.user_texts[-1]:
            return [Say("Waiting."), Hang()]
        if request.heard.results:
            return [Say(f"It gave {request.heard.results[-1][1]}.")]
        return [Call("roll", '{"sides": 1}')]

    async with ScriptedModelServer(answer=answer) as server:
        environment = {"OPENAI_API_KEY": "sk-local", "OPENAI_BASE_URL": server.base_url, "OPENAI_MODEL": "local"}
        environment = clean_env(**environment)
        async with at_terminal(tmp_path, env=environment, program=("agent.py",)) as terminal:
            await terminal.prompts(1)
            terminal.send("wait")
            await terminal.until("Waiting.")
            terminal.type(CTRL_C)
            await terminal.prompts(2)
            terminal.send("roll")
            await terminal.until("a always, n deny:")
            terminal.send("y")
            await terminal.until("It gave a lucky 1.")
            await terminal.prompts(3)
            terminal.type(CTRL_D)
            assert await terminal.end() == 0
            assert "NOISE" not in terminal.raw


async def test_a_fault_in_a_tool_of_ones_own_stands_on_standard_error_and_not_in_the_answer(tmp_path: Path) -> None:
    program = PROGRAMS[1].replace("return str(random", 'raise LookupError("no die") or str(random')

    def answer(request: Any) -> Script:
        return [Say("It broke.")] if request.heard.results else [Call("roll", "{}")]

    async with ScriptedModelServer(answer=answer) as server:
        environment = {"OPENAI_API_KEY": "sk-local", "OPENAI_BASE_URL": server.base_url, "OPENAI_MODEL": "local"}
        done = await asyncio.to_thread(run, program, tmp_path, "roll\n", **environment)
    assert (done.returncode, done.stdout) == (0, "It broke.\n")
    assert "Traceback" in done.stderr
    assert "LookupError: no die" in done.stderr


def test_the_chat_without_a_model_says_which_settings_are_missing(tmp_path: Path) -> None:
    done = run(PROGRAMS[1], tmp_path, "hello\n", HOME=str(tmp_path))
    assert done.returncode != 0
    assert "ConfigError: No model is set up: set OPENAI_API_KEY and OPENAI_MODEL" in done.stderr


HEAVY = ("openai", "anthropic", "aiohttp", "pydantic", "prompt_toolkit", "rich", "structlog", "sqlalchemy", "asyncio")


@pytest.mark.parametrize(
    ("program", "free_of"),
    [
        ("import harness; import harness.testing; dir(harness)", HEAVY),
        (
            "from harness import tool, Runtime, Engine",
            ("openai", "anthropic", "aiohttp", "prompt_toolkit", "sqlalchemy"),
        ),
        ("from harness.testing import FakeClock, ScriptedProvider", ("openai", "aiohttp", "pydantic", "pytest")),
    ],
)
def test_a_name_costs_only_what_it_needs(program: str, free_of: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; import sys; print(*sys.modules)"],
        env=clean_env(), capture_output=True, text=True, timeout=50, check=True,
    )  # fmt: skip
    assert set(free_of) & set(done.stdout.split()) == set()


PACKAGES = pytest.mark.parametrize("package", [harness, harness.testing], ids=lambda package: package.__name__)


def promised(package: ModuleType) -> dict[str, str]:
    """What a type checker is told: name to the module that it is imported from."""
    assert package.__file__ is not None
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


@PACKAGES
def test_every_public_name_is_there_and_is_what_a_type_checker_believes(package: ModuleType) -> None:
    names = [name for name in package.__all__ if name != "__version__"]
    assert sorted(set(names)) == sorted(names)
    homes = promised(package)
    assert set(names) == set(homes)
    for name, home in homes.items():
        assert getattr(package, name) is getattr(importlib.import_module(home), name)
        assert name in dir(package)


@PACKAGES
def test_a_name_that_does_not_exist_is_the_usual_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Runtme'"):
        _ = package.Runtme
    with pytest.raises(ImportError):
        exec(f"from {package.__name__} import Runtme")
