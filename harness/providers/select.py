"""The provider that the settings ask for. Heavy imports wait until one is really needed."""

from typing import Protocol

from harness.errors import ConfigError
from harness.providers.base import ModelProvider
from harness.providers.profiles import ProviderProfile, profile_for
from harness.settings import KernelSettings, ModelProtocol


class _Connects(Protocol):
    def __call__(self, *, api_key: str, base_url: str, model: str, profile: ProviderProfile) -> ModelProvider: ...


def profile_from(settings: KernelSettings) -> ProviderProfile | None:
    """How the server that the settings name departs from the common wire; None when there is no server."""
    if settings.model_protocol == "scripted":
        return None
    return profile_for(settings.model_base_url, settings.model_profile)


def provider_from(settings: KernelSettings) -> ModelProvider:
    """Build it; ConfigError is one sentence that names the missing setting."""
    profile = profile_from(settings)
    if profile is None:
        from harness.providers.scripted import ScriptedProvider

        return ScriptedProvider()
    is_anthropic = settings.model_protocol == "anthropic"
    vendor = "ANTHROPIC" if is_anthropic else "OPENAI"
    key = settings.anthropic_api_key if is_anthropic else settings.openai_api_key
    model = settings.model_name
    if key is None or model is None:
        needed = {f"{vendor}_API_KEY": key, f"{vendor}_MODEL": model}
        missing = " and ".join(name for name, value in needed.items() if value is None)
        kind = "Anthropic-compatible" if is_anthropic else "OpenAI-compatible"
        raise ConfigError(
            f"No model is set up: set {missing} (and {vendor}_BASE_URL for another {kind} endpoint) in the environment "
            "or in .env. To try without one: MODEL_PROTOCOL=scripted, or harness run --model scripted."
        )
    connects = _provider_of(settings.model_protocol)
    return connects(api_key=key.get_secret_value(), base_url=settings.model_base_url, model=model, profile=profile)


def _provider_of(protocol: ModelProtocol) -> _Connects:
    match protocol:
        case "anthropic":
            from harness.providers.anthropic import AnthropicProvider

            return AnthropicProvider
        case "responses":
            from harness.providers.openai_responses import OpenAIResponsesProvider

            return OpenAIResponsesProvider
        case _:
            from harness.providers.openai_chat import OpenAIChatProvider

            return OpenAIChatProvider
