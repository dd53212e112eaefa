"""When the next write of a card may go out. Pure timing: the clock is given, nothing waits here.

Two questions are kept apart: does the vendor's rate limit have room (`RateBudget`), and is it worth showing the text
that has come since the last edit (`CardThrottle`).
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bots.cards.surface import Priority

RESERVED_SHARE: Final = 0.2
"""Part of a limit that is kept free for finals. Rounded up for text, which leaves at least one call to what cannot
wait; rounded down for states, so that a limit of a few calls, as posts have, does not lose a third of itself."""
FIRST_TEXT_CHARS: Final = 40
FIRST_TEXT_SECONDS: Final = 0.3


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `calls` in any window of `per_seconds`: what we allow ourselves, below the vendor's own figure."""

    calls: int
    per_seconds: float


class RateBudget:
    """Sliding windows of calls, one per key, shared by every card of this process.

    A key names what the vendor counts together, such as method and workspace. `clock` gives seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sent: dict[str, deque[float]] = {}
        self._blocked_until: dict[str, float] = {}

    def wait_time(self, key: str, limit: RateLimit, priority: Priority) -> float:
        """Seconds until one more call of this priority fits; 0 = now."""
        now = self._clock()
        blocked = max(0.0, self._blocked_until.get(key, 0.0) - now)
        allowed = _allowed(limit.calls, priority)
        sent = self._forget_old(key, limit, now)
        if len(sent) < allowed:
            return blocked
        # Room comes when enough of the oldest calls have left the window.
        frees_at = sent[len(sent) - allowed] + limit.per_seconds
        return max(blocked, frees_at - now)

    def spend(self, key: str, limit: RateLimit) -> None:
        """Count a call that is being sent."""
        now = self._clock()
        self._forget_old(key, limit, now).append(now)

    def block(self, key: str, seconds: float) -> None:
        """The vendor said to wait: nothing with this key goes out before."""
        self._blocked_until[key] = max(self._blocked_until.get(key, 0.0), self._clock() + seconds)

    def _forget_old(self, key: str, limit: RateLimit, now: float) -> deque[float]:
        sent = self._sent.setdefault(key, deque())
        while sent and sent[0] <= now - limit.per_seconds:
            sent.popleft()
        return sent


def _allowed(calls: int, priority: Priority) -> int:
    """How many of a limit's calls this priority may use."""
    match priority:
        case "final":
            return calls
        case "state":
            return calls - int(calls * RESERVED_SHARE)
        case "text":
            return max(1, calls - math.ceil(calls * RESERVED_SHARE))


class CardThrottle:
    """Decides for one card when new text is due: early for the first words, at an even pace from then on.

    All times are seconds of the clock that the caller passes in.
    """

    def __init__(self) -> None:
        self._shown_chars = 0
        self._shown_at: float | None = None
        self._first_seen_at: float | None = None

    def due_at(self, now: float, chars: int, interval: float) -> float:
        """The time at which text of `chars` characters in all should be shown; `now` or earlier = at once."""
        if self._shown_chars:
            return (self._shown_at or 0.0) + interval
        if not chars:
            return now
        if self._first_seen_at is None:
            self._first_seen_at = now
        return now if chars >= FIRST_TEXT_CHARS else self._first_seen_at + FIRST_TEXT_SECONDS

    def shown(self, now: float, chars: int) -> None:
        """A write has just been sent that shows `chars` characters."""
        self._shown_at = now
        self._shown_chars = chars
