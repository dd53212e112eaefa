"""Admission over Redis: one running task per session, whatever crashes. The protocol is told in ARCHITECTURE.md.

The scripts decide; here their arguments are made and their answers read. Every method makes one round trip, but for
`cancel_message` (two, and one more to tell the owner) and `due_sessions` (two).
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

import structlog
from redis import exceptions as redis_errors

from bots.coordination import scripts
from bots.coordination.breaker import CircuitBreaker
from bots.coordination.codec import decode_input, decode_item, encode_input
from bots.coordination.connection import Argument, Caller, Reply, connect, run_script
from bots.coordination.inbox import tell
from bots.coordination.keys import SessionKeys, active_key
from bots.coordination.scripts import Script
from harness.admission import (
    AdmitOutcome,
    Admitted,
    BusyPolicy,
    CancelOrder,
    CancelOutcome,
    CancelRequested,
    Denied,
    Handover,
    Lease,
    Lost,
    NothingToCancel,
    RefusalReason,
    RemovedFromQueue,
    Renewed,
    RunInput,
    SessionActivity,
    Waiting,
)
from harness.errors import AdmissionUnavailable, ConfigError

log = structlog.stdlib.get_logger(__name__)

_Answer = TypeVar("_Answer")
_REFUSALS: dict[str, RefusalReason] = {"recalled": "recalled", "busy": "busy", "full": "full"}


@dataclass(frozen=True, slots=True)
class _Held:
    """A run that this process works on: what a RENEW needs to write it anew after Redis came back empty."""

    run: RunInput
    started: bool


class RedisAdmission:
    """`harness.admission.Admission` over one Redis or Valkey (5.0 or newer, `noeviction`).

    `boot_id` names this process and must be new for every start, never a host name: it owns leases and an inbox.
    All times are seconds. A call gives up after `call_budget`, one attempt of it after `command_timeout`, so that a
    lost reply leaves time for a repeat.
    """

    def __init__(
        self,
        url: str,
        *,
        boot_id: str = "",
        prefix: str = "h",
        lease_ttl: float = 15.0,
        queue_cap: int = 5,
        busy_policy: BusyPolicy = "queue",
        command_timeout: float = 1.5,
        call_budget: float = 1.8,
    ) -> None:
        self.boot_id = boot_id or secrets.token_hex(8)
        self._prefix = prefix
        self._lease_ttl = lease_ttl
        self._lease_ms = round(lease_ttl * 1000)
        self._cap = queue_cap
        self._busy_policy: BusyPolicy = busy_policy
        self._client = connect(url)
        self._caller = Caller(CircuitBreaker(time.monotonic), attempt_timeout=command_timeout, budget=call_budget)
        self._held: dict[str, _Held] = {}
        # Requests go down one after another, first come first served: over a pool of connections two messages that
        # arrive together could be admitted the wrong way round.
        self._arrivals = asyncio.Lock()

    @property
    def renew_every(self) -> float | None:
        """A third of the lease: two renewals may fail before it is lost."""
        return self._lease_ttl / 3

    @property
    def lease_seconds(self) -> float:
        """See the port."""
        return self._lease_ttl

    # --- the process ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Check the server; raises `ConfigError` when it refuses us, and only warns when it cannot be reached.

        A service that starts during an outage of Redis must come up, answer "not ready", and recover by itself.
        """
        try:
            memory = await self._caller.call(lambda: self._command("INFO", "memory"), probe=True)
        except AdmissionUnavailable as error:
            cause = _root(error)
            if isinstance(cause, redis_errors.AuthenticationError):
                raise ConfigError(f"REDIS_URL: put the right user and password into it ({cause})") from error
            log.warning("Redis does not answer yet: nothing is admitted", error=str(cause))
            return
        policy = cast("dict[str, object]", memory).get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            log.warning(
                "Redis may evict keys: an evicted key is a lost message or a second answer",
                policy=policy,
                fix="set maxmemory-policy to noeviction",
            )

    async def ping(self) -> bool:
        """Is admission possible now? Also closes the breaker early when the server is back."""
        try:
            await self._caller.call(lambda: self._command("PING"), probe=True)
        except AdmissionUnavailable:
            return False
        return True

    async def aclose(self) -> None:
        """Close the connections. Leases stay and run out: give them back by `finish` before."""
        await self._client.aclose()

    # --- the port ------------------------------------------------------------------------------------------------

    async def admit(self, run: RunInput, token: str, *, fence_floor: int = 0) -> AdmitOutcome:
        """See the port. `fence_floor`: the session's own fence, which the new one must pass.

        Raises `InputTooLarge` (a ValueError) above 256 kB, before anything is stored.
        """
        _require(token)
        keys, origin = self._keys(run.session_key), run.origin
        seen, deduped = _seen(keys, run, token)
        said = await self._in_order(
            lambda: run_script(
                self._client,
                scripts.ADMIT,
                [
                    keys.gone(origin.message_id),
                    seen,
                    keys.run,
                    keys.lease,
                    keys.queue,
                    keys.fence,
                    keys.by(origin.message_id),
                    keys.engaged,
                    keys.active,
                ],
                [
                    token,
                    run.task_id,
                    encode_input(run),
                    self.boot_id,
                    self._lease_ms,
                    self._cap,
                    self._busy_policy,
                    fence_floor,
                    run.session_key,
                    "1" if origin.message_id else "",
                    deduped,
                ],
            )
        )
        match _words(said):
            case ["started", fence]:
                return Admitted(self._hold(replace(run, queued_at_ms=0), token, int(fence)))
            case ["queued", position]:
                return Waiting(int(position))
            case ["duplicate", task_id]:
                return Denied("duplicate", task_id)
            case [reason, *_]:
                return Denied(_REFUSALS[reason])
            case other:
                raise AssertionError(f"ADMIT answered {other!r}")

    async def renew(self, lease: Lease) -> Renewed | Lost:
        """See the port. Takes a lease back that ran out, as long as nobody has claimed the run; and writes the run
        anew after a restart of Redis that lost it.

        Contract: never sent at the same time as `finish` of this lease, nor after it.
        """
        held = self._held.get(lease.token)

        async def attempt() -> list[str]:
            said = await self._send_renew(lease, None)
            # The input is long and almost never wanted, so it is sent only when asked for.
            if said == ["gone"] and held:
                log.warning("Redis came back empty: writing the run anew", task=lease.task_id)
                return await self._send_renew(lease, held)
            return said

        match await self._caller.call(attempt):
            case ["renewed"]:
                return Renewed()
            case ["renewed", by, reason]:
                return Renewed(CancelOrder(lease.task_id, by, reason))
            case _:
                self._held.pop(lease.token, None)
                return Lost()

    async def finish(self, lease: Lease, next_token: str) -> Handover:
        """See the port. With an empty `next_token` the next run is due at once for every sweeper."""
        keys = self._keys(lease.session_key)
        said = await self._run(
            scripts.FINISH,
            [keys.run, keys.lease, keys.queue, keys.fence, keys.cancel, keys.active],
            [lease.token, lease.fence, lease.task_id, next_token, self.boot_id, self._lease_ms, lease.session_key],
        )
        self._held.pop(lease.token, None)
        match said:
            case [b"next", bytes(fence), bytes(data), bytes(queued_at), list(items)]:
                run = decode_input(data, int(queued_at))
                return Handover((run, self._hold(run, next_token, int(fence))), _waiting(items))
            case [b"done", list(items)]:
                return Handover(waiting=_waiting(items))
            case _:
                return Handover()

    async def park(self, lease: Lease) -> None:
        """See the port."""
        keys = self._keys(lease.session_key)
        await self._run(scripts.PARK, [keys.run, keys.lease, keys.active], [lease.token, lease.session_key])
        self._held.pop(lease.token, None)

    async def claim(self, session_key: str, token: str, *, fence_floor: int = 0) -> tuple[RunInput, Lease, bool] | None:
        """See the port. The last value: `mark_started` was called, so the model may have been asked."""
        _require(token)
        keys = self._keys(session_key)
        said = await self._run(
            scripts.CLAIM,
            [keys.run, keys.lease, keys.fence, keys.active],
            [token, self.boot_id, self._lease_ms, session_key, fence_floor],
        )
        match said:
            case [b"claimed", bytes(fence), bytes(data), bytes(queued_at), bytes(started)]:
                run = decode_input(data, int(queued_at))
                return run, self._hold(run, token, int(fence), started=started == b"1"), started == b"1"
            case _:
                return None

    async def cancel_task(self, session_key: str, task_id: str, *, by: str, reason: str) -> CancelOutcome:
        """See the port. Also tells the owner's inbox; when that fails, the owner's next `renew` brings the order."""
        order = CancelOrder(task_id, by, reason)
        return await self._canceled(await self._caller.call(lambda: self._send_cancel(session_key, order)), order)

    async def cancel_message(self, session_key: str, message_id: str, *, by: str, reason: str) -> CancelOutcome:
        """See the port."""
        if not message_id:
            return NothingToCancel()
        keys = self._keys(session_key)

        async def attempt() -> tuple[Reply, str]:
            # Two steps are safe: what a message became never changes, and where it became nothing yet, the first
            # step itself sets the tombstone.
            known = await run_script(self._client, scripts.LOCATE, [keys.by(message_id), keys.gone(message_id)], [])
            match _words(known):
                case [session, task_id]:
                    return await self._send_cancel(session, CancelOrder(task_id, by, reason)), task_id
                case _:
                    return None, ""

        reply, task_id = await self._caller.call(attempt)
        return await self._canceled(reply, CancelOrder(task_id, by, reason))

    async def activity(self, session_key: str) -> SessionActivity:
        """See the port."""
        keys = self._keys(session_key)
        match await self._run(scripts.ACTIVITY, [keys.run, keys.queue], []):
            case [bytes(data), bytes(queued_at), list(items)]:
                return SessionActivity(decode_input(data, int(queued_at)) if data else None, _waiting(items))
            case other:
                raise AssertionError(f"ACTIVITY answered {other!r}")

    # --- beyond the port -----------------------------------------------------------------------------------------

    async def engaged(self, session_key: str) -> bool:
        """Was a request of the session taken within the last 7 days?"""
        return await self._in_order(lambda: self._command("EXISTS", self._keys(session_key).engaged)) == 1

    async def note_stop(self, session_key: str, user: str) -> int:
        """Note that this user says stop here now; when they last did within a minute (Redis' clock, ms), else 0."""
        mark = self._keys(session_key).stop_mark(user)
        return int(_words([await self._run(scripts.NOTE_STOP, [mark], [secrets.token_hex(8)])])[0])

    async def first_time(self, session_key: str, name: str, seconds: float) -> bool:
        """True once per `seconds` for this name in this chat, whichever replica asks."""
        key, token = self._keys(session_key).once(name), secrets.token_hex(8)
        milliseconds = round(seconds * 1000)
        # GET gives the value before: our own token is there when the reply of a first attempt was lost.
        before = await self._caller.call(lambda: self._command("SET", key, token, "NX", "GET", "PX", milliseconds))
        return before is None or before == token.encode()

    async def forget(self, session_key: str, name: str) -> None:
        """Make `first_time` true again for this name."""
        key = self._keys(session_key).once(name)
        await self._caller.call(lambda: self._command("DEL", key))

    async def mark_started(self, lease: Lease) -> None:
        """Note that the run has begun to have effects, so that whoever claims it later does not start it afresh."""
        if held := self._held.get(lease.token):
            self._held[lease.token] = replace(held, started=True)
        await self._run(scripts.MARK_STARTED, [self._keys(lease.session_key).run], [lease.token])

    async def due_sessions(self, limit: int) -> list[str]:
        """Sessions with a run that nobody works on, at most `limit`, longest due first."""

        async def look() -> list[str]:
            seconds, micros = cast("tuple[int, int]", await self._command("TIME"))
            index, now_ms = active_key(self._prefix), seconds * 1000 + micros // 1000
            found = await self._command("ZRANGEBYSCORE", index, "-inf", now_ms, "LIMIT", 0, limit)
            sessions = [name.decode() for name in cast("list[bytes]", found)]
            return [session for session in sessions if await self._is_due(session)]

        return await self._caller.call(look)

    # --- inside --------------------------------------------------------------------------------------------------

    async def _send_renew(self, lease: Lease, held: _Held | None) -> list[str]:
        keys = self._keys(lease.session_key)
        seen, by = keys.answer(lease.token), keys.by("")
        anew: list[Argument] = ["", 0, 0, "", ""]
        if held:
            seen, deduped = _seen(keys, held.run, lease.token)
            message_id = held.run.origin.message_id
            by = keys.by(message_id)
            written = encode_input(held.run)
            anew = [written, held.run.queued_at_ms, int(held.started), "1" if message_id else "", deduped]
        said = await run_script(
            self._client,
            scripts.RENEW,
            [keys.lease, keys.run, keys.cancel, keys.fence, keys.active, seen, by],
            [lease.token, lease.fence, lease.task_id, self.boot_id, self._lease_ms, lease.session_key, *anew],
        )
        return _words(said)

    async def _send_cancel(self, session_key: str, order: CancelOrder) -> Reply:
        keys = self._keys(session_key)
        return await run_script(
            self._client,
            scripts.CANCEL,
            [keys.run, keys.queue, keys.cancel, keys.dropped(order.task_id)],
            [order.task_id, order.by, order.reason],
        )

    async def _canceled(self, reply: Reply, order: CancelOrder) -> CancelOutcome:
        match reply:
            case [b"running", bytes(owner)]:
                local = owner.decode() == self.boot_id
                if not local:
                    await tell(self._client, owner.decode(), order, prefix=self._prefix)
                return CancelRequested(order.task_id, local)
            case [b"removed", bytes(item), list(items)]:
                return RemovedFromQueue(decode_item(item), _waiting(items))
            case _:
                return NothingToCancel()

    async def _is_due(self, session_key: str) -> bool:
        keys = self._keys(session_key)
        said = await run_script(self._client, scripts.DUE, [keys.run, keys.lease, keys.active], [session_key])
        return said == 1

    def _hold(self, run: RunInput, token: str, fence: int, *, started: bool = False) -> Lease:
        self._held[token] = _Held(run, started)
        return Lease(run.task_id, run.session_key, token, fence)

    def _keys(self, session_key: str) -> SessionKeys:
        return SessionKeys.of(session_key, self._prefix)

    async def _run(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Reply:
        return await self._caller.call(lambda: run_script(self._client, script, keys, args))

    async def _in_order(self, attempt: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Like `Caller.call`, in the order of the calls; waiting for one's turn counts towards the time limit."""

        async def turn() -> _Answer:
            async with self._arrivals:
                return await attempt()

        return await self._caller.call(turn)

    def _command(self, *command: Argument) -> Awaitable[object]:
        return self._client.execute_command(*command)


def _seen(keys: SessionKeys, run: RunInput, token: str) -> tuple[str, str]:
    """Where the answer to this request is remembered, and whether for duplicates ("1") or only for repeats ("")."""
    if run.origin.dedupe_id:
        return keys.seen(run.origin.dedupe_id), "1"
    return keys.answer(token), ""


def _words(reply: Reply) -> list[str]:
    return [word.decode() for word in reply if isinstance(word, bytes)] if isinstance(reply, list) else []


def _waiting(items: Sequence[Reply]) -> tuple[RunInput, ...]:
    return tuple(decode_item(item) for item in items if isinstance(item, bytes))


def _root(error: BaseException) -> BaseException:
    """What began it: redis-py wraps a refused password in a connection error."""
    while error.__cause__:
        error = error.__cause__
    return error


def _require(token: str) -> None:
    if not token:
        raise ValueError("the token is empty: make it with secrets.token_hex")
