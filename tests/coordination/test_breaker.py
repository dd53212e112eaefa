from bots.coordination.breaker import CircuitBreaker


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_opens_after_three_failures_in_a_row_and_probes_each_second() -> None:
    clock = Clock()
    breaker = CircuitBreaker(clock)
    for outcome in ("failed", "failed", "succeeded", "failed", "failed"):
        assert breaker.allows()
        getattr(breaker, outcome)()
    assert breaker.allows()
    breaker.failed()
    assert breaker.is_open
    assert not breaker.allows()

    clock.now = 1.0
    assert [breaker.allows() for _ in range(3)] == [True, False, False]
    breaker.failed()
    clock.now = 1.9
    assert not breaker.allows()
    clock.now = 2.0
    assert breaker.allows()
    breaker.succeeded()
    assert [breaker.allows() for _ in range(3)] == [True, True, True]
