"""`bots demo`: page, Slack server and scripted model in this process, the service as a child process.

Nothing here reaches into the service: it gets an environment and signed HTTP, as from the real Slack.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import webbrowser
from collections.abc import AsyncGenerator, Coroutine, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dotenv import dotenv_values

from bots.playground.chat_server import JsonObject
from bots.playground.control import ModelFaults, control_app
from bots.playground.service import ServiceDiedError, ServiceProcess
from bots.playground.serving import PortTakenError, bind, free_port, serve_asgi
from bots.playground.slack.server import SlackServer
from bots.settings import Settings
from harness.settings import KernelSettings

HOST = "127.0.0.1"
DEFAULT_PORT = 8000
_PORTS_TO_TRY = 100
_OWN_MODEL = (
    *("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "MODEL_PROTOCOL"),
    *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
)
_SETTINGS = frozenset(name.upper() for name in Settings.model_fields)
_PASSED_ON = (frozenset(name.upper() for name in KernelSettings.model_fields) | {"LANGUAGE", "BOTS_LOG_LEVEL"}) - {
    "DATABASE_URL"
}


@dataclass(slots=True)
class _Model:
    """Where answers come from: `env` for the service, `label` for the page, `faults` when it is the scripted one."""

    label: str
    env: dict[str, str]
    faults: ModelFaults | None = None


async def run_demo(*, port: int | None, open_browser: bool) -> int:
    """Run the playground until Ctrl-C or SIGTERM; returns the exit code.

    `port` None = 8000 or the next free one; a taken port that was asked for is exit code 2. A service that never gets
    ready is exit code 1; one that dies later is started again.
    """
    try:
        listener = _listener(port)
    except PortTakenError as error:
        print(f"{error} Choose another one with --port, or leave it out to get a free one.", file=sys.stderr)
        return 2
    with _stop_signals() as (stop, hurry):
        return await _run(listener, stop, hurry, open_browser=open_browser)


async def _run(listener: socket.socket, stop: asyncio.Event, hurry: asyncio.Event, *, open_browser: bool) -> int:
    state: dict[str, str | bool] = {"model": "", "service": "The bot is starting …"}

    def facts() -> JsonObject:
        return dict(state)

    async with contextlib.AsyncExitStack() as stack:
        slack = await stack.enter_async_context(SlackServer().serving())
        model = await stack.enter_async_context(_model())
        state["model"], state["scripted"] = model.label, model.faults is not None
        service_port = free_port(HOST)
        slack.event_urls.append(f"http://{HOST}:{service_port}/slack/events")
        env = _service_env(slack, model, service_port, page_port=listener.getsockname()[1])
        service = ServiceProcess(env=env, port=service_port, log=Path(env["BOTS_DATA_DIR"]) / "service.log")
        stack.push_async_callback(service.stop, hurry)
        app = control_app([slack], model_faults=model.faults, facts=facts)
        url = await stack.enter_async_context(serve_asgi(app, listener=listener))
        await service.start()
        try:
            if not await _unless_stopped(stop, service.ready()):
                return 0
        except ServiceDiedError as error:
            print(f"{error}\nThe whole log: {service.log}", file=sys.stderr)
            return 1
        state["service"] = ""
        _welcome(url, model, service)
        if open_browser and _has_display():
            await asyncio.to_thread(webbrowser.open, url)
        await _keep_running(service, state, stop)
        print("Stopping; answers that are being written end first. Ctrl-C again cuts them short.", flush=True)
    return 0


async def _keep_running(service: ServiceProcess, state: dict[str, str | bool], stop: asyncio.Event) -> None:
    """Start the service again whenever it dies, until `stop`."""
    while await _unless_stopped(stop, service.wait()):
        print(f"The service ended ({service.exit_code()}). Starting it again ...", flush=True)
        state["service"] = "The bot has died; it is being started again …"
        if not await _unless_stopped(stop, service.start()):
            return
        try:
            if not await _unless_stopped(stop, service.ready()):
                return
        except ServiceDiedError as error:
            print(error, file=sys.stderr, flush=True)
            continue
        state["service"] = ""
        print("The service is back.", flush=True)


async def _unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Wait for `work`; False when `stop` came first, which cancels it. Its error is raised."""
    loop = asyncio.get_running_loop()
    # Neither task outlives this call.
    working, stopping = loop.create_task(work), loop.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return False
        working.result()
        return True
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


@contextlib.asynccontextmanager
async def _model() -> AsyncGenerator[_Model]:
    """The user's own model when the environment or .env names one, else the scripted server."""
    configured = _configured()
    if any(configured.get(name) for name in _OWN_MODEL):
        vendor = "ANTHROPIC" if configured.get("MODEL_PROTOCOL") == "anthropic" else "OPENAI"
        name = configured.get(f"{vendor}_MODEL") or "from your settings"
        yield _Model(f"Model: {name}", {})
        return
    # Imported here: with a model of one's own the scripted one is not needed.
    from harness.testing.model_server import ScriptedModelServer

    async with ScriptedModelServer(host=HOST, port=0) as server:
        env = {"OPENAI_API_KEY": "local", "OPENAI_BASE_URL": server.base_url, "OPENAI_MODEL": "scripted"}
        yield _Model("Model: scripted, no key set", env, server.set_fault)


def _service_env(slack: SlackServer, model: _Model, port: int, *, page_port: int) -> dict[str, str]:
    """The environment of the child: the machine's, the user's choice of model and language, and this playground.

    The rest of the user's settings stays out: a demo must touch neither their Redis nor their access rules.
    """
    configured = _configured()
    # By port: two playgrounds at once are two workspaces, and must not take each other's work for their own.
    data_dir = Path(configured.get("BOTS_DATA_DIR") or f".data/demo-{page_port}").absolute()
    prompt_file = configured.get("SYSTEM_PROMPT_FILE")
    # A proxy for the outside world must not get the calls to this machine.
    no_proxy = ",".join(filter(None, (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), HOST, "localhost")))
    packages = str(Path(__file__).parents[2])
    return {
        **{name: value for name, value in os.environ.items() if name not in _SETTINGS},
        **{name: value for name, value in configured.items() if name in _PASSED_ON},
        # One person may permit, so that a refused click can be seen as well.
        "APPROVERS": next(person.id for person in slack.space.people.values() if person.name == "alice"),
        **({"SYSTEM_PROMPT_FILE": str(Path(prompt_file).absolute())} if prompt_file else {}),
        # The scripted model hangs on request; nobody wants to watch that for a minute.
        **({"IDLE_TIMEOUT_S": "15", **model.env} if model.faults is not None else model.env),
        "SLACK_BOT_TOKEN": slack.token,
        "SLACK_SIGNING_SECRET": slack.signing_secret,
        "SLACK_API_URL": slack.api_url,
        "BOTS_HOST": HOST,
        "BOTS_PORT": str(port),
        "BOTS_DATA_DIR": str(data_dir),
        "DRAIN_S": "3",
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
        "PYTHONPATH": os.pathsep.join(filter(None, (packages, os.environ.get("PYTHONPATH")))),
        "PYTHONUNBUFFERED": "1",
    }


def _configured() -> dict[str, str]:
    """What the user has set, in the environment or in `.env`; empty counts as unset."""
    return {name: value for name, value in {**dotenv_values(".env"), **os.environ}.items() if value}


def _listener(port: int | None) -> socket.socket:
    if port is not None:
        return bind(HOST, port)
    for candidate in range(DEFAULT_PORT, DEFAULT_PORT + _PORTS_TO_TRY):
        with contextlib.suppress(PortTakenError):
            return bind(HOST, candidate)
    return bind(HOST, 0)


@contextlib.contextmanager
def _stop_signals() -> Generator[tuple[asyncio.Event, asyncio.Event]]:
    """Two events: Ctrl-C, SIGTERM and a closed terminal set the first; when they come again, the second."""
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def request() -> None:
        (hurry if stop.is_set() else stop).set()

    for name in signals:
        loop.add_signal_handler(name, request)
    try:
        yield stop, hurry
    finally:
        for name in signals:
            loop.remove_signal_handler(name)


def _has_display() -> bool:
    """Whether a browser can open a window here."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _welcome(url: str, model: _Model, service: ServiceProcess) -> None:
    print(f"\n  Playground   {url}")
    print(f"  A local stand-in for Slack. {model.label}. Log of the bot: {service.log}")
    if model.faults is not None:
        print(
            "\n  Try: mention the bot with `calc 2*(3+4)`, then with `long`, and delete that message while it answers."
        )
    else:
        print("\n  Try: mention the bot with a question, and delete your message while it answers.")
    print("  Ctrl-C stops everything.\n", flush=True)
