"""What the runtime asks of a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.admission import RunInput
from harness.approval import Approval, Decision, Grant
from harness.messages import AssistantMessage, Message, Usage


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation as it was when loaded. `version` grows with every append; `fence` is the last writer's."""

    key: str
    messages: tuple[Message, ...] = ()
    version: int = 0
    fence: int = 0


class SessionStore(Protocol):
    """Conversations by key.

    Contract: what `append` was given is durable when it returns, whole or not at all. A loaded session never changes.
    """

    async def load(self, key: str) -> Session:
        """The conversation; an unknown key gives an empty one."""
        ...

    async def append(self, session: Session, messages: Sequence[Message], *, fence: int = 0) -> Session:
        """Add messages to the session as it was loaded and return the new one.

        Raises `VersionConflict` when somebody else appended since, `StaleFence` when a writer with a higher fence did.
        """
        ...

    async def clear(self, key: str) -> None:
        """Forget the conversation. Writers that still hold the old one get `VersionConflict`."""
        ...


class GrantStore(Protocol):
    """Standing permissions.

    Contract: what `add` was given is durable when it returns. An expired grant is never found.
    """

    async def add(self, grant: Grant) -> None:
        """Keep a grant; one with the same id is replaced."""
        ...

    async def find(self, digest: str, *, chat: str, user: str, session_key: str, now: float) -> Grant | None:
        """A grant that covers this call, None when there is none."""
        ...

    async def list(self, *, now: float, chat: str = "", user: str = "") -> Sequence[Grant]:
        """The grants in force, oldest first; empty `chat` or `user` = of all."""
        ...

    async def revoke(self, grant_id: str) -> bool:
        """Take a grant back; False when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class ParkedRun:
    """A run that waits for people: everything needed to go on anywhere.

    `message` holds the calls; none of them has run. `refused`: call id to result of those that policy refuses.
    `elapsed_s` is the running time so far: it stands while waiting.
    """

    run: RunInput
    message: AssistantMessage
    approvals: tuple[Approval, ...]
    turns: int
    tool_calls: int
    steps: int
    usage: Usage
    answered: tuple[str, ...]
    elapsed_s: float
    denials: int = 0
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def is_decided(self) -> bool:
        """True when nobody is waited for any more."""
        return all(approval.status != "pending" for approval in self.approvals)


class ParkingStore(Protocol):
    """Runs that wait for a decision.

    Contract: `decide` is a compare-and-set: of many callers exactly one gets the row, the others None.
    """

    async def park(self, parked: ParkedRun) -> None:
        """Keep the run with its pending approvals, in one step."""
        ...

    async def find(self, approval: str) -> Approval | None:
        """An approval by its id or its code, whatever its status."""
        ...

    async def decide(self, approval_id: str, decision: Decision, *, by: str, now: float) -> Approval | None:
        """Set a pending, unexpired approval; None when somebody was faster, it has expired, or it is not known."""
        ...

    async def expire(self, *, now: float) -> Sequence[Approval]:
        """Deny every pending approval whose time is up, and return them."""
        ...

    async def parked(self, task_id: str) -> ParkedRun | None:
        """A parked run with its approvals as they stand."""
        ...

    async def unpark(self, task_id: str) -> ParkedRun | None:
        """Take the run out, to go on with it or to end it; one of many gets it. What is pending becomes void."""
        ...
