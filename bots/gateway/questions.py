"""The messages of questions for permission: posted when a run waits, edited when the answer is known.

A question is a message of its own beside the card. The row in the approval store is the authority on what was decided;
the message follows it. Where the message stands is kept in the card ledger under the approval's id, so any process can
bring it up to date, also when the one that has posted it is gone.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import structlog

from bots.cards.approval import QuestionView, question_view
from bots.cards.text import strings_for
from bots.errors import ChatGone, MessageGone, PlatformError, QuestionTooLong, RateLimited, Unavailable
from bots.inbound import ChatRef
from bots.platform import ChatPlatform, ReplyAddress
from harness.approval import Approval, Decision
from harness.errors import StoreError
from harness.stores.base import CardLedger
from harness.stores.records import CardRecord
from harness.task_registry import TaskRegistry

log = structlog.stdlib.get_logger(__name__)

POST_DEADLINE_S: Final = 60.0
"""How long a question is tried to be posted before the call is denied: the run must not wait for what nobody sees."""
EDIT_DEADLINE_S: Final = 600.0
SWEEP_S: Final = 5.0
TOO_LONG: Final = "the bot, because its arguments are too long to be shown whole in this chat (smaller ones can be)"
NOT_POSTED: Final = "the bot, because nobody could be asked: the question could not be posted in this chat"
_KIND: Final = "kind"
_QUESTION: Final = "question"
_LANGUAGE: Final = "language"
_BACKOFF_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0)


class Approvals(Protocol):
    """Where questions are kept and answered; the runtime is one."""

    async def find_approval(self, approval: str) -> Approval | None:
        """An approval by its id or its code."""
        ...

    async def decide(self, approval_id: str, decision: Decision, *, by: str) -> Approval | None:
        """Answer a question; None when it is too late."""
        ...


class _Pointless(Exception):
    """The question needs no answer any more. `doubt`: a post of it may have arrived."""

    def __init__(self, *, doubt: bool) -> None:
        super().__init__()
        self.doubt = doubt


class Questions:
    """Posts, edits and finds the messages of questions. `now` gives Unix seconds.

    Nothing here blocks a run: the work is done in the background, at most one piece for each question at a time.
    """

    def __init__(
        self,
        platforms: Mapping[str, ChatPlatform],
        ledger: CardLedger,
        approvals: Approvals,
        *,
        post_deadline_s: float = POST_DEADLINE_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._platforms = platforms
        self._ledger = ledger
        self._approvals = approvals
        self._post_deadline_s = post_deadline_s
        self._now = now
        self._tasks = TaskRegistry()
        self._busy: set[str] = set()
        self._again: set[str] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def ask(self, approval: Approval, address: ReplyAddress, language: str) -> None:
        """Post the question, unless that has been done. What cannot be asked is denied, and the run goes on."""
        self._begin(approval.id, approval.task_id, lambda: self._ask(approval, address, language))

    def settle(self, approval_id: str, task_id: str) -> None:
        """Show how the question was decided; nothing when it is still open."""
        self._begin(approval_id, task_id, lambda: self._settle(approval_id, task_id))

    def settle_task(self, task_id: str, *, remove: bool = False) -> None:
        """Show how each question of a task ended. `remove`: take the messages away instead."""
        self._tasks.start(self._settle_task(task_id, remove=remove), f"questions of {task_id}")

    async def stands_at(self, approval: Approval, chat: ChatRef, message: str) -> bool:
        """Is this the message in which the question was posted? A copy of it in another place is not."""
        record = await self._record(approval.task_id, approval.id)
        if record is None:
            return False
        address = ReplyAddress.of(record.place)
        if (address.platform, address.tenant, address.chat) != (chat.platform, chat.tenant, chat.chat):
            return False
        return bool(message) and await self._message_of(record) == message

    async def language_of(self, approval: Approval) -> str:
        """The language in which the question was asked; "" when that is not known."""
        record = await self._record(approval.task_id, approval.id)
        return record.place.get(_LANGUAGE, "") if record is not None else ""

    async def sweep(self, *, every_s: float = SWEEP_S) -> None:
        """Bring up to date what a process has left that died between a decision and its edit; until canceled."""
        while True:
            await self.settle_left()
            await asyncio.sleep(every_s)

    async def settle_left(self) -> None:
        """One round of `sweep`."""
        try:
            for record in await self._ledger.unfinished():
                if record.place.get(_KIND) == _QUESTION:
                    self.settle(record.key, record.task_id)
        except StoreError as error:
            log.warning("open questions could not be read", reason=str(error))

    async def aclose(self, *, grace_s: float = 0.0) -> None:
        """Give the last edits some time to get out, then stop."""
        if left := await self._tasks.drain(grace_s):
            log.warning("stopped before every question was up to date", questions=left)
        await self._tasks.aclose()

    def _begin(self, approval_id: str, task_id: str, work: Callable[[], Awaitable[None]]) -> None:
        if approval_id in self._busy:
            # Whoever is at it looks once more when it is through, so nothing that happens meanwhile is missed.
            self._again.add(approval_id)
            return
        self._busy.add(approval_id)
        self._tasks.start(self._alone(approval_id, task_id, work), f"question {approval_id}")

    async def _alone(self, approval_id: str, task_id: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
            while approval_id in self._again:
                self._again.discard(approval_id)
                await self._settle(approval_id, task_id)
        finally:
            self._busy.discard(approval_id)
            self._again.discard(approval_id)

    async def _ask(self, approval: Approval, address: ReplyAddress, language: str) -> None:
        try:
            if not await self._post_once(approval, address, language):
                return
        except QuestionTooLong:
            await self._give_up(approval, TOO_LONG)
            await self._say_too_long(approval, address, language)
        except _Pointless as pointless:
            if not pointless.doubt:
                await self._ledger.close(approval.id, "void", at=self._now())
        except PlatformError as error:
            _log_failure("a question could not be posted", error, approval.id)
            await self._give_up(approval, NOT_POSTED, known_absent=not _is_ambiguous(error))
        except Exception:
            # A fault of ours, perhaps with these arguments only: it must not leave a run behind that waits for nobody.
            log.exception("a question could not be asked", task=approval.task_id)
            await self._give_up(approval, NOT_POSTED)
        await self._settle(approval.id, approval.task_id)

    async def _post_once(self, approval: Approval, address: ReplyAddress, language: str) -> bool:
        """Post the question; False when another process is about to."""
        known = await self._record(approval.task_id, approval.id)
        if known is None:
            place = {**address.as_mapping(), _KIND: _QUESTION, _LANGUAGE: language}
            known = CardRecord(approval.id, approval.task_id, approval.session_key, self._now(), place)
            await self._ledger.open(known)
            doubt = False
        elif known.state != "opening":
            return True
        elif self._now() - known.opened_at < self._post_deadline_s:
            return False
        else:
            # Whoever wrote this down is gone, perhaps after the post.
            doubt = True
        await self._ledger.posted(approval.id, await self._post(approval, address, language, doubt=doubt))
        return True

    async def _post(self, approval: Approval, address: ReplyAddress, language: str, *, doubt: bool) -> str:
        """The id of the message, posted by now. `doubt`: an earlier post may have arrived, and is looked for first."""
        platform, view = self._platforms[address.platform], question_view(approval)
        until = time.monotonic() + self._post_deadline_s
        failures = 0
        while True:
            row = await self._approvals.find_approval(approval.id)
            if row is None or row.status != "pending":
                raise _Pointless(doubt=doubt)
            try:
                if doubt and (found := await self._found(platform, address, approval.id)):
                    return found
                doubt = False
                return await platform.post_question(address, view, language)
            except (RateLimited, Unavailable) as error:
                doubt = doubt or _is_ambiguous(error)
                failures += 1
                pause = _pause(error, failures)
                if time.monotonic() + pause > until:
                    raise Unavailable(str(error), ambiguous=doubt, code=error.code) from error
                await asyncio.sleep(pause)

    async def _found(self, platform: ChatPlatform, address: ReplyAddress, approval_id: str) -> str:
        """The message of an earlier post, "" when there is none; Unavailable when nobody can say."""
        found = await platform.find_question(address, approval_id)
        if found is None:
            # Two questions for one call would be worse than none.
            raise Unavailable("the platform does not say whether the question arrived", ambiguous=True)
        return found

    async def _give_up(self, approval: Approval, why: str, *, known_absent: bool = True) -> None:
        await self._approvals.decide(approval.id, "deny", by=why)
        if known_absent:
            await self._ledger.close(approval.id, "denied", at=self._now())

    async def _say_too_long(self, approval: Approval, address: ReplyAddress, language: str) -> None:
        platform = self._platforms[address.platform]
        text = strings_for(language).question_too_long.format(tool=question_view(approval).tool)
        await self._through(approval.id, lambda: platform.say(address, text), self._post_deadline_s)

    async def _settle(self, approval_id: str, task_id: str) -> None:
        record = await self._record(task_id, approval_id)
        if record is None or record.state == "closed":
            return
        row = await self._approvals.find_approval(approval_id)
        if row is not None and row.status == "pending":
            if record.state == "opening" and self._now() - record.opened_at > self._post_deadline_s:
                # Whoever wanted to post it is gone, and nobody can answer what nobody sees.
                await self._ask(row, ReplyAddress.of(record.place), record.place.get(_LANGUAGE, ""))
            return
        if row is None:
            return
        address = ReplyAddress.of(record.place)
        platform, language = self._platforms[address.platform], record.place.get(_LANGUAGE, "")
        message = await self._message_of(record)
        if not message:
            patience = 2 * self._post_deadline_s if message == "" else EDIT_DEADLINE_S
            if self._now() - record.opened_at > patience:
                # Long enough ago: whoever wanted to post it has not and will not, or nobody will ever say.
                await self._ledger.close(approval_id, row.status, at=self._now())
            return
        write = _edit(platform, address, message, question_view(row), language)
        if await self._through(approval_id, write, EDIT_DEADLINE_S):
            await self._ledger.close(approval_id, row.status, at=self._now())

    async def _settle_task(self, task_id: str, *, remove: bool) -> None:
        for record in await self._ledger.of_task(task_id):
            if record.place.get(_KIND) != _QUESTION:
                continue
            # Looked for on the platform too: the post may have arrived a moment before its id was written down.
            message = await self._message_of(record) if remove else None
            if not message:
                self.settle(record.key, task_id)
                continue
            address = ReplyAddress.of(record.place)
            platform = self._platforms[address.platform]
            chat = ChatRef(address.platform, address.tenant, address.chat, address.thread)
            if await self._through(record.key, _removal(platform, chat, message), EDIT_DEADLINE_S):
                await self._ledger.close(record.key, "removed", at=self._now())

    async def _message_of(self, record: CardRecord) -> str | None:
        """Where the question stands: "" = nowhere, None = nobody can say right now."""
        if record.message_id:
            return record.message_id
        address = ReplyAddress.of(record.place)
        try:
            found = await self._platforms[address.platform].find_question(address, record.key)
        except PlatformError:
            return None
        if found:
            await self._ledger.posted(record.key, found)
        return found

    async def _record(self, task_id: str, approval_id: str) -> CardRecord | None:
        return next((card for card in await self._ledger.of_task(task_id) if card.key == approval_id), None)

    async def _through(self, approval_id: str, write: Callable[[], Awaitable[None]], seconds: float) -> bool:
        """Repeat a write until it is through or makes no sense any more (True), or the time is up (False)."""
        until = time.monotonic() + seconds
        failures = 0
        while True:
            try:
                await write()
            except (MessageGone, ChatGone):
                return True
            except (RateLimited, Unavailable) as error:
                failures += 1
                pause = _pause(error, failures)
                if time.monotonic() + pause > until:
                    return False
                await asyncio.sleep(pause)
            except PlatformError as error:
                # The row protects the call, whatever the message looks like.
                _log_failure("a question could not be brought up to date", error, approval_id)
                return True
            else:
                return True


def _edit(
    platform: ChatPlatform, address: ReplyAddress, message: str, view: QuestionView, language: str
) -> Callable[[], Awaitable[None]]:
    return lambda: platform.show_question(address, message, view, language)


def _removal(platform: ChatPlatform, chat: ChatRef, message: str) -> Callable[[], Awaitable[None]]:
    return lambda: platform.delete_reply(chat, message)


def _log_failure(event: str, error: PlatformError, approval_id: str) -> None:
    # The vendor's code says it all; a traceback would add nothing.
    log.error(event, code=error.code, reason=str(error), approval=approval_id)


def _is_ambiguous(error: PlatformError) -> bool:
    return isinstance(error, Unavailable) and error.ambiguous


def _pause(error: PlatformError, failures: int) -> float:
    if isinstance(error, RateLimited):
        return error.seconds
    return _BACKOFF_S[min(failures, len(_BACKOFF_S)) - 1]
