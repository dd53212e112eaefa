"""Conversations in the memory of one process: for the terminal, for tests, and until a database is configured."""

from collections.abc import Sequence
from dataclasses import replace

from harness.approval import Approval, Decision, Grant
from harness.errors import StaleFence, VersionConflict
from harness.messages import Message
from harness.stores.base import ParkedRun, Session


class MemorySessionStore:
    """`SessionStore` on a dict. Everything is gone with the process."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    async def load(self, key: str) -> Session:
        """The conversation; an unknown key gives an empty one."""
        return self._sessions.get(key) or Session(key)

    async def append(self, session: Session, messages: Sequence[Message], *, fence: int = 0) -> Session:
        """Add messages; see `SessionStore.append`."""
        stored = await self.load(session.key)
        if fence and fence < stored.fence:
            raise StaleFence(f"session {session.key!r}: fence {fence} is older than {stored.fence}")
        if session.version != stored.version:
            raise VersionConflict(f"session {session.key!r} is at version {stored.version}, not {session.version}")
        new = Session(
            session.key,
            (*stored.messages, *messages),
            stored.version + 1,
            max(fence, stored.fence),
        )
        self._sessions[session.key] = new
        return new

    async def clear(self, key: str) -> None:
        """Forget the messages; the version goes on, so that an old writer cannot bring them back."""
        if stored := self._sessions.get(key):
            self._sessions[key] = replace(stored, messages=(), version=stored.version + 1)


class MemoryGrantStore:
    """`GrantStore` on a dict."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}

    async def add(self, grant: Grant) -> None:
        """See `GrantStore`."""
        self._grants[grant.id] = grant

    async def find(self, digest: str, *, chat: str, user: str, session_key: str, now: float) -> Grant | None:
        """See `GrantStore`."""
        for grant in self._grants.values():
            where = grant.chat == chat and grant.session_key in ("", session_key)
            if where and grant.digest == digest and grant.user == user and grant.expires_at > now:
                return grant
        return None

    async def list(self, *, now: float, chat: str = "", user: str = "") -> Sequence[Grant]:
        """See `GrantStore`."""
        return [
            grant
            for grant in self._grants.values()
            if grant.expires_at > now and chat in ("", grant.chat) and user in ("", grant.user)
        ]

    async def revoke(self, grant_id: str) -> bool:
        """See `GrantStore`."""
        return self._grants.pop(grant_id, None) is not None


class MemoryParkingStore:
    """`ParkingStore` on a dict. No method waits for anything, so each is atomic on its event loop."""

    def __init__(self) -> None:
        self._parked: dict[str, ParkedRun] = {}
        self._approvals: dict[str, Approval] = {}

    async def park(self, parked: ParkedRun) -> None:
        """See `ParkingStore`."""
        self._parked[parked.run.task_id] = parked
        for approval in parked.approvals:
            self._approvals[approval.id] = approval

    async def find(self, approval: str) -> Approval | None:
        """See `ParkingStore`."""
        if found := self._approvals.get(approval):
            return found
        return next((row for row in self._approvals.values() if row.code == approval.upper()), None)

    async def decide(self, approval_id: str, decision: Decision, *, by: str, now: float) -> Approval | None:
        """See `ParkingStore`."""
        row = self._approvals.get(approval_id)
        if row is None or row.status != "pending" or row.expires_at <= now:
            return None
        status = "denied" if decision == "deny" else "allowed"
        return self._set(replace(row, status=status, decision=decision, decided_by=by))

    async def expire(self, *, now: float) -> Sequence[Approval]:
        """See `ParkingStore`."""
        due = [row for row in self._approvals.values() if row.status == "pending" and row.expires_at <= now]
        return [self._set(replace(row, status="expired", decision="deny")) for row in due]

    async def parked(self, task_id: str) -> ParkedRun | None:
        """See `ParkingStore`."""
        if (parked := self._parked.get(task_id)) is None:
            return None
        return replace(parked, approvals=tuple(self._approvals[row.id] for row in parked.approvals))

    async def ready(self) -> Sequence[str]:
        """See `ParkingStore`."""
        return [task_id for task_id in self._parked if (run := await self.parked(task_id)) and run.is_decided]

    async def unpark(self, task_id: str) -> ParkedRun | None:
        """See `ParkingStore`."""
        parked = await self.parked(task_id)
        if parked is None:
            return None
        del self._parked[task_id]
        for row in parked.approvals:
            if row.status == "pending":
                self._set(replace(row, status="void"))
        return parked

    def _set(self, row: Approval) -> Approval:
        self._approvals[row.id] = row
        return row
