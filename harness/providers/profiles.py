"""How one family of model servers departs from the common wire. Everything here is data."""

import tomllib
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from harness.errors import ConfigError
from harness.pricing import Price
from harness.providers.request_parts import CallIdStyle


class ProviderProfile(BaseModel):
    """What to send to a server and how to read what it sends. The defaults suit a server that nobody knows.

    `reasoning_fields`: where thinking arrives; the first non-empty one is taken.
    `replay_reasoning`: whether thinking goes back in later requests: `never`, with answers that called tools
    (`tool_turns`), or `always`; None is what the protocol asks for: `never` in chat completions, else `tool_turns`.
    `think_tags`: a `<think>` block at the start of the content becomes reasoning (`auto`), the content begins inside
    such a block (`open`), or tags are text (`off`).
    `cumulative`: each chunk repeats all text so far.
    `include_usage`: ask for token figures in a stream. `parallel_tool_calls`: sent as it stands; None is not sent.
    `max_tokens`, sent in `max_tokens_field`: a limit on the answer; None leaves it to the server.
    `system_role`: the role of the system prompt. `tool_result_name`: results carry the tool's name.
    `text_tool_markup`: a tool call written into the text is an error (`fail`), just text (`pass`), or made if it is
    whole and fits a tool on offer, else an error (`parse`).
    `assistant_after_tool`: a user message right behind a tool result is refused, so something is put between them.
    `first_token_timeout`, `idle_timeout`: seconds of silence to bear before the first piece and between two, unless the
    settings say otherwise; None leaves the general limits.
    `finish_reason_map`: this server's words in the common ones. `extra_body`: fields added to each request.
    `context_window`: tokens that a request and its answer may have together; a conversation is kept below it.
    `prices`: of a million tokens, by the model's name (see `price_of`). None is built in: prices change.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "default"
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning", "reasoning_text")
    replay_reasoning: Literal["never", "tool_turns", "always"] | None = None
    think_tags: Literal["auto", "open", "off"] = "auto"
    cumulative: bool = False
    include_usage: bool = True
    max_tokens: int | None = None
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    system_role: Literal["system", "developer", "user"] = "system"
    parallel_tool_calls: bool | None = None
    tool_call_id_style: CallIdStyle = "any"
    tool_result_name: bool = False
    assistant_after_tool: bool = False
    text_tool_markup: Literal["fail", "pass", "parse"] = "fail"
    finish_reason_map: dict[str, str] = {}
    first_token_timeout: float | None = None
    idle_timeout: float | None = None
    extra_body: dict[str, JsonValue] = {}
    context_window: int = Field(default=128_000, gt=0)
    prices: dict[str, Price] = {}


SILENT_THINKING_S: Final = 300.0
"""Over chat completions this vendor's models think without a word, for minutes when the question is hard."""
LOADING_S: Final = 300.0
"""A local server may first have to load the model from disk."""
DEFAULT: Final = ProviderProfile()

PRESETS: Final[dict[str, ProviderProfile]] = {
    profile.name: profile
    for profile in (
        DEFAULT,
        ProviderProfile(
            name="openai",
            max_tokens_field="max_completion_tokens",
            think_tags="off",
            first_token_timeout=SILENT_THINKING_S,
        ),
        ProviderProfile(
            name="azure",
            max_tokens_field="max_completion_tokens",
            think_tags="off",
            first_token_timeout=SILENT_THINKING_S,
        ),
        ProviderProfile(name="anthropic", think_tags="off", context_window=200_000),
        ProviderProfile(name="deepseek", replay_reasoning="tool_turns"),
        ProviderProfile(name="dashscope"),
        ProviderProfile(name="moonshot", replay_reasoning="tool_turns"),
        ProviderProfile(name="zhipu", extra_body={"tool_stream": True}),
        ProviderProfile(name="minimax", replay_reasoning="always", extra_body={"reasoning_split": True}),
        ProviderProfile(name="openrouter", replay_reasoning="tool_turns"),
        ProviderProfile(name="groq"),
        ProviderProfile(
            name="mistral", include_usage=False, tool_call_id_style="alphanumeric9", assistant_after_tool=True
        ),
        ProviderProfile(name="gemini"),
        ProviderProfile(name="xai"),
        ProviderProfile(name="ark"),
        ProviderProfile(name="ollama", first_token_timeout=LOADING_S),
        ProviderProfile(name="vllm"),
    )
}

# Matched against the end of the host name, so that regional hosts need no row of their own.
_BY_HOST: Final[tuple[tuple[str, str], ...]] = (
    ("api.openai.com", "openai"),
    ("openai.azure.com", "azure"),
    ("anthropic.com", "anthropic"),
    ("deepseek.com", "deepseek"),
    ("dashscope.aliyuncs.com", "dashscope"),
    ("dashscope-intl.aliyuncs.com", "dashscope"),
    ("moonshot.cn", "moonshot"),
    ("moonshot.ai", "moonshot"),
    ("kimi.com", "moonshot"),
    ("bigmodel.cn", "zhipu"),
    ("z.ai", "zhipu"),
    ("minimax.io", "minimax"),
    ("minimaxi.com", "minimax"),
    ("minimax.chat", "minimax"),
    ("openrouter.ai", "openrouter"),
    ("groq.com", "groq"),
    ("mistral.ai", "mistral"),
    ("generativelanguage.googleapis.com", "gemini"),
    ("x.ai", "xai"),
    ("volces.com", "ark"),
)
_OLLAMA_PORT: Final = 11434


def profile_for(base_url: str, choice: str | None = None) -> ProviderProfile:
    """The profile of the server at this address.

    `choice` (MODEL_PROFILE) goes first: a preset's name, or the path of a TOML file whose keys are fields of
    `ProviderProfile` that override the preset of the host, or of the preset that its `base` names. Raises
    `ConfigError`.
    """
    if choice is None:
        return _preset_by_host(base_url)
    if choice in PRESETS:
        return PRESETS[choice]
    if not choice.endswith(".toml"):
        names = ", ".join(sorted(PRESETS))
        raise ConfigError(f"MODEL_PROFILE {choice!r} is unknown; use one of {names}, or the path of a .toml file.")
    try:
        overrides = tomllib.loads(Path(choice).read_text(encoding="utf-8"))
        base = overrides.pop("base", None)
        preset = _preset_by_host(base_url) if base is None else PRESETS[base]
        return ProviderProfile.model_validate(preset.model_dump() | {"name": Path(choice).stem} | overrides)
    except KeyError as error:
        raise ConfigError(f"MODEL_PROFILE {choice!r}: base {error} is not a preset.") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"MODEL_PROFILE {choice!r} cannot be used: {error}") from None


def _preset_by_host(base_url: str) -> ProviderProfile:
    parts = urlsplit(base_url)
    host = (parts.hostname or "").lower()
    for suffix, name in _BY_HOST:
        if host == suffix or host.endswith("." + suffix):
            return PRESETS[name]
    try:
        port = parts.port
    except ValueError:
        port = None
    return PRESETS["ollama"] if port == _OLLAMA_PORT else DEFAULT
