"""How a platform says no: one class per decision that a caller can make.

PlatformError
├── RateLimited        wait `seconds`, then show the newest state
├── Unavailable        try again; `ambiguous` when the call may have been carried out all the same
├── MessageGone        the message was deleted: detach, finish silently
├── ChatGone           the chat is archived, or the bot was removed: cancel
├── Refused            the platform refuses this content: do not send it again
│   └── QuestionTooLong    what is to be permitted cannot be shown whole: it must not be asked
└── NotAuthorised      the token or a permission is missing: an operator has to act
"""


class PlatformError(Exception):
    """Root of what a platform's API can answer; `code` is the vendor's own word for it."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class RateLimited(PlatformError):
    """Too many calls; nothing was done. `seconds`: how long to wait."""

    def __init__(self, message: str, *, seconds: float, code: str = "") -> None:
        super().__init__(message, code=code)
        self.seconds = seconds


class Unavailable(PlatformError):
    """The platform failed or could not be reached. `ambiguous`: the call may have taken effect."""

    def __init__(self, message: str, *, ambiguous: bool, code: str = "") -> None:
        super().__init__(message, code=code)
        self.ambiguous = ambiguous


class MessageGone(PlatformError):
    """The message to edit does not exist any more."""


class ChatGone(PlatformError):
    """Nothing can be written to this chat any more."""


class Refused(PlatformError):
    """The platform does not accept this content; sending it again cannot help."""


class QuestionTooLong(Refused):
    """The arguments of a call do not fit into a message, and part of them is not enough to judge it."""


class NotAuthorised(PlatformError):
    """The credentials are wrong, revoked, or lack a permission."""
