"""The one gate: every event of every kind passes `Gateway.handle`, and nothing else checks permissions.

    own and foreign bots out -> who may talk -> is it meant for the bot -> late or unreadable -> command -> task

Control events (stop, recall, click) go straight to the coordinator: they never wait behind a chat's lease or queue.
"""

import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol, assert_never

from bots.access import AccessRules
from bots.cards.reporter import RECALLED
from bots.cards.strings import Strings
from bots.cards.text import language_of, strings_for
from bots.commands import TypedAnswer, parse_answer, parse_command
from bots.coordination.keys import session_key
from bots.gateway.answers import ACTIONS, Answer, Answers, Verdict
from bots.gateway.notices import Notices
from bots.inbound import (
    BotRemoved,
    ButtonClicked,
    ChatRef,
    Inbound,
    MessageEdited,
    MessageRecalled,
    MessageReceived,
    StopRequested,
    UserRef,
)
from bots.platform import ChatPlatform, ReplyAddress
from bots.settings import SessionScope
from harness.admission import CancelRequested, NothingToCancel, Origin, RemovedFromQueue
from harness.errors import AdmissionUnavailable, Closed, StoreError
from harness.runtime import Queued, Refused, Runtime

TOO_OLD_S: Final = 30 * 60
"""A message that arrives later than this after it was written (an outage) is not run: its moment may have passed."""
DEDUPE_S: Final = 48 * 3600
BOT_REMOVED: Final = "the bot was removed from the chat"
REFUSAL_EVERY_S: Final = 20
PRIVATE_REFUSAL_EVERY_S: Final = 3600

Outcome = Literal["ignored", "started", "queued", "refused", "answered", "stopped", "decided", "duplicate"]


class ChatMemory(Protocol):
    """What the gateway remembers between events, across replicas. Raises `AdmissionUnavailable`."""

    async def engaged(self, session_key: str) -> bool:
        """Was the bot part of this conversation in the last 7 days?"""
        ...

    async def note_stop(self, session_key: str, user: str) -> int:
        """Note a stop of this person; when their last one here was, in ms of the coordinator's clock, 0 if long ago."""
        ...

    async def first_time(self, session_key: str, name: str, seconds: float) -> bool:
        """True once per `seconds` for this name in this chat."""
        ...

    async def forget(self, session_key: str, name: str) -> None:
        """Make `first_time` true again."""
        ...


@dataclass(frozen=True, slots=True)
class GatewayRules:
    """How the gateway decides. `scope` None = thread in channels, the chat itself in direct messages."""

    access: AccessRules
    scope: SessionScope | None = None
    language: str = ""


class Gateway:
    """Decides what happens with an event, and does it.

    `handle` returns once the event is durably taken or deliberately dropped, so that the platform may be answered.
    Raises `AdmissionUnavailable` and `Closed`: then the platform must deliver the event again.
    """

    def __init__(
        self,
        platforms: Mapping[str, ChatPlatform],
        runtime: Runtime,
        memory: ChatMemory,
        rules: GatewayRules,
        answers: Answers,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._platforms = platforms
        self._runtime = runtime
        self._memory = memory
        self._rules = rules
        self._answers = answers
        self._now = now
        self._notices = Notices(platforms)

    async def aclose(self) -> None:
        """Drop what has not been posted yet."""
        await self._answers.aclose()
        await self._notices.aclose()

    async def handle(self, event: Inbound) -> Outcome:
        """Pass one event through the gate; the word says what became of it."""
        try:
            return await self._routed(event)
        except StoreError as error:
            # Nothing of it was done: it has to be delivered again, like anything that cannot be admitted.
            raise AdmissionUnavailable(str(error)) from error

    async def _routed(self, event: Inbound) -> Outcome:
        match event:
            case MessageReceived():
                return await self._message(event)
            case MessageRecalled(ref=ref):
                key = session_key(ref.chat.platform, ref.chat.tenant, ref.chat.chat, ref.chat.thread)
                outcome = await self._runtime.cancel_message(key, ref.message, by="", reason=RECALLED)
                return "ignored" if isinstance(outcome, NothingToCancel) else "stopped"
            case ButtonClicked():
                return await self._click(event)
            case StopRequested(chat=chat, user=user):
                if user.is_bot:
                    return "ignored"
                return await self._stop(chat, user, self._address(chat, "", user), announce=True)
            case BotRemoved(chat=chat):
                return await self._removed(chat)
            case MessageEdited():
                # The request as it was sent is what runs; a queued one keeps its text.
                return "ignored"
            case _:
                assert_never(event)

    async def _message(self, event: MessageReceived) -> Outcome:
        chat, sender = event.ref.chat, event.sender
        if sender.is_bot:
            return "ignored"
        command = parse_command(event.text)
        address = self._address(chat, event.ref.message, sender)
        is_meant = await self._is_meant_for_bot(event)
        if answer := parse_answer(event.text):
            return await self._typed(event, answer, address, is_meant=is_meant)
        if not is_meant:
            # A stop word needs no mention where the writer has something to stop, and means nothing elsewhere. One that
            # comes long after it was written must not stop what was asked since.
            if command != "stop" or self._is_late(event):
                return "ignored"
            return await self._once(event, lambda: self._stop(chat, sender, address, announce=False))
        if not self._rules.access.may_talk(sender, chat):
            return await self._refuse(event, address)
        if command == "stop" and not self._is_late(event):
            return await self._once(event, lambda: self._stop(chat, sender, address, announce=True))
        if note := self._why_not(event, self._strings(chat, event.text)):
            return await self._once(event, lambda: self._say(address, note))
        match command:
            case "new":
                return await self._once(event, lambda: self._new(chat, sender, address))
            case "status":
                return await self._once(event, lambda: self._status(chat, sender, address))
            case "retry":
                key = self._session(chat, sender)
                return await self._once(event, lambda: self._retry(key, "", sender, address))
            case _:
                return await self._start(event, address)

    async def _is_meant_for_bot(self, event: MessageReceived) -> bool:
        chat = event.ref.chat
        if chat.kind == "dm" or event.mentions_bot or not self._rules.access.require_mention:
            return True
        if not event.in_thread:
            return False
        return await self._memory.engaged(session_key(chat.platform, chat.tenant, chat.chat, chat.thread))

    def _is_late(self, event: MessageReceived) -> bool:
        return self._now() - event.sent_at > TOO_OLD_S

    def _why_not(self, event: MessageReceived, strings: Strings) -> str:
        """What to answer instead of running the message; "" = run it."""
        if parse_command(event.text) == "help":
            return strings.help
        if self._is_late(event):
            return strings.too_old
        if not event.text.strip():
            return strings.unsupported if event.unsupported else strings.help
        return ""

    async def _start(self, event: MessageReceived, address: ReplyAddress) -> Outcome:
        chat = event.ref.chat
        speaker = "" if chat.kind == "dm" else event.sender.user
        origin = Origin(event.ref.message, event.dedupe_id, event.sender.id, speaker, address.as_mapping())
        try:
            outcome = await self._runtime.start(self._session(chat, event.sender), event.text, origin=origin)
        except ValueError:
            # Longer than admission keeps; sending it again cannot help, so it must not be delivered again either.
            return await self._once(event, lambda: self._say(address, self._strings(chat, event.text).too_long))
        if not isinstance(outcome, Refused):
            return "queued" if isinstance(outcome, Queued) else "started"
        strings = self._strings(chat, event.text)
        match outcome.reason:
            case "closed":
                raise Closed("shutting down")
            case "duplicate":
                return "duplicate"
            case "recalled":
                return "ignored"
            case "full":
                await self._refusal(event, address, strings.queue_full)
            case "busy":
                await self._refusal(event, address, strings.busy)
            case _:
                assert_never(outcome.reason)
        return "refused"

    async def _refusal(self, event: MessageReceived, address: ReplyAddress, text: str) -> None:
        """Say once in a while that nothing more is taken: a flood must not be answered by a flood."""
        key = self._session(event.ref.chat, event.sender)
        if await self._memory.first_time(key, f"no:{address.scope}:{event.sender.user}", REFUSAL_EVERY_S):
            await self._say(address, text)

    async def _stop(self, chat: ChatRef, user: UserRef, address: ReplyAddress, *, announce: bool) -> Outcome:
        """Stop what runs in the session; said again, also drop what the writer had waiting at the first time.

        Without anything of theirs running, it is what they have waiting that they mean.
        """
        key = self._session(chat, user)
        activity = await self._runtime.activity(key)
        running = activity.running
        mine = [run for run in activity.waiting if run.origin.requester == user.id]
        stoppable = running is not None and self._rules.access.may_stop(user, running.origin.requester)
        strings = self._strings(chat)
        if not stoppable and not mine:
            if announce:
                self._notices.whisper(address, strings.not_yours if running else strings.nothing_to_stop)
                return "answered"
            return "ignored"
        stopped_at = await self._memory.note_stop(key, user.id)
        dropped = [run for run in mine if not stoppable or run.queued_at_ms <= stopped_at]
        for run in dropped:
            await self._runtime.cancel_task(key, run.task_id, by=user.id, reason="stop")
        if dropped:
            self._notices.whisper(address, strings.queue_cleared.format(count=len(dropped)))
        if running is not None and stoppable:
            await self._runtime.cancel_task(key, running.task_id, by=user.id, reason="stop")
        return "stopped"

    async def _click(self, event: ButtonClicked) -> Outcome:
        if event.user.is_bot:
            return "ignored"
        address = self._address(event.ref.chat, event.ref.message, event.user)
        if event.action == "stop":
            return await self._stop_button(event, address)
        if event.action == "retry":
            if not self._rules.access.may_talk(event.user, event.ref.chat):
                return "refused"
            task_id, key = _named_by(event)
            return await self._retry(key, task_id, event.user, address)
        if decision := ACTIONS.get(event.action):
            return await self._decide(
                Answer(event.value, decision, event.user, event.ref.chat, event.ref.message), address
            )
        return "ignored"

    async def _stop_button(self, event: ButtonClicked, address: ReplyAddress) -> Outcome:
        chat = event.ref.chat
        strings = self._strings(chat)
        task_id, key = _named_by(event)
        activity = await self._runtime.activity(key)
        known = [*([activity.running] if activity.running else []), *activity.waiting]
        run = next((run for run in known if run.task_id == task_id), None)
        if run is None:
            self._notices.whisper(address, strings.nothing_to_stop)
            return "answered"
        if not self._rules.access.may_stop(event.user, run.origin.requester):
            self._notices.whisper(address, strings.not_yours)
            return "answered"
        outcome = await self._runtime.cancel_task(key, run.task_id, by=event.user.id, reason="stop")
        return "stopped" if isinstance(outcome, CancelRequested | RemovedFromQueue) else "ignored"

    async def _retry(self, key: str, task_id: str, user: UserRef, address: ReplyAddress) -> Outcome:
        """Run the last request of a conversation once more; `task_id` "" = whichever that is."""
        outcome = await self._runtime.retry(key, user.id, task_id=task_id)
        strings = self._strings(ChatRef(address.platform, address.tenant, address.chat, address.thread))
        match outcome:
            case None:
                self._notices.whisper(address, strings.nothing_to_retry)
                return "answered"
            case Refused(reason="closed"):
                raise Closed("shutting down")
            case Refused(reason="full" | "busy"):
                self._notices.whisper(address, strings.busy)
                return "refused"
            case Refused():
                return "duplicate"
            case Queued():
                return "queued"
            case _:
                return "started"

    async def _typed(
        self, event: MessageReceived, answer: TypedAnswer, address: ReplyAddress, *, is_meant: bool
    ) -> Outcome:
        """An answer to a question, typed. Without a mention it counts where its code is that of a question here."""
        chat, sender = event.ref.chat, event.sender
        if not is_meant and (self._is_late(event) or not await self._answers.is_about(answer.code, chat)):
            return "ignored"
        if not self._rules.access.may_talk(sender, chat) and not self._rules.access.is_approver(sender):
            return await self._refuse(event, address)
        if self._is_late(event):
            return await self._once(event, lambda: self._say(address, self._strings(chat).too_old))
        return await self._once(
            event,
            lambda: self._decide(
                Answer(answer.code, answer.decision, sender, chat, reason=answer.reason),
                address,
            ),
        )

    async def _decide(self, answer: Answer, address: ReplyAddress) -> Outcome:
        ruling = await self._answers.decide(answer)
        if ruling.verdict == "decided":
            return "decided"
        platform = self._platforms[address.platform]
        strings = strings_for(self._rules.language or ruling.language or platform.language)
        self._notices.whisper(address, _why_not_decided(ruling.verdict, strings))
        return "answered"

    async def _new(self, chat: ChatRef, user: UserRef, address: ReplyAddress) -> Outcome:
        key = self._session(chat, user)
        if (await self._runtime.activity(key)).running is not None:
            return await self._say(address, self._strings(chat).busy)
        await self._runtime.clear(key)
        return await self._say(address, self._strings(chat).conversation_cleared)

    async def _status(self, chat: ChatRef, user: UserRef, address: ReplyAddress) -> Outcome:
        activity = await self._runtime.activity(self._session(chat, user))
        strings = self._strings(chat)
        if activity.running is None:
            return await self._say(address, strings.status_idle)
        return await self._say(address, strings.status_running.format(waiting=len(activity.waiting)))

    async def _removed(self, chat: ChatRef) -> Outcome:
        prefix = session_key(chat.platform, chat.tenant, chat.chat)
        here = [task for task in self._runtime.live_tasks if task.session_key.startswith(prefix)]
        for task in here:
            # Those who wait first, or each would be started in turn.
            for run in (await self._runtime.activity(task.session_key)).waiting:
                await self._runtime.cancel_task(run.session_key, run.task_id, by="", reason=BOT_REMOVED)
            task.cancel(BOT_REMOVED)
        return "stopped" if here else "ignored"

    async def _refuse(self, event: MessageReceived, address: ReplyAddress) -> Outcome:
        """A person who may not talk sees nothing in a group, and one private line an hour in a direct message."""
        chat = event.ref.chat
        if chat.kind == "dm" and not event.sender.external:
            key = self._session(chat, event.sender)
            if await self._memory.first_time(key, f"refused:{event.sender.user}", PRIVATE_REFUSAL_EVERY_S):
                self._notices.whisper(address, self._strings(chat).no_access)
        return "refused"

    async def _once(self, event: MessageReceived, act: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Do what a message asks for at its first delivery only; tasks are deduplicated by admission, the rest here."""
        key = session_key(event.ref.chat.platform, event.ref.chat.tenant, event.ref.chat.chat)
        if not await self._memory.first_time(key, event.dedupe_id, DEDUPE_S):
            return "duplicate"
        try:
            return await act()
        except BaseException:
            # It will be delivered again, and must not be taken for done then.
            with contextlib.suppress(AdmissionUnavailable):
                await self._memory.forget(key, event.dedupe_id)
            raise

    async def _say(self, address: ReplyAddress, text: str) -> Outcome:
        self._notices.say(address, text)
        return "answered"

    def _address(self, chat: ChatRef, message: str, user: UserRef) -> ReplyAddress:
        scope = self._session(chat, user).partition("/")[2]
        return ReplyAddress(chat.platform, chat.tenant, chat.chat, chat.thread, message, user.user, scope)

    def _session(self, chat: ChatRef, user: UserRef) -> str:
        match self._rules.scope or ("chat" if chat.kind == "dm" else "thread"):
            case "thread":
                return session_key(chat.platform, chat.tenant, chat.chat, chat.thread)
            case "chat":
                return session_key(chat.platform, chat.tenant, chat.chat)
            case "user":
                return session_key(chat.platform, chat.tenant, chat.chat, f"@{user.user}")

    def _strings(self, chat: ChatRef, text: str = "") -> Strings:
        """The texts in the language that is set, else in that of what the person wrote, else in the platform's."""
        return strings_for(self._rules.language or language_of(text, self._platforms[chat.platform].language))


def _why_not_decided(verdict: Verdict, strings: Strings) -> str:
    match verdict:
        case "elsewhere":
            return strings.approval_elsewhere
        case "not_yours":
            return strings.approval_not_yours
        case "late":
            return strings.approval_decided
        case "expired":
            return strings.approval_expired
        case "void":
            return strings.approval_void
        case "unknown" | "decided":
            return strings.approval_unknown
        case _:
            assert_never(verdict)


def _named_by(event: ButtonClicked) -> tuple[str, str]:
    """Task and session that the button of a card names: with a session per person, who clicks is in another one."""
    task_id, _, scope = event.value.partition("/")
    chat = event.ref.chat
    return task_id, f"{session_key(chat.platform, chat.tenant, chat.chat)}{scope}"
