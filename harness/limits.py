"""What one run may use."""

from dataclasses import dataclass
from typing import Final

from harness.providers.profiles import ProviderProfile
from harness.settings import KernelSettings

WHOLE_ANSWER_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use. Times in seconds, tokens as input and output together, 0 tokens = no limit.

    `max_session_tokens` counts everything that the conversation has used. `first_delta_timeout_s` and
    `idle_timeout_s`: how long a model may be silent while it streams; `whole_answer_timeout_s`: how long it may take
    for an answer that is not streamed, of which nothing can be seen before its end. `model_retries`: how often a
    request of the model is sent again.
    """

    max_turns: int = 20
    max_tool_calls: int = 100
    max_run_tokens: int = 0
    max_session_tokens: int = 0
    run_timeout_s: float = 900.0
    first_delta_timeout_s: float = 90.0
    idle_timeout_s: float = 60.0
    whole_answer_timeout_s: float = WHOLE_ANSWER_S
    model_retries: int = 2
    stream: bool = True

    @classmethod
    def of(cls, settings: KernelSettings, profile: ProviderProfile | None = None) -> "Limits":
        """The limits that the settings name; where they are as by default, the profile knows how patient to be."""
        first = _patience(settings, "first_delta_timeout_s", profile and profile.first_token_timeout)
        idle = _patience(settings, "idle_timeout_s", profile and profile.idle_timeout)
        return cls(
            max_turns=settings.max_turns,
            max_tool_calls=settings.max_tool_calls,
            max_run_tokens=settings.max_run_tokens,
            max_session_tokens=settings.max_session_tokens,
            run_timeout_s=settings.run_timeout_s,
            first_delta_timeout_s=first,
            idle_timeout_s=idle,
            # Nobody who waits longer for a first word wants to wait less for all of them.
            whole_answer_timeout_s=max(WHOLE_ANSWER_S, first),
            model_retries=settings.model_retries,
            stream=settings.model_stream,
        )


def _patience(settings: KernelSettings, name: str, usual: float | None) -> float:
    # By the value and not by whether it is set: in a copy of .env.example everything is.
    chosen: float = getattr(settings, name)
    return usual if usual is not None and chosen == type(settings).model_fields[name].default else chosen
