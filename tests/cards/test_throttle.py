"""The pace: never above a vendor's limit, room kept for what cannot wait, the first words early."""

import math
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bots.cards.throttle import (
    FIRST_TEXT_CHARS,
    FIRST_TEXT_SECONDS,
    RESERVED_SHARE,
    CardThrottle,
    RateBudget,
    RateLimit,
)
from bots.slack.limits import CHAT_POST, scaled


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Strict:
    """The vendor: a sliding window to which only calls within the limit are let in, by its own exact count."""

    def __init__(self, limit: RateLimit) -> None:
        self.limit = limit
        self.times: deque[float] = deque()

    def call(self, now: float) -> bool:
        while self.times and self.times[0] <= now - self.limit.per_seconds:
            self.times.popleft()
        self.times.append(now)
        return len(self.times) <= self.limit.calls


PRIORITIES = st.sampled_from(["text", "text", "text", "state", "final"])
LIMITS = st.builds(RateLimit, st.integers(1, 12), st.sampled_from([1.0, 3.0, 60.0]))


@settings(deadline=None)
@given(LIMITS, st.lists(st.tuples(st.floats(0, 2), PRIORITIES, st.booleans()), max_size=80))
def test_the_vendor_never_says_no(limit: RateLimit, calls: list[tuple[float, str, bool]]) -> None:
    clock = Clock()
    budget, vendor = RateBudget(clock), Strict(limit)
    for pause, priority, patient in calls:
        clock.now += pause * limit.per_seconds / limit.calls
        wait = budget.wait_time("k", limit, priority)  # type: ignore[arg-type]
        assert 0 <= wait <= limit.per_seconds + 1e-6  # the sums of the clock are not exact
        if wait:
            if not patient:
                continue
            # Nobody may be told too short a time, nor so long that calls are left unused.
            clock.now += wait + 1e-6
            assert budget.wait_time("k", limit, priority) == 0  # type: ignore[arg-type]
        budget.spend("k", limit)
        assert vendor.call(clock.now), "one call too many"


@settings(deadline=None)
@given(LIMITS)
def test_a_burst_of_text_leaves_room_for_finals_and_finals_may_use_all(limit: RateLimit) -> None:
    budget = RateBudget(Clock())
    sent = {"text": 0, "final": 0}
    for priority in ("text", "final"):
        while budget.wait_time("k", limit, priority) == 0:  # type: ignore[arg-type]
            budget.spend("k", limit)
            sent[priority] += 1
    assert sent["text"] == max(1, limit.calls - math.ceil(limit.calls * RESERVED_SHARE))
    assert sum(sent.values()) == limit.calls
    assert budget.wait_time("k", limit, "state") > 0


@settings(deadline=None)
@given(st.integers(1, 200))
def test_states_leave_a_share_of_a_large_limit_and_nothing_of_a_small_one(calls: int) -> None:
    budget, limit = RateBudget(Clock()), RateLimit(calls, 60.0)
    states = 0
    while budget.wait_time("k", limit, "state") == 0:
        budget.spend("k", limit)
        states += 1
    assert calls * (1 - RESERVED_SHARE) <= states <= calls
    assert states == calls if calls < 1 / RESERVED_SHARE else states < calls


@pytest.mark.parametrize("priority", ["state", "final"])
def test_posts_use_what_slack_allows_to_a_channel_and_no_more(priority: str) -> None:
    """Slack: one a second in a channel, in short bursts; we take 95 % of that, and first cards are states."""
    clock, ours = Clock(), scaled(CHAT_POST, 0.95)
    budget, vendor = RateBudget(clock), Strict(RateLimit(CHAT_POST.calls, CHAT_POST.per_seconds))
    started, sent = clock.now, 0
    while clock.now < started + 600:
        wait = budget.wait_time("k", ours, priority)  # type: ignore[arg-type]
        clock.now += wait + 1e-6 if wait else 0.0
        budget.spend("k", ours)
        assert vendor.call(clock.now), "one call too many"
        sent += 1
    assert sent / 600 >= 0.9


def test_room_comes_back_one_call_at_a_time() -> None:
    clock = Clock()
    budget, limit = RateBudget(clock), RateLimit(5, 10.0)
    for _ in range(4):
        budget.spend("k", limit)
        clock.now += 1
    assert budget.wait_time("k", limit, "text") == pytest.approx(6.0), "until the first of the four is 10 s old"
    clock.now += 6.001
    assert budget.wait_time("k", limit, "text") == 0
    budget.spend("k", limit)
    assert budget.wait_time("k", limit, "text") == pytest.approx(0.999)


def test_keys_are_counted_apart() -> None:
    budget, limit = RateBudget(Clock()), RateLimit(1, 10.0)
    budget.spend("edits", limit)
    assert budget.wait_time("edits", limit, "final") > 0
    assert budget.wait_time("posts", limit, "text") == 0


def test_a_vendor_who_says_wait_is_obeyed_by_all_and_a_shorter_wait_changes_nothing() -> None:
    clock = Clock()
    budget, limit = RateBudget(clock), RateLimit(100, 60.0)
    budget.block("k", 30.0)
    budget.block("k", 5.0)
    for priority in ("text", "state", "final"):
        assert budget.wait_time("k", limit, priority) == 30.0  # type: ignore[arg-type]
    assert budget.wait_time("other", limit, "text") == 0
    clock.now += 30.0
    assert budget.wait_time("k", limit, "text") == 0


def test_the_longer_of_block_and_window_counts() -> None:
    budget, limit = RateBudget(Clock()), RateLimit(1, 60.0)
    budget.spend("k", limit)
    budget.block("k", 5.0)
    assert budget.wait_time("k", limit, "final") == 60.0
    budget.block("k", 90.0)
    assert budget.wait_time("k", limit, "final") == 90.0


INTERVAL = 1.5


def test_the_first_words_wait_for_a_few_more_but_not_long() -> None:
    throttle = CardThrottle()
    assert throttle.due_at(10.0, 3, INTERVAL) == 10.0 + FIRST_TEXT_SECONDS
    assert throttle.due_at(10.2, 20, INTERVAL) == 10.0 + FIRST_TEXT_SECONDS, "counted from the first word"
    assert throttle.due_at(10.2, FIRST_TEXT_CHARS, INTERVAL) == 10.2, "enough to read"


def test_time_before_the_first_word_does_not_count() -> None:
    throttle = CardThrottle()
    throttle.shown(9.0, 0)
    assert throttle.due_at(10.0, 0, INTERVAL) <= 10.0, "there is no text to wait for"
    throttle.shown(10.0, 0)
    assert throttle.due_at(20.0, 1, INTERVAL) == 20.0 + FIRST_TEXT_SECONDS


def test_from_then_on_the_pace_is_even() -> None:
    throttle = CardThrottle()
    throttle.due_at(10.0, 50, INTERVAL)
    throttle.shown(10.0, 50)
    assert throttle.due_at(10.1, 500, INTERVAL) == 10.0 + INTERVAL
    assert throttle.due_at(12.0, 500, INTERVAL) <= 12.0
    throttle.shown(12.0, 500)
    assert throttle.due_at(12.1, 501, 3.0) == 15.0, "the interval may change with the number of cards"
