"""The composition root: builds everything that one process of the service consists of, and takes it down in order.

Order of a start: Valkey, admission, platforms, HTTP. A stop goes the other way round, with the tasks first: they finish
(or end honestly as interrupted), their cards reach the platform, and only then the connections close.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from bots.access import AccessRules
from bots.cards.ledger import CardBook
from bots.cards.reporter import CardReporter, Deck
from bots.cards.surface import CardSurface
from bots.cards.sweeper import CardSweeper
from bots.cards.text import language_of
from bots.coordination.embedded import EmbeddedValkey
from bots.coordination.inbox import Inbox
from bots.coordination.redis import RedisAdmission
from bots.coordination.shared_folder import is_shared, keep_shared
from bots.coordination.sweeper import purge, sweep
from bots.errors import PlatformError
from bots.gateway import Gateway, GatewayRules
from bots.gateway.answers import Answers
from bots.gateway.asking import AskingReporter
from bots.gateway.questions import POST_DEADLINE_S, Questions
from bots.gateway.tools import chat_tools
from bots.inbound import UserRef
from bots.platform import ChatPlatform, ReplyAddress
from bots.settings import Settings
from bots.slack.platform import SlackPlatform
from bots.slack.transport import SlackTransport
from bots.telemetry import configure_logging
from harness.admission import CancelOrder, Origin, RunInput
from harness.assembly import engine_from
from harness.errors import ConfigError
from harness.gate import ApprovalGate
from harness.providers.select import provider_from
from harness.reporters.base import Reporter
from harness.runtime import Runtime
from harness.stores.base import Stores
from harness.task_registry import TaskRegistry
from harness.tools.base import by_name

log = structlog.stdlib.get_logger(__name__)

SPEAKER_LOOKUP_S = 1.0
REQUESTER = "requester"
"""In APPROVERS: whoever asked."""
CARD_GRACE_S = 10.0
"""How long a stop waits for the last views of the cards."""


@dataclass(slots=True)
class Service:
    """One running service. `routes` are what it serves; `ready` tells whether it can do its work right now."""

    settings: Settings
    platforms: Mapping[str, ChatPlatform]
    runtime: Runtime
    admission: RedisAdmission
    routes: Sequence[BaseRoute] = ()
    draining: bool = field(default=False)

    async def ready(self) -> bool:
        """Admission answers, every platform knows the bot, and no stop is under way."""
        if self.draining or not all(platform.is_ready for platform in self.platforms.values()):
            return False
        return await self.admission.ping()


@contextlib.asynccontextmanager
async def service(settings: Settings) -> AsyncGenerator[Service]:
    """Build and start everything; on leaving, drain and stop it."""
    credentials = settings.slack_credentials()
    if credentials is None:
        raise ConfigError(
            "No platform is set up: set SLACK_BOT_TOKEN and SLACK_SIGNING_SECRET in the environment or in .env "
            "(or run `bots demo` to try everything without an account)."
        )
    # Everything that can be wrong with the settings is found before anything is started.
    provider, system = provider_from(settings), settings.system_prompt()
    from harness.stores.sql import open_stores  # here, because a wrong setting is found sooner without it

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(provider.aclose)
        database = settings.database_url.get_secret_value() if settings.database_url is not None else None
        stores = await stack.enter_async_context(open_stores(database, settings.bots_data_dir))
        url, valkey = await _redis(settings, stack)
        admission = RedisAdmission(
            url, lease_ttl=settings.lease_ttl_s, queue_cap=settings.queue_cap, busy_policy=settings.busy_policy
        )
        stack.push_async_callback(admission.aclose)
        await admission.start()
        background = TaskRegistry()
        stack.push_async_callback(background.aclose)

        token, signing_secret = credentials
        slack = SlackPlatform(
            token, api_url=settings.slack_api_url, rate_budget=settings.rate_budget, model=provider.model
        )
        stack.push_async_callback(slack.aclose)
        platforms: Mapping[str, ChatPlatform] = {slack.name: slack}
        deck = Deck()
        rules = _rules(settings)
        shared = settings.redis_url is None or await is_shared(settings.bots_data_dir, admission)
        tools = by_name(await chat_tools(settings.bots_data_dir, rules.access, is_shared=shared))
        gate = ApprovalGate(stores.grants, timeout_s=settings.approval_timeout_s)
        engine = engine_from(settings, provider, tools, gate, system=system)

        def surface_for(run: RunInput) -> CardSurface:
            return _surface_for(run, platforms, settings, stores)

        def card_for(run: RunInput) -> Reporter:
            # The runtime does not exist yet when this is made, and does when it is called.
            return _card_for(run, surface_for(run), platforms, deck, questions, settings, stores, runtime.obey)

        runtime = Runtime(
            engine,
            stores.sessions,
            admission,
            reporter_for=card_for,
            speaker_name=lambda origin: _speaker_name(origin, platforms),
            parking=stores.parking,
            records=stores,
        )
        # A question that appears when most of its time is over would help nobody.
        post_deadline_s = min(POST_DEADLINE_S, settings.approval_timeout_s / 3)
        questions = Questions(platforms, stores.cards, runtime, post_deadline_s=post_deadline_s)
        stack.push_async_callback(questions.aclose)
        answers = Answers(runtime, questions, rules.access, lambda name: name not in tools or not tools[name].read_only)
        gateway = Gateway(platforms, runtime, admission, rules, answers)
        stack.push_async_callback(gateway.aclose)
        transport = SlackTransport(gateway.handle, signing_secret, slack)
        running = Service(settings, platforms, runtime, admission, [transport.route])

        if valkey is not None:
            background.start(valkey.keep_alive(), "valkey")
        background.start(Inbox(url, boot_id=admission.boot_id).run(_obey(runtime)), "inbox")
        background.start(sweep(admission, runtime), "sweeper")
        background.start(purge(stores.retention), "retention")
        background.start(questions.sweep(), "questions")
        left_cards = CardSweeper(
            stores.cards, stores.tasks, stores.traces, surface_for,
            is_live=deck.__contains__, grace_s=settings.lease_ttl_s, remove_on_recall=settings.recall_deletes_reply,
        )  # fmt: skip
        background.start(left_cards.sweep(), "cards")
        if shared and settings.redis_url is not None:
            background.start(keep_shared(settings.bots_data_dir, admission), "shared folder")
        await slack.start()
        try:
            yield running
        finally:
            running.draining = True
            await runtime.aclose(drain_s=settings.drain_s)
            await deck.aclose(grace_s=CARD_GRACE_S)
            await questions.aclose(grace_s=CARD_GRACE_S)


async def _redis(settings: Settings, stack: contextlib.AsyncExitStack) -> tuple[str, EmbeddedValkey | None]:
    """The address of Redis, and the embedded server when that is ours to keep alive."""
    if settings.redis_url is not None:
        return settings.redis_url, None
    valkey = EmbeddedValkey(settings.bots_data_dir)
    return await stack.enter_async_context(valkey), valkey


async def serve(settings: Settings) -> None:
    """Run the service until SIGTERM or Ctrl-C; returns after the drain."""
    configure_logging(settings.bots_log_level, settings.bots_log_format)
    listener = _listen(settings)
    async with service(settings) as running:
        server = _Server(
            uvicorn.Config(
                http_app(running),
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=5,
            )
        )
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_signal() -> None:
            if stop.is_set():
                running.runtime.hurry()  # asked twice: the drain is over
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        serving = loop.create_task(server.serve(sockets=[listener]))
        stopping = loop.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if serving.done():
            serving.result()  # it ends by itself only when it failed
        log.info("draining", tasks=len(running.runtime.live_tasks), seconds=settings.drain_s)
        # Still serving: a stop or a recall must reach the tasks that are being finished.
        running.draining = True
        await running.runtime.aclose(drain_s=settings.drain_s)
        server.should_exit = True
        await serving


def http_app(running: Service) -> Starlette:
    """The service's HTTP side: the platforms' webhooks and the health checks."""

    async def livez(_request: Request) -> Response:
        return Response("ok")

    async def readyz(_request: Request) -> Response:
        ready = await running.ready()
        return JSONResponse({"ready": ready, "draining": running.draining}, status_code=200 if ready else 503)

    return Starlette(routes=[*running.routes, Route("/livez", livez), Route("/readyz", readyz)])


def _listen(settings: Settings) -> socket.socket:
    """The port, taken before anything else is started, so that a second service touches nothing of the first."""
    try:
        return socket.create_server((settings.bots_host, settings.bots_port), backlog=2048)
    except OSError as error:
        raise ConfigError(
            f"BOTS_HOST={settings.bots_host} with BOTS_PORT={settings.bots_port} cannot be used "
            f"({os.strerror(error.errno or 0)}): set them to an address of this machine and a free port."
        ) from error


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: a signal starts the drain first, and HTTP stops after it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _language(run: RunInput, platforms: Mapping[str, ChatPlatform], settings: Settings) -> str:
    return settings.language or language_of(run.prompt, platforms[run.origin.reply_to["platform"]].language)


def _surface_for(
    run: RunInput, platforms: Mapping[str, ChatPlatform], settings: Settings, stores: Stores
) -> CardSurface:
    address = ReplyAddress.of(run.origin.reply_to)
    book = CardBook(stores.cards, run.task_id, run.session_key, run.origin.reply_to)
    language = _language(run, platforms, settings)
    return platforms[address.platform].card(address, run.task_id, language, book=book)


def _card_for(
    run: RunInput,
    surface: CardSurface,
    platforms: Mapping[str, ChatPlatform],
    deck: Deck,
    questions: Questions,
    settings: Settings,
    stores: Stores,
    obey: Callable[[CancelOrder], None],
) -> Reporter:
    card = CardReporter(
        surface,
        deck,
        on_chat_gone=lambda: obey(CancelOrder(run.task_id, "", "the chat is gone")),
        remove_on_recall=settings.recall_deletes_reply,
        keep=lambda text: stores.tasks.show(run.task_id, text),
    )
    address, language = ReplyAddress.of(run.origin.reply_to), _language(run, platforms, settings)
    return AskingReporter(card, questions, address, language, remove_on_recall=settings.recall_deletes_reply)


async def _speaker_name(origin: Origin, platforms: Mapping[str, ChatPlatform]) -> str:
    address = ReplyAddress.of(origin.reply_to)
    user = UserRef(address.platform, address.tenant, address.user)
    try:
        async with asyncio.timeout(SPEAKER_LOOKUP_S):
            return await platforms[address.platform].speaker_name(user)
    except (PlatformError, TimeoutError):
        # A name is a courtesy to the model: an answer must not wait for it.
        return address.user


def _obey(runtime: Runtime) -> Callable[[CancelOrder], Awaitable[None]]:
    async def obey(order: CancelOrder) -> None:
        runtime.obey(order)

    return obey


def _rules(settings: Settings) -> GatewayRules:
    access = AccessRules(
        users=frozenset(settings.allowed_users),
        chats=frozenset(settings.allowed_chats),
        admins=frozenset(settings.admins),
        allow_external=settings.allow_external,
        require_mention=settings.require_mention,
        approvers=frozenset(settings.approvers) - {REQUESTER},
        requester_approves=REQUESTER in settings.approvers,
    )
    return GatewayRules(access, settings.session_scope, settings.language or "")
