"""Slack's rate limits, strictly: a sliding window per method, a bucket per channel for posts, and who ignored a 429."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass

from bots.playground.clock import Clock
from bots.playground.slack import limits

# A call that was on its way when the 429 left is not one that ignored it.
_IN_FLIGHT_GRACE_S = 0.25


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call gets 429: `ignored` = the app called before the last Retry-After had passed.

    `injected` = the block came from a fault on order, so hitting it in flight is nobody's mistake.
    """

    retry_after_s: int
    ignored: bool = False
    injected: bool = False


@dataclass(frozen=True, slots=True)
class _Block:
    given_at: float
    until: float
    injected: bool


class RateLimiter:
    """The limits of one app in one workspace.

    `tier_scale` multiplies every allowance (None = no limits, but a Retry-After once given still has to be kept);
    `window_s` is the length of the window.
    """

    def __init__(self, clock: Clock, *, tier_scale: float | None = 1.0, window_s: float = limits.RATE_WINDOW_S) -> None:
        self._clock = clock
        self._scale = tier_scale
        self._window = window_s
        self._calls: dict[str, deque[float]] = defaultdict(deque)
        self._buckets: dict[str, tuple[float, float]] = {}
        self._blocks: dict[tuple[str, str], _Block] = {}

    def admit(self, method: str, channel: str) -> Refusal | None:
        """Count a call, or refuse it. A refused call does not count against the window."""
        now = self._clock.now()
        key = _key(method, channel)
        block = self._blocks.get(key)
        if block and now < block.until:
            ignored = now - block.given_at > _IN_FLIGHT_GRACE_S
            return Refusal(max(1, math.ceil(block.until - now)), ignored=ignored, injected=block.injected)
        wait = self._wait(method, channel, now)
        if wait <= 0:
            return None
        refusal = Refusal(max(1, math.ceil(wait)))
        self._blocks[key] = _Block(now, now + refusal.retry_after_s, injected=False)
        return refusal

    def block(self, method: str, channel: str, seconds: float) -> None:
        """Remember a 429 on order: until it has passed, further calls are refused."""
        now = self._clock.now()
        self._blocks[_key(method, channel)] = _Block(now, now + seconds, injected=True)

    def _wait(self, method: str, channel: str, now: float) -> float:
        """Seconds until this call would be allowed; counts it when that is now."""
        if self._scale is None:
            return 0.0
        window = self._calls[method]
        while window and window[0] <= now - self._window:
            window.popleft()
        allowed = max(1, int(limits.METHOD_CALLS_PER_MINUTE[method] * self._scale))
        wait = window[0] + self._window - now if len(window) >= allowed else 0.0
        if method == "chat.postMessage":
            wait = max(wait, self._bucket_wait(channel, now, self._scale))
        if wait <= 0:
            window.append(now)
            if method == "chat.postMessage":
                tokens, at = self._buckets[channel]
                self._buckets[channel] = (tokens - 1, at)
        return wait

    def _bucket_wait(self, channel: str, now: float, scale: float) -> float:
        rate = limits.POSTS_PER_SECOND_PER_CHANNEL * scale
        burst = max(1.0, limits.POST_BURST_PER_CHANNEL * scale)
        tokens, at = self._buckets.get(channel, (burst, now))
        tokens = min(burst, tokens + (now - at) * rate)
        self._buckets[channel] = (tokens, now)
        # A hair's breadth of tolerance: a second's refill must not come out as 0.9999999.
        return 0.0 if tokens >= 1 - 1e-6 else (1 - tokens) / rate


def _key(method: str, channel: str) -> tuple[str, str]:
    """Posts are limited per channel, everything else per workspace."""
    return (method, channel if method == "chat.postMessage" else "")
