"""A circuit breaker: a dead server is asked once a second, everybody else is answered at once. Pure."""

from collections.abc import Callable


class CircuitBreaker:
    """Opens after `threshold` failures in a row; then one call per `probe_every` seconds is let through.

    `clock` is monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float], *, threshold: int = 3, probe_every: float = 1.0) -> None:
        self._clock = clock
        self._threshold = threshold
        self._probe_every = probe_every
        self._failures = 0
        self._next_probe = 0.0

    @property
    def is_open(self) -> bool:
        """True while the server counts as dead."""
        return self._failures >= self._threshold

    def allows(self) -> bool:
        """May this call be made? A yes while open is the probe: the next yes comes a probe interval later."""
        if not self.is_open:
            return True
        if self._clock() < self._next_probe:
            return False
        self._next_probe = self._clock() + self._probe_every
        return True

    def succeeded(self) -> None:
        """The server answered."""
        self._failures = 0

    def failed(self) -> None:
        """The call ended without an answer."""
        self._failures += 1
        self._next_probe = self._clock() + self._probe_every
