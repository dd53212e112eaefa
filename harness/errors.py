"""The error tree, one class per decision that a caller can make.

    HarnessError
    ├── ConfigError             a setting is missing or wrong: say which one and how to set it
    ├── ProviderError           the model failed; `kind` decides retry, wording and log level
    ├── ToolError               a tool refused or failed: the model is told, the run goes on
    ├── LimitExceeded           the run hit one of its own limits (turns, tool calls)
    ├── InvalidTransition       our bug: a task took a step that its table does not have
    ├── StoreError              the store refused or failed
    │   ├── VersionConflict     somebody appended first: reload and try again
    │   ├── StaleFence          another owner has taken over: stop, write nothing
    │   ├── SchemaTooNew        newer code has made the tables: only a newer program can use them
    │   ├── NotTogether         changes that one statement cannot do together: they are done one by one
    │   └── OutcomeUnknown      the answer of a commit was lost for good: written or not, nobody knows
    ├── AdmissionUnavailable    the coordinator cannot be reached: do not acknowledge, let the sender try again
    └── Closed                  the runtime is shutting down and admits nothing

Each kind of failure that a person can see has exactly one row in `ERROR_KINDS`.
"""

from dataclasses import dataclass
from typing import Final, Literal, get_args

ErrorKind = Literal[
    "auth",
    "rate_limit",
    "overloaded",
    "bad_request",
    "context_length",
    "content_filter",
    "connection",
    "timeout",
    "truncated",
    "protocol",
    "empty",
    "tool_markup",
    "tool",
    "budget",
    "max_turns",
    "config",
    "internal",
]


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """How one kind of error is treated.

    `retryable`: the same request may be sent again before anything was shown. `log_level`: what the operator's
    log records it as. `offer_retry`: a person may sensibly press Retry.
    """

    retryable: bool
    log_level: Literal["info", "warning", "error"]
    offer_retry: bool


ERROR_KINDS: Final[dict[ErrorKind, ErrorPolicy]] = {
    "auth": ErrorPolicy(retryable=False, log_level="error", offer_retry=False),
    "rate_limit": ErrorPolicy(retryable=True, log_level="warning", offer_retry=True),
    "overloaded": ErrorPolicy(retryable=True, log_level="warning", offer_retry=True),
    "bad_request": ErrorPolicy(retryable=False, log_level="error", offer_retry=False),
    "context_length": ErrorPolicy(retryable=False, log_level="warning", offer_retry=False),
    "content_filter": ErrorPolicy(retryable=False, log_level="info", offer_retry=False),
    "connection": ErrorPolicy(retryable=True, log_level="warning", offer_retry=True),
    "timeout": ErrorPolicy(retryable=True, log_level="warning", offer_retry=True),
    "truncated": ErrorPolicy(retryable=True, log_level="warning", offer_retry=True),
    "protocol": ErrorPolicy(retryable=True, log_level="error", offer_retry=True),
    "empty": ErrorPolicy(retryable=True, log_level="warning", offer_retry=True),
    "tool_markup": ErrorPolicy(retryable=False, log_level="error", offer_retry=True),
    "tool": ErrorPolicy(retryable=False, log_level="warning", offer_retry=True),
    "budget": ErrorPolicy(retryable=False, log_level="info", offer_retry=False),
    "max_turns": ErrorPolicy(retryable=False, log_level="info", offer_retry=True),
    "config": ErrorPolicy(retryable=False, log_level="error", offer_retry=False),
    "internal": ErrorPolicy(retryable=False, log_level="error", offer_retry=True),
}
assert set(ERROR_KINDS) == set(get_args(ErrorKind)), "every error kind needs its one row"


class HarnessError(Exception):
    """Root of every error that this package raises on purpose."""


class ConfigError(HarnessError):
    """A setting is missing or wrong. The message is one sentence that names it and says how to set it."""


class ProviderError(HarnessError):
    """The model request failed.

    `kind`: the row in `ERROR_KINDS`. `message`: for the operator, without secrets. `retry_after`: seconds that
    the server asked to wait, when it did. `status`: the HTTP status, when there was one.
    """

    def __init__(
        self, kind: ErrorKind, message: str, *, retry_after: float | None = None, status: int | None = None
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.message = message
        self.retry_after = retry_after
        self.status = status

    @property
    def retryable(self) -> bool:
        """May the same request be sent again, as long as nothing was shown?"""
        return ERROR_KINDS[self.kind].retryable


class ToolError(HarnessError):
    """A tool refused or failed. The text is shown to the model as the call's result."""


class LimitExceeded(HarnessError):
    """A run used up one of its own limits; `kind` is `max_turns`, `budget`, or `tool` for calls that lead nowhere."""

    def __init__(self, kind: Literal["max_turns", "budget", "tool"], message: str) -> None:
        super().__init__(message)
        self.kind: Literal["max_turns", "budget", "tool"] = kind
        self.message = message


class InvalidTransition(HarnessError):
    """A task was asked to take a step that the transition table does not have."""


class StoreError(HarnessError):
    """The store refused or failed. Nothing was half-written; what `OutcomeUnknown` tells of is there or not, whole."""


class SchemaTooNew(StoreError):
    """The tables were made by newer code. Waiting does not help: the program has to be upgraded."""


class VersionConflict(StoreError):
    """The session changed since it was loaded."""


class StaleFence(StoreError):
    """A newer owner has written: whoever gets this must stop and write nothing more."""


class AdmissionUnavailable(HarnessError):
    """The coordinator did not answer in time. The sender must not be acknowledged, so that it delivers again."""


class Closed(HarnessError):
    """The runtime is shutting down."""
