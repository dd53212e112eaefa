"""A clock that stands still until a test moves it."""


class FakeClock:
    """Goes wherever the kernel takes `now=`.

    It moves nothing but itself: who sleeps until a time by this clock still sleeps for real.
    """

    def __init__(self, start: float = 1_000_000_000.0) -> None:
        self._now = start

    def __call__(self) -> float:
        """The time, in Unix seconds."""
        return self._now

    def advance(self, seconds: float) -> float:
        """Let time pass, and return the new time. ValueError for a step back: for that, make a second clock."""
        if seconds < 0:
            raise ValueError(f"time does not go back, and {seconds} is less than nothing")
        self._now += seconds
        return self._now
