"""The provider that the settings ask for. Heavy imports wait until one is really needed."""

from harness.errors import ConfigError
from harness.providers.base import ModelProvider
from harness.settings import KernelSettings


def provider_from(settings: KernelSettings) -> ModelProvider:
    """Build it; ConfigError is one sentence that names the missing setting."""
    if settings.model_protocol == "scripted":
        from harness.providers.scripted import ScriptedProvider

        return ScriptedProvider()
    key, model = settings.openai_api_key, settings.openai_model
    if key is None or model is None:
        missing = " and ".join(
            name for name, value in (("OPENAI_API_KEY", key), ("OPENAI_MODEL", model)) if value is None
        )
        raise ConfigError(
            f"No model is set up: set {missing} (and OPENAI_BASE_URL for another OpenAI-compatible endpoint) in the "
            "environment or in .env. To try without one: MODEL_PROTOCOL=scripted, or harness run --model scripted."
        )
    from harness.providers.openai_chat import OpenAIChatProvider
    from harness.providers.profiles import profile_for

    profile = profile_for(settings.openai_base_url, settings.model_profile)
    return OpenAIChatProvider(
        api_key=key.get_secret_value(), base_url=settings.openai_base_url, model=model, profile=profile
    )
