from pathlib import Path

import pytest

from harness.errors import ConfigError
from harness.providers.profiles import DEFAULT, PRESETS, profile_for


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://api.deepseek.com", "deepseek"),
        ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "dashscope"),
        ("https://api.moonshot.cn/v1", "moonshot"),
        ("https://open.bigmodel.cn/api/paas/v4/", "zhipu"),
        ("https://api.z.ai/api/paas/v4", "zhipu"),
        ("https://api.minimax.io/v1", "minimax"),
        ("https://openrouter.ai/api/v1", "openrouter"),
        ("https://generativelanguage.googleapis.com/v1beta/openai/", "gemini"),
        ("http://localhost:11434/v1", "ollama"),
        ("https://notopenrouter.ai/v1", "default"),
        ("http://127.0.0.1:9999/v1", "default"),
    ],
)
def test_the_host_chooses(url: str, name: str) -> None:
    assert profile_for(url) == PRESETS[name]


def test_an_unknown_host_is_asked_for_usage() -> None:
    assert DEFAULT.include_usage


def test_a_choice_goes_before_the_host() -> None:
    assert profile_for("https://api.openai.com/v1", "vllm") == PRESETS["vllm"]


def test_a_file_overrides_a_preset(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('base = "deepseek"\ncumulative = true\n[extra_body]\nx = 1\n')
    profile = profile_for("https://api.openai.com/v1", str(file))
    assert (profile.name, profile.replay_reasoning, profile.cumulative) == ("mine", "tool_turns", True)
    assert profile.extra_body == {"x": 1}


@pytest.mark.parametrize("content", ["nonsense = ", "unknown_field = 1", 'base = "nobody"', 'think_tags = "maybe"'])
def test_a_wrong_file_is_one_clear_error(tmp_path: Path, content: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(content)
    with pytest.raises(ConfigError, match="MODEL_PROFILE"):
        profile_for("https://x", str(file))


@pytest.mark.parametrize("choice", ["nobody", "absent.toml"])
def test_a_wrong_choice_is_one_clear_error(choice: str) -> None:
    with pytest.raises(ConfigError, match="MODEL_PROFILE"):
        profile_for("https://x", choice)
