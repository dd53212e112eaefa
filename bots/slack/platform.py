"""Slack as a `ChatPlatform`: who the bot is, its cards, and the short messages beside them."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, cast

import aiohttp
import structlog

from bots.cards.approval import QuestionView
from bots.cards.ledger import CardBook
from bots.cards.text import strings_for
from bots.cards.throttle import RateBudget
from bots.errors import MessageGone, NotAuthorised, PlatformError, RateLimited, Refused, Unavailable
from bots.inbound import ChatRef, UserRef
from bots.platform import ReplyAddress
from bots.slack.card import SlackCard
from bots.slack.client import JsonObject, Mark, SlackClient, open_session, web_client
from bots.slack.limits import UPDATE_TEXT
from bots.slack.parse import PLATFORM, Identity
from bots.slack.question import render_question
from bots.slack.sanitise import clip
from harness.task_registry import TaskRegistry

log = structlog.stdlib.get_logger(__name__)

_FIRST_RETRY_S: Final = 0.5
_LONGEST_RETRY_S: Final = 60.0
_NAMES_KEPT: Final = 2_048
_NAME_LIFETIME_S: Final = 3_600.0


class SlackPlatform:
    """One installation of the bot in one Slack workspace.

    `api_url` is the base URL of the Web API with its `/api/`, "" for Slack's own. `model` stands in the footer of
    cards. `budget` may be shared; its keys name the workspace. `clock` gives seconds, monotonic;
    `sleep` waits.
    """

    def __init__(
        self,
        token: str,
        *,
        api_url: str = "",
        model: str = "",
        rate_budget: float = 0.95,
        budget: RateBudget | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._token = token
        self._api_url = api_url
        self._model = model
        self._rate_budget = rate_budget
        self._clock = clock
        self._sleep = sleep
        self._budget = budget if budget is not None else RateBudget(clock)
        self._session: aiohttp.ClientSession | None = None
        self._api: SlackClient | None = None
        self._identity: Identity | None = None
        self._problem = "Slack has not been asked yet who the bot is"
        self._ready = asyncio.Event()
        self._tasks = TaskRegistry()
        self._names: OrderedDict[str, tuple[str, float]] = OrderedDict()

    @property
    def name(self) -> str:
        """See `ChatPlatform`."""
        return PLATFORM

    @property
    def language(self) -> str:
        """See `ChatPlatform`."""
        return "en"

    @property
    def is_ready(self) -> bool:
        """See `ChatPlatform`."""
        return self._identity is not None

    @property
    def identity(self) -> Identity | None:
        """Who the bot is; None until Slack has said so."""
        return self._identity

    @property
    def problem(self) -> str:
        """One sentence for the operator on why the platform is not ready; "" when it is."""
        return self._problem

    @property
    def client(self) -> SlackClient:
        """The Web API; RuntimeError before `start`."""
        if self._api is None:
            raise RuntimeError("SlackPlatform.start has not been called")
        return self._api

    async def start(self) -> None:
        """Open the session and find out in the background who the bot is, for as long as it takes."""
        self._session = open_session()
        self._api = SlackClient(
            web_client(self._token, self._api_url, self._session),
            self._budget,
            rate_budget=self._rate_budget,
            sleep=self._sleep,
        )
        self._tasks.start(self._identify(), "slack identity")

    async def wait_ready(self) -> None:
        """Return once the bot knows who it is."""
        await self._ready.wait()

    async def aclose(self) -> None:
        """Stop the background work and close every connection."""
        await self._tasks.aclose()
        if self._session is not None:
            await self._session.close()

    def card(self, address: ReplyAddress, task_id: str, language: str, *, book: CardBook | None = None) -> SlackCard:
        """See `ChatPlatform`."""
        strings = strings_for(language)
        return SlackCard(self.client, address, task_id, strings=strings, model=self._model, book=book)

    async def post_question(self, address: ReplyAddress, question: QuestionView, language: str) -> str:
        """See `ChatPlatform`. Stands in line with the cards, and takes what is kept free for finals."""
        message = render_question(question, strings_for(language))
        return await self.client.post(
            address.chat,
            address.thread,
            text=message.text,
            blocks=message.blocks,
            mark=Mark(question.id, 0),
            priority="final",
        )

    async def show_question(self, address: ReplyAddress, message: str, question: QuestionView, language: str) -> None:
        """See `ChatPlatform`."""
        shown = render_question(question, strings_for(language))
        await self.client.update(address.chat, message, text=shown.text, blocks=shown.blocks, priority="final")

    async def find_question(self, address: ReplyAddress, question_id: str) -> str | None:
        """See `ChatPlatform`."""
        try:
            return await self.client.find(address.chat, address.thread, Mark(question_id, 0), after=address.message)
        except MessageGone:
            # The thread is gone, and with it whatever arrived in it.
            return ""
        except (Refused, NotAuthorised):
            # We may post here and not read: nobody will ever say.
            return None

    async def say(self, address: ReplyAddress, text: str) -> None:
        """See `ChatPlatform`. Not repeated when it is unclear whether it arrived; comes after the cards that wait."""
        await self.client.post(
            address.chat,
            address.thread,
            text=clip(text, UPDATE_TEXT),
            # Less than a card in every way: it also leaves room for one that comes next.
            priority="text",
            place=self.client.place(is_notice=True),
        )

    async def say_privately(self, address: ReplyAddress, text: str) -> None:
        """See `ChatPlatform`. Not kept by Slack in channels; a plain message in a DM, where nobody else reads it."""
        if address.chat.startswith("D"):
            await self.say(address, text)
            return
        # In a thread without replies Slack does not show it, so there it goes to the channel.
        thread = address.thread if address.thread != address.message else ""
        await self.client.post_privately(address.chat, thread, address.user, clip(text, UPDATE_TEXT))

    async def speaker_name(self, user: UserRef) -> str:
        """See `ChatPlatform`."""
        known, until = self._names.get(user.user, ("", 0.0))
        if known and self._clock() < until:
            return known
        try:
            name = _display_name(await self.client.user_info(user.user))
        except PlatformError as error:
            # An older name is better than an id, an id better than no answer.
            log.info("slack.user_name_unknown", code=error.code)
            return known or user.user
        self._names[user.user] = (name or user.user, self._clock() + _NAME_LIFETIME_S)
        self._names.move_to_end(user.user)
        if len(self._names) > _NAMES_KEPT:
            self._names.popitem(last=False)
        return name or user.user

    async def delete_reply(self, chat: ChatRef, message: str) -> None:
        """See `ChatPlatform`."""
        await self.client.delete(chat.chat, message)

    async def _identify(self) -> None:
        pause = _FIRST_RETRY_S
        while True:
            try:
                identity = await self._ask_identity()
            except PlatformError as error:
                self._note(error)
                wait = error.seconds if isinstance(error, RateLimited) else pause
                pause = min(2 * pause, _LONGEST_RETRY_S)
                await self._sleep(wait)
            else:
                self._identity, self._problem = identity, ""
                self._ready.set()
                log.info("slack.ready", team=identity.team_id, bot=identity.bot_user_id)
                return

    async def _ask_identity(self) -> Identity:
        answer = await self.client.auth_test()
        team, user, bot = (_string(answer, key) for key in ("team_id", "user_id", "bot_id"))
        if not team or not user:
            raise Unavailable("auth.test: the answer names no workspace or no user", ambiguous=False)
        self.client.team_id = team
        app = _string(answer, "app_id") or await self._app_id(user)
        return Identity(app, team, user, bot)

    async def _app_id(self, bot_user: str) -> str:
        """The app behind the bot's user, "" when Slack does not say: then the signature alone tells whose events."""
        try:
            user = await self.client.user_info(bot_user)
        except (RateLimited, Unavailable):
            raise
        except PlatformError as error:
            log.info("slack.app_id_unknown", code=error.code)
            return ""
        return _string(_object(user, "profile"), "api_app_id")

    def _note(self, error: PlatformError) -> None:
        if isinstance(error, NotAuthorised):
            problem = (
                f"Slack refused SLACK_BOT_TOKEN ({error.code}): set it to the bot token, which starts with xoxb-, "
                "from your Slack app's page OAuth & Permissions."
            )
        else:
            problem = f"Slack did not say who the bot is ({error}); is SLACK_API_URL right and Slack reachable?"
        if problem != self._problem:
            # Once for each problem, not for each attempt.
            log.error("slack.not_ready", problem=problem)
        self._problem = problem


def _display_name(user: JsonObject) -> str:
    profile = _object(user, "profile")
    names = (_string(profile, "display_name"), _string(profile, "real_name"), _string(user, "real_name"))
    return next((name for name in names if name), _string(user, "name"))


def _object(holder: JsonObject, key: str) -> JsonObject:
    value = holder.get(key)
    return cast("JsonObject", value) if isinstance(value, Mapping) else {}


def _string(holder: JsonObject, key: str) -> str:
    value = holder.get(key)
    return value if isinstance(value, str) else ""
