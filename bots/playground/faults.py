"""Faults on order: what the next calls of a method get instead of, or on top of, the normal answer."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, replace

ANY_METHOD = "*"


@dataclass(frozen=True, slots=True)
class Fault:
    """One order. `status` and `error` answer without processing; `latency_ms` delays; `reset` processes, then resets.

    `retry_after_s` goes with status 429.
    """

    method: str
    times: int = 1
    status: int | None = None
    error: str | None = None
    latency_ms: int = 0
    reset: bool = False
    retry_after_s: int = 1


class FaultQueue:
    """Orders by method, taken first in, first out. An order for `*` applies to every method."""

    def __init__(self) -> None:
        self._orders: dict[str, deque[Fault]] = defaultdict(deque)

    def add(self, fault: Fault) -> None:
        """Queue an order; `times` counts calls."""
        self._orders[fault.method].append(fault)

    def take(self, method: str) -> Fault | None:
        """The order for this call, if any; uses up one of its times."""
        queue = self._orders[method] or self._orders[ANY_METHOD]
        if not queue:
            return None
        fault = queue[0]
        if fault.times <= 1:
            queue.popleft()
        else:
            queue[0] = replace(fault, times=fault.times - 1)
        return fault

    def clear(self) -> None:
        """Forget all orders."""
        self._orders.clear()
