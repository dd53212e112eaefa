"""Every way in which Slack or the network says no, as one of our platform errors. One table, used by all calls.

Failures come as `ok: false` with status 200, as a status with or without JSON, or as a broken connection.
"""

from collections.abc import Mapping
from typing import Final, cast

import aiohttp
from slack_sdk.errors import SlackApiError

from bots.errors import ChatGone, MessageGone, NotAuthorised, PlatformError, RateLimited, Refused, Unavailable

DEFAULT_RETRY_AFTER: Final = 5.0
"""Seconds to wait where Slack says only that there were too many calls."""
_LONGEST_RETRY_AFTER: Final = 3_600.0
_TOO_MANY: Final = frozenset({"ratelimited", "rate_limited"})
# docs.slack.dev/reference/methods/<method>: the errors of the methods that we call.
_MEANING: Final[Mapping[str, type[PlatformError]]] = {
    "message_not_found": MessageGone,
    "thread_not_found": MessageGone,
    "channel_not_found": ChatGone,
    "is_archived": ChatGone,
    "is_inactive": ChatGone,
    "not_in_channel": ChatGone,
    "messages_tab_disabled": ChatGone,
    "restricted_action": ChatGone,
    "restricted_action_read_only_channel": ChatGone,
    "restricted_action_thread_locked": ChatGone,
    "restricted_action_thread_only_channel": ChatGone,
    "restricted_action_non_threadable_channel": ChatGone,
    "account_inactive": NotAuthorised,
    "access_denied": NotAuthorised,
    "ekm_access_denied": NotAuthorised,
    "invalid_auth": NotAuthorised,
    "missing_scope": NotAuthorised,
    "no_permission": NotAuthorised,
    "not_allowed_token_type": NotAuthorised,
    "not_authed": NotAuthorised,
    "org_login_required": NotAuthorised,
    "team_access_not_granted": NotAuthorised,
    "token_expired": NotAuthorised,
    "token_revoked": NotAuthorised,
}
"""What is not here is `Refused`: sending the same again cannot help."""
_SERVER_TROUBLE: Final[Mapping[str, bool]] = {
    "fatal_error": True,
    "internal_error": True,
    "update_failed": True,
    "service_unavailable": True,
    "request_timeout": False,
    "team_added_to_org": False,
}
"""Errors of Slack's own, and whether the call may have taken effect all the same."""


def platform_error(method: str, error: Exception) -> PlatformError | None:
    """What an exception of a Web API call means; None when it is no failure of Slack or of the network.

    The message names the method and Slack's word for the failure, never what was sent.
    """
    if isinstance(error, SlackApiError):
        return _api_error(method, error)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.InvalidURL):
        return Unavailable(f"{method}: Slack cannot be reached ({type(error).__name__})", ambiguous=False)
    if isinstance(error, aiohttp.ClientError | TimeoutError | OSError):
        return Unavailable(f"{method}: the connection broke ({type(error).__name__})", ambiguous=True)
    if isinstance(error, AttributeError | ValueError):
        # slack_sdk 3.48 trips over a 200 whose body is no JSON object.
        return Unavailable(f"{method}: the answer is no JSON object", ambiguous=True)
    return None


def _api_error(method: str, error: SlackApiError) -> PlatformError:
    response: object = error.response
    status = _status(response)
    code = _code(response)
    if status == 429 or code in _TOO_MANY:
        seconds = _retry_after(response)
        return RateLimited(f"{method}: too many calls, wait {seconds:g} s", seconds=seconds, code=code or "ratelimited")
    if code in _SERVER_TROUBLE:
        return Unavailable(f"{method}: {code}", ambiguous=_SERVER_TROUBLE[code], code=code)
    if not code or status >= 500:
        return Unavailable(f"{method}: status {status}", ambiguous=True, code=code)
    meaning = _MEANING.get(code, Refused)
    return meaning(f"{method}: {code}{_hint(response)}", code=code)


def _status(response: object) -> int:
    # AsyncSlackResponse has `status_code`; with a body that is no JSON slack_sdk hands on aiohttp's own response.
    for name in ("status_code", "status"):
        if isinstance(value := getattr(response, name, None), int):
            return value
    return 0


def _data(response: object) -> Mapping[str, object]:
    data = getattr(response, "data", None)
    return cast("Mapping[str, object]", data) if isinstance(data, Mapping) else {}


def _code(response: object) -> str:
    code = _data(response).get("error")
    return code if isinstance(code, str) else ""


def _hint(response: object) -> str:
    needed = _data(response).get("needed")
    return f" (scope needed: {needed})" if isinstance(needed, str) else ""


def _retry_after(response: object) -> float:
    headers: object = getattr(response, "headers", None)
    value = cast("Mapping[str, object]", headers).get("Retry-After") if isinstance(headers, Mapping) else None
    text = str(value or "")
    seconds = float(text) if text.isascii() and text.isdecimal() else DEFAULT_RETRY_AFTER
    return min(max(seconds, 0.1), _LONGEST_RETRY_AFTER)
