"""Reads the files of deploy/ as far as the tests ask: pure, on the text alone."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import yaml
from pydantic import SecretStr

from bots.cli import app
from bots.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
README = (DEPLOY / "README.md").read_text(encoding="utf-8")

SETTINGS = frozenset(name.upper() for name in Settings.model_fields)
SECRETS = frozenset(
    name.upper()
    for name, field in Settings.model_fields.items()
    if SecretStr in getattr(field.annotation, "__args__", ())
)
COMMANDS = frozenset(typer.main.get_command(app).commands)  # type: ignore[attr-defined]

_UNITS = {"": 1.0, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """A time span as compose and systemd write it: `90`, `90s`, `1m30s`, `1min 30s`."""
    parts = re.findall(r"(\d+)\s*([a-z]*)", text)
    assert parts, text
    assert "".join(number + unit for number, unit in parts) == text.replace(" ", "")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a Dockerfile; `text` is all behind its name, on one line."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """In exec form the program's arguments, else what stands between spaces, without options."""
        form = re.search(r"\[.*\]$", self.text)
        if form:
            return json.loads(form[0])
        return [word for word in self.text.split() if not word.startswith("--")]

    @property
    def pairs(self) -> dict[str, str]:
        """The names and values of an ENV, ARG or LABEL."""
        return {name: value.strip('"') for name, value in re.findall(r'([\w.]+)=("[^"]*"|\S*)', self.text)}


def steps() -> list[Step]:
    """The Dockerfile's instructions in order."""
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#")).replace("\\\n", " ")
    return [Step(*line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def final_stage() -> list[Step]:
    """The instructions that make the image itself."""
    every = steps()
    start = max(number for number, step in enumerate(every) if step.name == "FROM")
    return every[start + 1 :]


def last(name: str) -> Step:
    """The instruction of that name which is in force in the image."""
    return [step for step in final_stage() if step.name == name][-1]


def image_environment() -> dict[str, str]:
    """The ENV of the image."""
    return {name: value for step in final_stage() if step.name == "ENV" for name, value in step.pairs.items()}


def compose(**variables: str) -> dict[str, Any]:
    """compose.yaml with `${NAME}` replaced from `variables`, or by its default."""
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(re.sub(r"\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}", _from(variables), text))


def _from(variables: Mapping[str, str]) -> Any:
    return lambda found: variables.get(found[1], found[2] or "")


def service_section(path: Path) -> dict[str, list[str]]:
    """The settings under [Service] of a unit or a drop-in, each with its values in order."""
    section, found = "", dict[str, list[str]]()
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found
