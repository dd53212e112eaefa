"""The gateway with the real runtime and admission, between a chat platform and a memory that are dictionaries."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bots.access import AccessRules
from bots.cards.approval import QuestionView
from bots.cards.reporter import CardReporter, Deck
from bots.cards.surface import CardSurface, Priority
from bots.cards.view import CardView
from bots.errors import MessageGone, PlatformError
from bots.gateway import Gateway, GatewayRules, Outcome
from bots.gateway.answers import Answers
from bots.gateway.asking import AskingReporter
from bots.gateway.questions import Questions
from bots.inbound import ButtonClicked, ChatKind, ChatRef, Inbound, MessageReceived, MessageRef, UserRef
from bots.platform import ReplyAddress
from bots.settings import SessionScope
from harness.admission import BusyPolicy, InProcessAdmission, RunInput
from harness.approval import Approval
from harness.engine import Engine, Limits
from harness.gate import ApprovalGate
from harness.messages import UserMessage
from harness.providers.script import Hang, Say, Script
from harness.providers.scripted import ScriptedProvider
from harness.reporters.base import Reporter
from harness.runtime import Runtime
from harness.status import TaskStatus
from harness.stores.memory import MemoryGrantStore, MemoryParkingStore, MemorySessionStore
from harness.tools.base import Tool, by_name
from harness.tools.executor import ToolExecutor
from tests.cards.memory_ledger import MemoryCardLedger

NOW = 1_000_000.0
BUSY: Script = [Say("working "), Hang()]


class Surface:
    """A `CardSurface` that takes every view; `view` is the last one."""

    def __init__(self) -> None:
        self.view: CardView | None = None

    def wait_time(self, priority: Priority) -> float:
        return 0.0

    def interval(self, live_cards: int) -> float:
        return 0.0

    def turn(self, priority: Priority) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    async def show(self, view: CardView, priority: Priority) -> None:
        self.view = view

    async def repost(self, view: CardView) -> None:
        self.view = view

    async def remove(self) -> None:
        self.view = None


@dataclass
class Posted:
    """A question as it stands in the chat; `states` are all that it has shown."""

    address: ReplyAddress
    view: QuestionView
    language: str
    states: list[str]


class Platform:
    """A `ChatPlatform` in memory.

    `errors` are raised by the next notices. `post_errors` and `edit_errors` by the next posts and edits of questions;
    an ambiguous one is raised after the post has arrived. `can_find`: whether a look-up says what is there.
    """

    name = "slack"
    language = "en"
    is_ready = True

    def __init__(self) -> None:
        self.said: list[tuple[ReplyAddress, str]] = []
        self.whispered: list[tuple[ReplyAddress, str]] = []
        self.errors: list[PlatformError] = []
        self.post_errors: list[PlatformError] = []
        self.edit_errors: list[PlatformError] = []
        self.can_find = True
        self.questions: dict[str, Posted] = {}
        self.surfaces: dict[str, Surface] = {}

    def card(self, address: ReplyAddress, task_id: str, language: str) -> CardSurface:
        return self.surfaces.setdefault(task_id, Surface())

    async def post_question(self, address: ReplyAddress, question: QuestionView, language: str) -> str:
        error = self.post_errors.pop(0) if self.post_errors else None
        if error is not None and not getattr(error, "ambiguous", False):
            raise error
        message = f"q{len(self.questions) + 1}"
        self.questions[message] = Posted(address, question, language, [question.state.value])
        if error is not None:
            raise error
        return message

    async def show_question(self, address: ReplyAddress, message: str, question: QuestionView, language: str) -> None:
        if self.edit_errors:
            raise self.edit_errors.pop(0)
        if message not in self.questions:
            raise MessageGone("no such message")
        self.questions[message].view = question
        self.questions[message].states.append(question.state.value)

    async def find_question(self, address: ReplyAddress, question_id: str) -> str | None:
        if not self.can_find:
            return None
        return next((name for name, posted in self.questions.items() if posted.view.id == question_id), "")

    async def say(self, address: ReplyAddress, text: str) -> None:
        self._maybe_fail()
        self.said.append((address, text))

    async def say_privately(self, address: ReplyAddress, text: str) -> None:
        self._maybe_fail()
        self.whispered.append((address, text))

    async def speaker_name(self, user: UserRef) -> str:
        return user.user

    async def delete_reply(self, chat: ChatRef, message: str) -> None:
        self.questions.pop(message, None)

    def _maybe_fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


class Memory:
    """A `ChatMemory` in memory. `error` is raised by every question while it is set."""

    def __init__(self) -> None:
        self.threads: set[str] = set()
        self.stops: dict[tuple[str, str], int] = {}
        self.names: set[tuple[str, str]] = set()
        self.error: Exception | None = None

    async def engaged(self, session_key: str) -> bool:
        self._maybe_fail()
        return session_key in self.threads

    async def note_stop(self, session_key: str, user: str) -> int:
        self._maybe_fail()
        before = self.stops.get((session_key, user), 0)
        self.stops[session_key, user] = int(time.time() * 1000)
        return before

    async def first_time(self, session_key: str, name: str, seconds: float) -> bool:
        self._maybe_fail()
        before = (session_key, name) in self.names
        self.names.add((session_key, name))
        return not before

    async def forget(self, session_key: str, name: str) -> None:
        self.names.discard((session_key, name))

    def _maybe_fail(self) -> None:
        if self.error is not None:
            raise self.error


def chat(kind: ChatKind = "group", thread: str = "", id: str = "") -> ChatRef:
    return ChatRef("slack", "T", id or ("D1" if kind == "dm" else "C1"), thread, kind)


def user(id: str = "alice", *, external: bool = False, bot: bool = False) -> UserRef:
    return UserRef("slack", "T", id, external, bot)


@dataclass
class Desk:
    """Send events in, see what became of them."""

    gateway: Gateway
    runtime: Runtime
    platform: Platform
    memory: Memory
    provider: ScriptedProvider
    store: MemorySessionStore
    clock: list[float]
    questions: Questions
    ledger: MemoryCardLedger
    shared: "Shared"
    count: int = 0
    sent: list[MessageReceived] = field(default_factory=list)

    def message(
        self, text: str = "hello", *, who: UserRef | None = None, kind: ChatKind = "group", thread: str = "m1",
        mention: bool = True, in_thread: bool = False, age: float = 0.0, unsupported: str = "", where: str = "",
    ) -> MessageReceived:  # fmt: skip
        self.count += 1
        name = f"m{self.count}"
        place = chat(kind, "" if kind == "dm" else thread, where)
        ref, sent_at = MessageRef(place, name), self.clock[0] - age
        return MessageReceived(ref, who or user(), text, mention, in_thread, sent_at, f"d-{name}", unsupported)

    async def handle(self, event: Inbound) -> Outcome:
        return await self.gateway.handle(event)

    async def say(self, text: str = "hello", **options: Any) -> Outcome:
        event = self.message(text, **options)
        self.sent.append(event)
        return await self.handle(event)

    async def notices(self) -> tuple[list[str], list[str]]:
        """What was posted for everybody, and for one person alone; waits until every notice is out."""
        await self.until(lambda: not len(self.gateway._notices))
        return [text for _, text in self.platform.said], [text for _, text in self.platform.whispered]

    def click(
        self, task: str, who: UserRef, *, thread: str = "m1", action: str = "stop", scope: str | None = None
    ) -> ButtonClicked:
        """A press on the card of a task; the button names the task and the scope of its session."""
        value = f"{task}/{thread if scope is None else scope}"
        return ButtonClicked(MessageRef(chat(thread=thread), "card"), who, action, value)

    def press(
        self, action: str, who: UserRef, *, message: str = "q1", value: str | None = None, place: ChatRef | None = None
    ) -> ButtonClicked:
        """A press on a button of a question that was posted."""
        posted = self.platform.questions.get(message)
        carried = value if value is not None else posted.view.id if posted else ""
        where = place or (ChatRef("slack", "T", posted.address.chat, posted.address.thread) if posted else chat())
        kind: ChatKind = "dm" if where.chat.startswith("D") else "group"
        return ButtonClicked(MessageRef(replace(where, kind=kind), message), who, action, carried)

    async def question(self, message: str = "q1") -> QuestionView:
        """The question, once it is posted."""
        await self.until(lambda: message in self.platform.questions)
        await self.until(lambda: not len(self.questions))
        return self.platform.questions[message].view

    async def shown(self, state: str, message: str = "q1") -> QuestionView:
        """The question, once it shows this state."""
        await self.until(lambda: self.platform.questions[message].view.state == state)
        return self.platform.questions[message].view

    async def shown_after_posting(self, state: str, message: str = "q1") -> QuestionView:
        """The question, once it is posted and shows this state."""
        await self.until(lambda: message in self.platform.questions)
        return await self.shown(state, message)

    async def row(self, approval: str) -> Approval:
        found = await self.runtime.find_approval(approval)
        assert found is not None
        return found

    async def idle(self) -> None:
        """Wait until no task runs, and nothing is left to be shown."""
        await self.until(lambda: not self.runtime.live_tasks and not len(self.questions))

    @property
    def asked(self) -> list[str]:
        """What reached the model, in order."""
        last = [request.messages[-1] for request in self.provider.requests]
        return [message.text for message in last if isinstance(message, UserMessage)]

    async def running(self, count: int = 1) -> list[Any]:
        """The live tasks, once so many wait for the model."""
        await self.until(lambda: len(self.provider.requests) >= count)
        return list(self.runtime.live_tasks)

    async def statuses(self, *tasks: Any) -> list[TaskStatus]:
        return [await asyncio.wait_for(task.wait(), 5) for task in tasks]

    async def until(self, look: Callable[[], Any]) -> None:
        async with asyncio.timeout(5):
            while not look():
                await asyncio.sleep(0)


@dataclass
class Shared:
    """What the replicas of one service have in common. `ahead`: seconds by which the clock of questions is ahead."""

    admission: InProcessAdmission
    store: MemorySessionStore = field(default_factory=MemorySessionStore)
    parking: MemoryParkingStore = field(default_factory=MemoryParkingStore)
    grants: MemoryGrantStore = field(default_factory=MemoryGrantStore)
    ledger: MemoryCardLedger = field(default_factory=MemoryCardLedger)
    platform: Platform = field(default_factory=Platform)
    memory: Memory = field(default_factory=Memory)
    clock: list[float] = field(default_factory=lambda: [NOW])
    ahead: list[float] = field(default_factory=lambda: [0.0])


@contextlib.asynccontextmanager
async def desk(
    answers: Iterable[Script] | None = None, *, access: AccessRules | None = None, scope: SessionScope | None = None,
    language: str = "", queue_cap: int = 5, busy_policy: BusyPolicy = "queue", tools: Sequence[Tool] = (),
    shared: Shared | None = None, approval_timeout_s: float = 600.0, post_deadline_s: float = 5.0,
    remove_on_recall: bool = False,
) -> AsyncIterator[Desk]:  # fmt: skip
    """By default the model never finishes, so that whatever was started is there to be stopped.

    With `tools` each task has a card and asks its questions on the platform. `shared`: one more replica of a service.
    """
    provider = ScriptedProvider(answers if answers is not None else [BUSY] * 20)
    common = shared or Shared(InProcessAdmission(queue_cap=queue_cap, busy_policy=busy_policy))
    known, deck, platforms = by_name(list(tools)), Deck(), {"slack": common.platform}
    gate = ApprovalGate(common.grants, timeout_s=approval_timeout_s)
    engine = Engine(provider, ToolExecutor(known), Limits(), system="", gate=gate)

    def reporter_for(run: RunInput) -> Reporter:
        address = ReplyAddress.of(run.origin.reply_to)
        shown_in = language or "en"
        card = CardReporter(common.platform.card(address, run.task_id, shown_in), deck)
        return AskingReporter(card, questions, address, shown_in, remove_on_recall=remove_on_recall)

    runtime = Runtime(
        engine, common.store, common.admission, reporter_for=reporter_for if tools else None, parking=common.parking,
        now=lambda: time.time() + common.ahead[0],
    )  # fmt: skip
    rules = GatewayRules(access or AccessRules(), scope, language)
    questions = Questions(platforms, common.ledger, runtime, post_deadline_s=post_deadline_s)
    deciding = Answers(runtime, questions, rules.access, lambda name: name not in known or not known[name].read_only)
    gateway = Gateway(platforms, runtime, common.memory, rules, deciding, now=lambda: common.clock[0])
    try:
        yield Desk(
            gateway, runtime, common.platform, common.memory, provider, common.store, common.clock, questions,
            common.ledger, common,
        )  # fmt: skip
    finally:
        await runtime.aclose()
        await deck.aclose(grace_s=1)
        await questions.aclose(grace_s=1)
        await gateway.aclose()
