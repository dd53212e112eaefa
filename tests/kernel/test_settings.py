"""The environment: names that are public, values that may be wrong, and secrets that are never repeated."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bots.settings import Settings
from harness.errors import ConfigError
from harness.settings import DEFAULT_SYSTEM_PROMPT, KernelSettings


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the developer's, and a folder without .env."""
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.chdir(tmp_path)


def secret(value: str) -> Callable[[Any], bool]:
    return lambda found: found.get_secret_value() == value


# The public names: name -> (text in the environment, the setting, its value).
NAMES: dict[str, tuple[str, Any]] = {
    "OPENAI_API_KEY": ("sk-1", secret("sk-1")),
    "OPENAI_BASE_URL": ("http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1"),
    "OPENAI_MODEL": ("m", "m"),
    "MODEL_PROTOCOL": ("scripted", "scripted"),
    "ANTHROPIC_API_KEY": ("sk-2", secret("sk-2")),
    "ANTHROPIC_BASE_URL": ("http://127.0.0.1:2", "http://127.0.0.1:2"),
    "ANTHROPIC_MODEL": ("c", "c"),
    "MODEL_PROFILE": ("deepseek", "deepseek"),
    "MODEL_STREAM": ("false", False),
    "DATABASE_URL": ("sqlite:///x", secret("sqlite:///x")),
    "MODEL_RETRIES": ("0", 0),
    "SYSTEM_PROMPT_FILE": ("p.md", Path("p.md")),
    "RUN_TIMEOUT_S": ("1.5", 1.5),
    "FIRST_DELTA_TIMEOUT_S": ("2", 2.0),
    "IDLE_TIMEOUT_S": ("3", 3.0),
    "TOOL_TIMEOUT_S": ("4", 4.0),
    "MAX_TURNS": ("5", 5),
    "MAX_TOOL_CALLS": ("6", 6),
    "MAX_RUN_TOKENS": ("7", 7),
    "MAX_SESSION_TOKENS": ("8", 8),
    "APPROVAL_TIMEOUT_S": ("9", 9.0),
    "SLACK_BOT_TOKEN": ("xoxb-1", secret("xoxb-1")),
    "SLACK_SIGNING_SECRET": ("s", secret("s")),
    "SLACK_API_URL": ("http://127.0.0.1:8899/api", "http://127.0.0.1:8899/api/"),
    "REDIS_URL": ("redis://h", "redis://h"),
    "LEASE_TTL_S": ("7", 7.0),
    "BOTS_HOST": ("0.0.0.0", "0.0.0.0"),
    "BOTS_PORT": ("0", 0),
    "BOTS_DATA_DIR": ("d", Path("d")),
    "BOTS_LOG_LEVEL": ("debug", "debug"),
    "BOTS_LOG_FORMAT": ("json", "json"),
    "DRAIN_S": ("0", 0.0),
    "LANGUAGE": ("zh", "zh"),
    "BUSY_POLICY": ("reject", "reject"),
    "QUEUE_CAP": ("8", 8),
    "SESSION_SCOPE": ("user", "user"),
    "REQUIRE_MENTION": ("false", False),
    "ALLOWED_USERS": (" U1 , slack:U2,, ", ("U1", "slack:U2")),
    "ALLOWED_CHATS": ("C1", ("C1",)),
    "ADMINS": (",", ()),
    "ALLOW_EXTERNAL": ("true", True),
    "RECALL_DELETES_REPLY": ("1", True),
    "RATE_BUDGET": ("0.5", 0.5),
}
DEFAULTS = {
    "openai_base_url": "https://api.openai.com/v1", "openai_api_key": None, "model_protocol": "chat",
    "run_timeout_s": 900, "first_delta_timeout_s": 90, "idle_timeout_s": 60, "tool_timeout_s": 30, "max_turns": 20,
    "max_tool_calls": 100, "max_run_tokens": 0, "max_session_tokens": 0, "approval_timeout_s": 600,
    "model_retries": 2, "model_stream": True, "lease_ttl_s": 15, "bots_host": "127.0.0.1",
    "bots_port": 8080, "drain_s": 60, "queue_cap": 5, "busy_policy": "queue", "require_mention": True,
    "allow_external": False, "allowed_users": (), "rate_budget": 0.95, "recall_deletes_reply": False,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, expected = NAMES[name]
    monkeypatch.setenv(name, text)
    found = getattr(Settings.load(), name.lower())
    assert expected(found) if callable(expected) else found == expected


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_value_is_unset(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "")
    assert Settings.load() == Settings()


def test_the_defaults_are_the_documented_ones() -> None:
    settings = Settings.load()
    assert {name: getattr(settings, name) for name in DEFAULTS} == DEFAULTS
    assert settings.system_prompt() == DEFAULT_SYSTEM_PROMPT


def test_a_file_is_read_unknown_names_in_it_do_no_harm_and_the_environment_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text('# ours\nMAX_TURNS=3\nMAX_TOOL_CALLS="4"\nSOMETHING_ELSE=x\nOPENAI_MODEL=\n')
    monkeypatch.setenv("MAX_TURNS", "9")
    settings = KernelSettings.load()
    assert (settings.max_turns, settings.max_tool_calls, settings.openai_model) == (9, 4, None)


WRONG = {
    "MODEL_RETRIES": "-1", "RUN_TIMEOUT_S": "0", "IDLE_TIMEOUT_S": "inf", "TOOL_TIMEOUT_S": "nan", "MAX_TURNS": "many",
    "MODEL_STREAM": "perhaps", "MODEL_PROTOCOL": "carrier-pigeon", "BOTS_PORT": "70000", "SLACK_API_URL": "slack.test",
    "LEASE_TTL_S": "inf", "SESSION_SCOPE": "planet", "RATE_BUDGET": "0",
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_one_sentence_that_names_the_setting(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, WRONG[name])
    with pytest.raises(ConfigError) as caught:
        Settings.load()
    message = str(caught.value)
    assert message.startswith(f"{name}: ")
    assert "\n" not in message
    assert ".env" in message


@pytest.mark.parametrize("name", ["MAX_TURNS", "MODEL_PROTOCOL", "SLACK_API_URL", "BOTS_PORT"])
def test_a_wrong_value_is_never_repeated_for_it_may_be_a_secret(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "xoxb-pasted-into-the-wrong-line")
    with pytest.raises(ConfigError) as caught:
        Settings.load()
    assert "pasted" not in str(caught.value)


def test_secrets_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-123456")
    settings = Settings.load()
    assert "123456" not in f"{settings!r} {settings} {settings.model_dump()}"


def test_a_file_that_is_no_text_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"OPENAI_MODEL=caf\xe9\n")
    with pytest.raises(ConfigError, match="UTF-8"):
        KernelSettings.load()


def test_the_persona_comes_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "persona.md"
    monkeypatch.setenv("SYSTEM_PROMPT_FILE", str(path))
    with pytest.raises(ConfigError, match="SYSTEM_PROMPT_FILE"):
        KernelSettings.load().system_prompt()
    path.write_text("\n你是猫。\n", encoding="utf-8")
    assert KernelSettings.load().system_prompt() == "你是猫。"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="SYSTEM_PROMPT_FILE"):
        KernelSettings.load().system_prompt()
