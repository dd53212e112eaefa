"""The service's settings, on top of the kernel's: environment variables or `.env`. The names are public and fixed.

The only module of `bots` that reads the environment.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator

from harness.admission import BusyPolicy
from harness.errors import ConfigError
from harness.settings import Count, KernelSettings, Seconds, StringList, checked_url

SessionScope = Literal["thread", "chat", "user"]
Port = Annotated[int, Field(ge=0, le=65535)]


class Settings(KernelSettings):
    """Everything that the service reads."""

    # Slack
    slack_bot_token: SecretStr | None = None
    slack_signing_secret: SecretStr | None = None
    slack_api_url: str = "https://slack.com/api/"
    # Coordination
    redis_url: str | None = None
    lease_ttl_s: Seconds = 15
    # Service
    bots_host: str = "127.0.0.1"
    bots_port: Port = 8080
    bots_data_dir: Path = Path(".data")
    bots_log_level: Literal["debug", "info", "warning", "error"] = "info"
    bots_log_format: Literal["console", "json"] = "console"
    drain_s: Annotated[float, Field(ge=0)] = 60
    # Behaviour
    language: Literal["zh", "en"] | None = None
    busy_policy: BusyPolicy = "queue"
    queue_cap: Count = 5
    session_scope: SessionScope | None = None
    require_mention: bool = True
    allowed_users: StringList = ()
    allowed_chats: StringList = ()
    admins: StringList = ()
    approvers: StringList = ()
    """Ids of people; the word `requester` stands for whoever asked."""
    allow_external: bool = False
    recall_deletes_reply: bool = False
    rate_budget: Annotated[float, Field(gt=0)] = 0.95

    @field_validator("slack_api_url")
    @classmethod
    def _api_url(cls, value: str) -> str:
        url = checked_url(value, ("https", "http"), "https://slack.com/api/").rstrip("/")
        if not url.endswith("/api"):
            raise ValueError("must be the base URL of the Web API with its /api/, such as https://slack.com/api/")
        return f"{url}/"

    @field_validator("redis_url")
    @classmethod
    def _redis_url(cls, value: str | None) -> str | None:
        return value and checked_url(value, ("redis", "rediss", "unix"), "redis://127.0.0.1:6379/0")

    @field_validator("language", mode="before")
    @classmethod
    def _language(cls, value: object) -> object:
        """Desktops set LANGUAGE for themselves, to things like `en_US:en` or `de:en`; that must not stop the bot."""
        if not isinstance(value, str):
            return value
        language = value.partition(":")[0][:2].lower()
        return language if language in ("zh", "en") else None

    def slack_credentials(self) -> tuple[str, str] | None:
        """Bot token and signing secret; None when Slack is not set up, ConfigError when it is set up by half."""
        token, secret = self.slack_bot_token, self.slack_signing_secret
        if token is None and secret is None:
            return None
        if token is None:
            raise ConfigError(
                "SLACK_BOT_TOKEN is missing: set it to the token that starts with xoxb- (your Slack app, page "
                "OAuth & Permissions)."
            )
        if secret is None:
            raise ConfigError(
                "SLACK_SIGNING_SECRET is missing: set it to the signing secret (your Slack app, page Basic "
                "Information)."
            )
        if not token.get_secret_value().startswith("xoxb-"):
            raise ConfigError("SLACK_BOT_TOKEN must be a bot token: it starts with xoxb-.")
        return token.get_secret_value(), secret.get_secret_value()
