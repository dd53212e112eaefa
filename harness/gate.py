"""The approval gate: may a call run, must a person be asked, or is it refused? Policy first, then standing grants."""

import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final

from harness.admission import chat_of
from harness.approval import Approval, Decision, Grant, Policy, digest_of
from harness.messages import ToolCall
from harness.stores.base import GrantStore
from harness.tools.base import Tool
from harness.tools.executor import Caller

APPROVAL_SECONDS: Final = 600.0
SESSION_GRANT_SECONDS: Final = 24 * 3600.0
ALWAYS_GRANT_SECONDS: Final = 30 * 24 * 3600.0
_CODE_ALPHABET: Final = "ACDEFGHJKLMNPQRTUVWXYZ2346789"
"""Without the signs that people confuse when they type a code."""


class ApprovalGate:
    """Decides per tool and arguments.

    `overrides` replaces a tool's own policy by name. Times in seconds; `now` gives Unix seconds.
    """

    def __init__(
        self,
        grants: GrantStore,
        *,
        overrides: Mapping[str, Policy] | None = None,
        timeout_s: float = APPROVAL_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.grants = grants
        self._overrides: Mapping[str, Policy] = dict(overrides or {})
        self._timeout_s = timeout_s
        self._now = now

    async def check(self, tool: Tool, call: ToolCall, caller: Caller) -> Policy:
        """What to do with this call. A malformed one is allowed: the executor answers it with an error."""
        policy: Policy = self._overrides.get(tool.name, tool.policy)
        if call.arguments is None:
            return "allow"
        if policy != "ask":
            return policy
        grant = await self.grants.find(
            digest_of(tool.name, tool.spec.parameters, call.arguments),
            chat=chat_of(caller.session_key),
            user=caller.requester,
            session_key=caller.session_key,
            now=self._now(),
        )
        return "allow" if grant is not None else "ask"

    def request(self, tool: Tool, call: ToolCall, caller: Caller) -> Approval:
        """The question that a person is asked about this call."""
        assert call.arguments is not None, "a malformed call never needs a person"
        return Approval(
            id=secrets.token_hex(16),
            code="".join(secrets.choice(_CODE_ALPHABET) for _ in range(6)),
            tool=tool.name,
            arguments=call.arguments,
            expires_at=self._now() + self._timeout_s,
            task_id=caller.task_id,
            session_key=caller.session_key,
            call_id=call.id,
            requester=caller.requester,
            digest=digest_of(tool.name, tool.spec.parameters, call.arguments),
        )

    async def remember(self, approval: Approval, decision: Decision, by: str) -> Grant | None:
        """Keep what a decision allows beyond this one call; None for `once` and `deny`."""
        if decision not in ("session", "always"):
            return None
        seconds = SESSION_GRANT_SECONDS if decision == "session" else ALWAYS_GRANT_SECONDS
        grant = Grant(
            id=secrets.token_hex(4),
            tool=approval.tool,
            digest=approval.digest,
            chat=chat_of(approval.session_key),
            user=approval.requester,
            session_key=approval.session_key if decision == "session" else "",
            granted_by=by,
            created_at=self._now(),
            expires_at=self._now() + seconds,
            arguments=approval.arguments,
        )
        await self.grants.add(grant)
        return grant
