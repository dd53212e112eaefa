"""How Redis is called: short time limits, repeats of our own, a circuit breaker, and one error for "no answer"."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias, TypeVar, cast

import structlog
from redis import exceptions as redis_errors
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from bots.coordination.breaker import CircuitBreaker
from bots.coordination.scripts import Script
from harness.errors import AdmissionUnavailable

log = structlog.stdlib.get_logger(__name__)

# What a script may answer: our scripts return strings, whole numbers and lists of them.
Reply: TypeAlias = "bytes | int | list[Reply] | None"
Argument = str | bytes | int

# No answer, or one that another moment, or another server after a failover, may give differently. Anything else that
# Redis says (a fault in a script, a wrong type) is our bug and must not look like an outage.
_NO_ANSWER = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.ReadOnlyError,
    redis_errors.OutOfMemoryError,
    redis_errors.ClusterDownError,
    redis_errors.TryAgainError,
)
_NO_ANSWER_CODES = ("BUSY", "MISCONF", "NOREPLICAS", "UNKILLABLE", "NOAUTH", "NOPERM")
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.25

_Value = TypeVar("_Value")


class Client(Protocol):
    """As much of redis.asyncio.Redis as is used here; its own types leave every reply open."""

    def execute_command(self, *args: Argument) -> Awaitable[object]:
        """Send one command and wait for its reply."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


def connect(url: str, *, max_connections: int = 32) -> Client:
    """Make a client that never repeats by itself, and sets no time limits: put `asyncio.timeout` around its calls.

    redis-py's own defaults repeat ten times: a frozen server then blocks one call for a minute. Its `socket_timeout`
    goes through `asyncio.wait_for`, which before Python 3.12 may swallow the cancellation of the caller.
    """
    pool = BlockingConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]  (**kwargs have no type there)
        url,
        max_connections=max_connections,
        timeout=None,
        socket_timeout=None,
        socket_connect_timeout=None,
        retry=Retry(NoBackoff(), 0),
        encoding_errors="replace",
        driver_info=None,
    )
    return cast("Client", Redis.from_pool(pool))


async def run_script(client: Client, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Reply:
    """Run by digest; a server that has lost its scripts is given the source."""
    try:
        reply = await client.execute_command("EVALSHA", script.sha, len(keys), *keys, *args)
    except redis_errors.NoScriptError:
        reply = await client.execute_command("EVAL", script.source, len(keys), *keys, *args)
    return cast("Reply", reply)


def is_no_answer(error: redis_errors.RedisError) -> bool:
    """Tell an outage from a bug."""
    return isinstance(error, _NO_ANSWER) or str(error).startswith(_NO_ANSWER_CODES)


class Caller:
    """Makes calls that end within `budget` seconds: an answer, or `AdmissionUnavailable`.

    An attempt is given up after `attempt_timeout` seconds, which should leave time for a second one.

    Contract: `attempt` may run several times in one call, because a lost reply looks like a lost request; so it must
    be idempotent. Only errors of Redis are mapped; others escape as they are.
    """

    def __init__(
        self,
        breaker: CircuitBreaker,
        *,
        attempt_timeout: float,
        budget: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._breaker = breaker
        self._attempt_timeout = attempt_timeout
        self._budget = budget
        self._clock = clock

    async def call(self, attempt: Callable[[], Awaitable[_Value]], *, probe: bool = False) -> _Value:
        """Call until answered or out of time. `probe`: ask even while the breaker is open."""
        if not self._breaker.allows() and not probe:
            raise AdmissionUnavailable("the coordinator (Redis) does not answer; it is asked again every second")
        try:
            value = await self._repeat(attempt)
        except AdmissionUnavailable:
            was_open = self._breaker.is_open
            self._breaker.failed()
            if self._breaker.is_open and not was_open:
                log.warning("Redis does not answer: nothing is admitted")
            raise
        if self._breaker.is_open:
            log.info("Redis answers again")
        self._breaker.succeeded()
        return value

    async def _repeat(self, attempt: Callable[[], Awaitable[_Value]]) -> _Value:
        deadline = self._clock() + self._budget
        pause = _FIRST_PAUSE
        last: Exception | None = None
        while (left := deadline - self._clock()) > 0:
            try:
                async with asyncio.timeout(min(left, self._attempt_timeout)):
                    return await attempt()
            except redis_errors.RedisError as error:
                if not is_no_answer(error):
                    raise
                last = error
            except TimeoutError as error:
                last = error
            # Half of the pause at random: replicas that lost the server together must not come back together.
            await asyncio.sleep(max(0.0, min(pause * random.uniform(0.5, 1.0), deadline - self._clock())))
            pause = min(2 * pause, _LONGEST_PAUSE)
        raise AdmissionUnavailable(f"the coordinator (Redis) did not answer within {self._budget:g} s") from last
