"""The gateway with the real runtime and admission, between a chat platform and a memory that are dictionaries."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from bots.access import AccessRules
from bots.cards.surface import CardSurface
from bots.errors import PlatformError
from bots.gateway import Gateway, GatewayRules, Outcome
from bots.inbound import ButtonClicked, ChatKind, ChatRef, Inbound, MessageReceived, MessageRef, UserRef
from bots.platform import ReplyAddress
from bots.settings import SessionScope
from harness.admission import BusyPolicy, InProcessAdmission
from harness.engine import Engine, Limits
from harness.messages import UserMessage
from harness.providers.script import Hang, Say, Script
from harness.providers.scripted import ScriptedProvider
from harness.runtime import Runtime
from harness.status import TaskStatus
from harness.stores.memory import MemorySessionStore
from harness.tools.executor import ToolExecutor

NOW = 1_000_000.0
BUSY: Script = [Say("working "), Hang()]


class Platform:
    """A `ChatPlatform` in memory. `errors` are raised by the next notices."""

    name = "slack"
    language = "en"
    is_ready = True

    def __init__(self) -> None:
        self.said: list[tuple[ReplyAddress, str]] = []
        self.whispered: list[tuple[ReplyAddress, str]] = []
        self.errors: list[PlatformError] = []

    def card(self, address: ReplyAddress, task_id: str, language: str) -> CardSurface:
        raise AssertionError("cards are the reporter's, not the gateway's")

    async def say(self, address: ReplyAddress, text: str) -> None:
        self._maybe_fail()
        self.said.append((address, text))

    async def say_privately(self, address: ReplyAddress, text: str) -> None:
        self._maybe_fail()
        self.whispered.append((address, text))

    async def speaker_name(self, user: UserRef) -> str:
        return user.user

    async def delete_reply(self, chat: ChatRef, message: str) -> None:
        raise AssertionError("not the gateway's")

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


@contextlib.asynccontextmanager
async def desk(
    answers: Iterable[Script] | None = None, *, access: AccessRules | None = None, scope: SessionScope | None = None,
    language: str = "", queue_cap: int = 5, busy_policy: BusyPolicy = "queue",
) -> AsyncIterator[Desk]:  # fmt: skip
    """By default the model never finishes, so that whatever was started is there to be stopped."""
    provider = ScriptedProvider(answers if answers is not None else [BUSY] * 20)
    store = MemorySessionStore()
    engine = Engine(provider, ToolExecutor({}), Limits(), system="")
    admission = InProcessAdmission(queue_cap=queue_cap, busy_policy=busy_policy)
    runtime = Runtime(engine, store, admission)
    platform, memory, clock = Platform(), Memory(), [NOW]
    rules = GatewayRules(access or AccessRules(), scope, language)
    gateway = Gateway({"slack": platform}, runtime, memory, rules, now=lambda: clock[0])
    try:
        yield Desk(gateway, runtime, platform, memory, provider, store, clock)
    finally:
        await runtime.aclose()
        await gateway.aclose()
