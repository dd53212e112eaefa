"""Answers to questions for permission: who may give them, and what becomes of them.

One authoriser for buttons, typed answers and the API. The row decides: of many answers one counts, and it counts before
anybody is shown that it did.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from bots.access import AccessRules
from bots.cards.approval import decider
from bots.coordination.keys import session_key
from bots.gateway.questions import Approvals, Questions
from bots.inbound import ChatRef, UserRef
from harness.admission import chat_of
from harness.approval import Approval, Decision
from harness.task_registry import TaskRegistry

ACTIONS: Final[dict[str, Decision]] = {
    "allow_once": "once",
    "allow_session": "session",
    "allow_always": "always",
    "deny": "deny",
}
"""The verbs of the buttons."""
PATIENCE_S: Final = 2.0
"""How long an answer waits until its run goes on; the decision itself stands long before."""

Verdict = Literal["decided", "unknown", "elsewhere", "not_yours", "late", "expired", "void"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What somebody wants to be decided. `approval` is an id, or a code where `message` is None: it was typed.

    `message` is the one whose button was pressed, `chat` the place of either.
    """

    approval: str
    decision: Decision
    user: UserRef
    chat: ChatRef
    message: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What became of an answer. `language` is that of the question, "" when it is not known."""

    verdict: Verdict
    language: str = ""


class Answers:
    """Decides. `has_side_effects` tells, by its name, whether a tool may change something; unknown ones may."""

    def __init__(
        self,
        approvals: Approvals,
        questions: Questions,
        access: AccessRules,
        has_side_effects: Callable[[str], bool],
    ) -> None:
        self._approvals = approvals
        self._questions = questions
        self._access = access
        self._has_side_effects = has_side_effects
        self._deciding = TaskRegistry()

    async def aclose(self) -> None:
        """Stop what still runs."""
        await self._deciding.aclose()

    async def is_about(self, approval: str, chat: ChatRef) -> bool:
        """Is there a question of this id or code in this chat?"""
        row = await self._approvals.find_approval(approval) if approval else None
        return row is not None and _is_of(row, chat)

    async def decide(self, answer: Answer) -> Ruling:
        """Decide, or say why not. Nothing has happened unless the verdict is `decided`."""
        row = await self._approvals.find_approval(answer.approval) if answer.approval else None
        is_typed = answer.message is None
        if row is None or answer.approval != (row.code if is_typed else row.id):
            return Ruling("unknown")
        if not _is_of(row, answer.chat):
            return Ruling("elsewhere")
        return Ruling(await self._verdict(row, answer), await self._questions.language_of(row))

    async def _verdict(self, row: Approval, answer: Answer) -> Verdict:
        if answer.message is not None and not await self._questions.stands_at(row, answer.chat, answer.message):
            return "elsewhere"
        if row.status != "pending":
            return _why_late(row)
        may = self._access.may_approve(
            answer.user, answer.chat, row.requester, side_effects=self._has_side_effects(row.tool)
        )
        return await self._carry_out(row, answer) if may else "not_yours"

    async def _carry_out(self, row: Approval, answer: Answer) -> Verdict:
        by = decider(answer.user.id, answer.reason)
        # In a task of its own: whoever gives the last answer sets the run going again, and that must not be torn apart
        # by a platform that hangs up; nor need it wait for a coordinator that is away.
        work = self._deciding.start(self._approvals.decide(row.id, answer.decision, by=by), f"decide {row.id}")
        await asyncio.wait({work}, timeout=PATIENCE_S)
        if work.done():
            decided = work.result() is not None
            now = await self._approvals.find_approval(row.id)
        else:
            now = await self._approvals.find_approval(row.id)
            decided = now is not None and (now.decided_by, now.decision) == (by, answer.decision)
        if not decided:
            return "expired" if now is None else _why_late(now)
        self._questions.settle(row.id, row.task_id)
        return "decided"


def _is_of(row: Approval, chat: ChatRef) -> bool:
    return chat_of(row.session_key) == chat_of(session_key(chat.platform, chat.tenant, chat.chat))


def _why_late(row: Approval) -> Verdict:
    match row.status:
        case "expired" | "pending":
            # Still pending means that its time was up before anybody has noted it.
            return "expired"
        case "void":
            return "void"
        case _:
            return "late"
