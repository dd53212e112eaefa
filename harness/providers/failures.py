"""From what a model server says went wrong to a `ProviderError` of the right kind.

One classification for every way in which a failure arrives: an HTTP status, an error object in the middle of a good
stream, a bad finish reason. Pure; the messages carry no secret and no more than a few hundred characters.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

from harness.errors import ErrorKind, ProviderError
from harness.messages import JsonObject
from harness.providers.wire import as_object, as_text

_MAX_MESSAGE_CHARS: Final = 500
_SECRET = re.compile(r"\b(?:sk|pk|gsk|xai|key)-[\w*.\-]{6,}|\bBearer\s+\S+", re.IGNORECASE)

# Words of codes, types and messages, most specific first: a 400 may be a matter of length, a 429 one of money.
_BY_WORDS: Final[tuple[tuple[ErrorKind, re.Pattern[str]], ...]] = (
    (
        "context_length",
        re.compile(
            r"context_length|context[ _]window|context length|maximum context|(?:prompt|input|request) is too long"
            r"|too many (?:input )?tokens|reduce the length|string_above_max_length|exceeds? the (?:available )?context"
            r"|input length|range of input length|request_too_large",
            re.IGNORECASE,
        ),
    ),
    (
        "content_filter",
        re.compile(
            r"content_filter|content_policy|(?:bio|cyber|misalignment)_policy|usage policy|data_inspection_failed"
            r"|content management policy|(?<!case[ -])sensitive"
            r"|responsibleai|content exists risk",
            re.IGNORECASE,
        ),
    ),
    (
        "auth",
        re.compile(
            r"invalid_api_key|incorrect api key|authentication|unauthorized|permission_denied|insufficient_quota"
            r"|permission_error|insufficient[ _]balance|credit balance|billing|exceeded your current quota|arrears",
            re.IGNORECASE,
        ),
    ),
    (
        "rate_limit",
        re.compile(
            r"rate[ _]?limit|too[ _]many[ _]requests|requests per minute|throttl|resource_exhausted", re.IGNORECASE
        ),
    ),
    ("timeout", re.compile(r"timed? ?out|deadline", re.IGNORECASE)),
    (
        "overloaded",
        re.compile(r"overload|server_error|internal|unavailable|capacity|busy|resource|try again", re.IGNORECASE),
    ),
    ("bad_request", re.compile(r"invalid|unsupported|not[ _]found|bad[ _]request|does not exist", re.IGNORECASE)),
)

_BY_STATUS: Final[Mapping[int, ErrorKind]] = {
    401: "auth",
    402: "auth",
    403: "auth",
    408: "timeout",
    409: "overloaded",
    425: "overloaded",
    429: "rate_limit",
    504: "timeout",
    524: "timeout",
}

# MiniMax reports failures inside a good response, by numbers of its own.
_BASE_RESP: Final[Mapping[int, ErrorKind]] = {
    1001: "timeout",
    1002: "rate_limit",
    1004: "auth",
    1008: "auth",
    1026: "content_filter",
    1027: "content_filter",
    1039: "rate_limit",
    1041: "rate_limit",
    2013: "bad_request",
    2049: "auth",
    2056: "rate_limit",
}

_BAD_REASONS: Final[Mapping[str, ErrorKind]] = {
    "error": "overloaded",
    "insufficient_system_resource": "overloaded",
    "network_error": "overloaded",
    "engine_error": "overloaded",
    "model_error": "overloaded",
    "overloaded": "overloaded",
    "abort": "overloaded",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
    "safety": "content_filter",
    "prohibited_content": "content_filter",
    "blocklist": "content_filter",
    "recitation": "content_filter",
    "malformed_function_call": "protocol",
}


@dataclass(frozen=True, slots=True)
class SettingNames:
    """What the settings of a server are called; `url_hint` is a remark about its address."""

    key: str
    model: str
    url: str
    url_hint: str = ""

    def hint(self, status: int) -> str:
        """What to check when the server answered with this status, "" when nothing comes to mind."""
        match status:
            case 401:
                return f"Check {self.key}."
            case 403:
                return f"Check that {self.key} may use this model."
            case 404:
                return f"Check {self.model} and {self.url}{self.url_hint}."
            case _:
                return ""


OPENAI_SETTINGS: Final = SettingNames(
    "OPENAI_API_KEY", "OPENAI_MODEL", "OPENAI_BASE_URL", " (which usually ends in /v1)"
)
ANTHROPIC_SETTINGS: Final = SettingNames(
    "ANTHROPIC_API_KEY", "ANTHROPIC_MODEL", "ANTHROPIC_BASE_URL", " (without /v1 at its end)"
)


def bad_reason(reason: str) -> ErrorKind | None:
    """The kind of failure that a finish reason stands for; None for a good end or a word that nobody knows."""
    return _BAD_REASONS.get(reason.lower())


def error_in_chunk(chunk: JsonObject) -> ProviderError | None:
    """The failure that a chunk (or a whole body) of a 200 response reports, if it does."""
    error = chunk.get("error")
    if error:
        return in_stream(error)
    base = as_object(chunk.get("base_resp"))
    if base is not None and base.get("status_code"):
        number = base["status_code"]
        message = as_text(base.get("status_msg")) or "no message"
        kind: ErrorKind = _BASE_RESP.get(number, "overloaded") if isinstance(number, int) else "overloaded"
        return ProviderError(kind, clean(f"The model server reported {number}: {message}"))
    if not chunk.get("choices"):
        if chunk.get("object") == "error" or ("message" in chunk and "code" in chunk):
            return in_stream(chunk)
        if "detail" in chunk and "id" not in chunk:
            return in_stream({"message": str(chunk["detail"])})
    return None


def in_stream(error: object) -> ProviderError:
    """The failure that an error value in a 200 response describes: a string, or an object, perhaps nested."""
    body = as_object(error)
    while body is not None and as_object(body.get("error")):
        body = as_object(body["error"])
    if body is None:
        return ProviderError(classify(None, str(error)), clean(f"The model server reported: {error}"))
    message = as_text(body.get("message")) or as_text(body.get("error")) or "no message"
    code = body.get("code") or body.get("type") or body.get("status")
    status = int(str(code)) if str(code).isdigit() and 400 <= int(str(code)) <= 599 else None
    kind = classify(status, f"{code or ''} {body.get('type') or ''} {message}")
    named = f" ({code})" if code else ""
    return ProviderError(kind, clean(f"The model server reported an error{named}: {message}"), status=status)


def from_status(
    status: int,
    body: object,
    headers: Mapping[str, str],
    *,
    model: str,
    secret: str = "",
    settings: SettingNames = OPENAI_SETTINGS,
) -> ProviderError:
    """The failure that an HTTP error response describes. `secret` is cut out of the message wherever it occurs."""
    error = as_object(body) or {}
    inner = as_object(error.get("error")) or error
    message = as_text(inner.get("message")) or as_text(error.get("error")) or as_text(error.get("detail"))
    if not message and isinstance(body, str):
        message = "a web page instead of an answer" if body.lstrip().startswith("<") else body
    words = f"{inner.get('code') or ''} {inner.get('type') or ''} {message}"
    hint = settings.hint(status)
    text = f"HTTP {status} for model {model!r}: {message.strip() or 'no message'}. {hint}".replace("..", ".").strip()
    return ProviderError(classify(status, words), clean(text, secret), retry_after=retry_after(headers), status=status)


def classify(status: int | None, words: str) -> ErrorKind:
    """The kind of failure, from the HTTP status (None: there was none) and the words of code, type and message."""
    by_words: ErrorKind | None = next((kind for kind, pattern in _BY_WORDS if pattern.search(words)), None)
    if status is None:
        return by_words or "overloaded"
    if status >= 500:
        return _BY_STATUS.get(status, "overloaded")
    # Within 4xx the words only refine: they tell apart what servers put under the same number.
    if by_words in {"context_length", "content_filter"} or (by_words == "auth" and status in {400, 403, 429}):
        return by_words
    if status == 413:
        return "context_length"
    return _BY_STATUS.get(status, "bad_request")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait, from `retry-after-ms` or `Retry-After`; None when it does not say."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        due = parsedate_to_datetime(value)
        now = parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError):
        # A date can be told from the server's own clock only: ours may differ by any amount.
        return None
    return max(0.0, (due - now).total_seconds())


def clean(message: str, secret: str = "") -> str:
    """One short line without anything that looks like a key."""
    if secret:
        message = message.replace(secret, "[key]")
    line = " ".join(_SECRET.sub("[key]", message).split())
    return line if len(line) <= _MAX_MESSAGE_CHARS else line[:_MAX_MESSAGE_CHARS] + "…"


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < float("inf") else None
