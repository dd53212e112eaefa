"""`.env.example` tells the truth: every setting, each with its real default, and nothing else."""

import re
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from bots.settings import Settings

EXAMPLE = Path(__file__).parents[2] / ".env.example"


def lines() -> dict[str, str]:
    found = re.findall(r"^([A-Z][A-Z0-9_]*)=(.*)$", EXAMPLE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(found) == len(dict(found)), "a name stands twice"
    return dict(found)


def shown(value: Any) -> str:
    match value:
        case None | ():
            return ""
        case bool():
            return str(value).lower()
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)


def test_it_names_every_setting_and_nothing_else() -> None:
    assert set(lines()) == {name.upper() for name in Settings.model_fields}


def test_it_shows_the_real_defaults() -> None:
    defaults = {name.upper(): shown(field.default) for name, field in Settings.model_fields.items()}
    assert lines() == defaults


def test_read_as_it_stands_it_changes_nothing() -> None:
    read = Settings(_env_file=EXAMPLE)  # type: ignore[call-arg]
    assert read == Settings(_env_file=None)  # type: ignore[call-arg]


def test_secrets_cannot_be_printed() -> None:
    secrets = {
        name for name, field in Settings.model_fields.items() if SecretStr in getattr(field.annotation, "__args__", ())
    }
    assert {"openai_api_key", "anthropic_api_key", "database_url", "slack_bot_token", "slack_signing_secret"} == secrets
    assert "hidden" not in repr(Settings(_env_file=None, openai_api_key=SecretStr("hidden")))  # type: ignore[call-arg]
