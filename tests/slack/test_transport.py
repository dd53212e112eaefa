import asyncio
import io
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
import pytest_asyncio
import structlog
import uvicorn
from starlette.applications import Starlette

from bots.inbound import ButtonClicked, Inbound, MessageRecalled, MessageReceived
from bots.slack.parse import Identity
from bots.slack.transport import PATH, SlackTransport
from harness.errors import AdmissionUnavailable, Closed, ConfigError
from tests.slack.payloads import (
    APP,
    IDENTITY,
    NOW,
    SECRET,
    TEAM,
    changed,
    click,
    command,
    deleted,
    encoded,
    envelope,
    mention,
    message,
    signed,
)

FORM = "application/x-www-form-urlencoded"


@dataclass
class Service:
    """A transport behind a real HTTP server. `handled` is what came through, `error` what the handler raises."""

    url: str = ""
    http: aiohttp.ClientSession = None  # type: ignore[assignment]
    identity: Identity | None = IDENTITY
    handled: list[Inbound] = field(default_factory=list)
    error: BaseException | None = None

    async def handle(self, inbound: Inbound) -> str:
        if self.error is not None:
            raise self.error
        self.handled.append(inbound)
        return "started"

    async def post(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes, dict[str, str]]:
        async with self.http.post(self.url, data=io.BytesIO(body), headers=headers) as response:
            return response.status, await response.read(), {k.lower(): v for k, v in response.headers.items()}

    async def send(self, body: bytes, kind: str = "application/json") -> int:
        status, _, _ = await self.post(body, signed(body, kind=kind))
        return status


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    """One server for all tests, in a thread: uvicorn takes a fifth of a second to stop."""
    service = Service()
    transport = SlackTransport(service.handle, SECRET, service, clock=lambda: NOW)
    config = uvicorn.Config(
        Starlette(routes=[transport.route]), lifespan="off", ws="none", log_level="critical", access_log=False
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        service.url = f"http://127.0.0.1:{listening.getsockname()[1]}{PATH}"
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
        thread.start()
        yield service
        server.should_exit = True
        thread.join()


@pytest_asyncio.fixture
async def service(running: Service) -> AsyncIterator[Service]:
    running.identity, running.error, running.handled = IDENTITY, None, []
    async with aiohttp.ClientSession() as running.http:
        yield running


BODY = encoded(envelope(mention()))


# -- what gets through


async def test_a_signed_mention_is_handled_before_it_is_acknowledged(service: Service) -> None:
    status, body, _ = await service.post(BODY, signed(BODY))
    assert (status, body) == (200, b"")
    (inbound,) = service.handled
    assert isinstance(inbound, MessageReceived)
    assert inbound.text == "hello"


async def test_a_retry_is_handled_like_any_delivery(service: Service) -> None:
    headers = signed(BODY) | {"x-slack-retry-num": "3", "x-slack-retry-reason": "http_timeout"}
    assert (await service.post(BODY, headers))[0] == 200
    assert len(service.handled) == 1


@pytest.mark.parametrize("shift", [-299, 0, 299])
async def test_the_age_that_is_allowed(service: Service, shift: int) -> None:
    headers = signed(BODY, timestamp=str(int(NOW) + shift))
    assert (await service.post(BODY, headers))[0] == 200


async def test_header_names_in_any_case(service: Service) -> None:
    headers = {name.upper(): value for name, value in signed(BODY).items()}
    assert (await service.post(BODY, headers))[0] == 200


async def test_a_content_type_with_parameters(service: Service) -> None:
    assert await service.send(BODY, "Application/JSON; charset=utf-8") == 200


async def test_a_click_is_handled(service: Service) -> None:
    body = urlencode({"payload": encoded(click()).decode()}).encode()
    assert await service.send(body, FORM) == 200
    assert isinstance(service.handled[0], ButtonClicked)


async def test_a_command_is_handled(service: Service) -> None:
    body = urlencode(command(text="")).encode()
    assert await service.send(body, FORM) == 200
    (inbound,) = service.handled
    assert isinstance(inbound, MessageReceived)
    assert (inbound.text, inbound.sent_at) == ("/stop", NOW)


async def test_the_deletion_of_our_own_card_is_handled(service: Service) -> None:
    # Bolt's own filter for self-made events would swallow it.
    body = encoded(envelope(deleted(previous_message={"user": IDENTITY.bot_user_id, "bot_id": IDENTITY.bot_id})))
    assert await service.send(body) == 200
    assert isinstance(service.handled[0], MessageRecalled)


async def test_a_tombstone_in_a_thread_is_handled(service: Service) -> None:
    gone = {"subtype": "tombstone", "user": "USLACKBOT", "ts": message()["ts"], "thread_ts": message()["ts"]}
    body = encoded(envelope(changed(gone, message())))
    assert await service.send(body) == 200
    assert isinstance(service.handled[0], MessageRecalled)


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "app_rate_limited", "team_id": TEAM, "api_app_id": APP},
        envelope({"type": "reaction_added"}),
        envelope(message(subtype="channel_join")),
    ],
)
async def test_what_is_nothing_for_us_is_acknowledged(service: Service, payload: dict[str, Any]) -> None:
    assert await service.send(encoded(payload)) == 200
    assert service.handled == []


async def test_slacks_check_of_the_certificate_is_acknowledged(service: Service) -> None:
    assert await service.send(b"ssl_check=1&token=x", FORM) == 200


async def test_a_signed_challenge_is_answered_even_before_we_know_who_we_are(service: Service) -> None:
    service.identity = None
    body = encoded({"type": "url_verification", "challenge": "3eZbrw", "token": "x"})
    status, answer, _ = await service.post(body, signed(body))
    assert (status, answer) == (200, b'{"challenge":"3eZbrw"}')


# -- what does not


CHALLENGE = encoded({"type": "url_verification", "challenge": "3eZbrw"})
FOREIGN = encoded(envelope(mention(), api_app_id="A0THEIRS"))
CLICK = urlencode({"payload": encoded(click()).decode()}).encode()


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in signed(BODY).items() if key != name}


REFUSED: dict[str, tuple[bytes, dict[str, str]]] = {
    "no headers at all": (BODY, {"content-type": "application/json"}),
    "no signature": (BODY, without("x-slack-signature")),
    "no timestamp": (BODY, without("x-slack-request-timestamp")),
    "empty signature": (BODY, signed(BODY) | {"x-slack-signature": ""}),
    "empty timestamp": (BODY, signed(BODY, timestamp="")),
    "signature of another secret": (BODY, signed(BODY, secret="not-the-secret")),
    "signature of another body": (BODY, signed(BODY + b" ")),
    "signature without version": (BODY, signed(BODY) | {"x-slack-signature": signed(BODY)["x-slack-signature"][3:]}),
    "signature in upper case": (BODY, signed(BODY) | {"x-slack-signature": signed(BODY)["x-slack-signature"].upper()}),
    "signature cut short": (BODY, signed(BODY) | {"x-slack-signature": signed(BODY)["x-slack-signature"][:-1]}),
    "garbage signature": (BODY, signed(BODY) | {"x-slack-signature": "v0=zzz"}),
    "signature that is not ASCII": (BODY, signed(BODY) | {"x-slack-signature": "v0=ключ"}),
    "timestamp of another signature": (BODY, signed(BODY) | {"x-slack-request-timestamp": str(int(NOW) - 1)}),
    "old": (BODY, signed(BODY, timestamp=str(int(NOW) - 301))),
    "from the future": (BODY, signed(BODY, timestamp=str(int(NOW) + 301))),
    "timestamp that is no number": (BODY, signed(BODY, timestamp="yesterday")),
    "timestamp with a fraction": (BODY, signed(BODY, timestamp=f"{NOW:.3f}")),
    "negative timestamp": (BODY, signed(BODY, timestamp=f"-{int(NOW)}")),
    "timestamp with an underscore": (BODY, signed(BODY, timestamp="1_750_000_100")),
    "timestamp of many digits": (BODY, signed(BODY, timestamp="9" * 5_000)),
    "no content type": (BODY, without("content-type")),
    "text": (BODY, signed(BODY, kind="text/plain")),
    "multipart": (BODY, signed(BODY, kind="multipart/form-data; boundary=x")),
    "JSON in name only": (BODY, signed(BODY, kind="application/jsonp")),
    "unsigned challenge": (CHALLENGE, {"content-type": "application/json"}),
    "challenge signed by another": (CHALLENGE, signed(CHALLENGE, secret="not-the-secret")),
    "event of another app": (FOREIGN, signed(FOREIGN)),
    "unsigned click": (CLICK, {"content-type": FORM}),
    "click signed by another": (CLICK, signed(CLICK, kind=FORM, secret="not-the-secret")),
    "unsigned and malformed": (b"{", {"content-type": "application/json"}),
    "empty body, unsigned": (b"", {"content-type": "application/json"}),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_from_slack_gets_the_same_empty_401(service: Service, case: str) -> None:
    body, headers = REFUSED[case]
    if "content-type" not in headers:
        # aiohttp would make one up.
        async with service.http.post(
            service.url, data=body, headers=headers, skip_auto_headers=["Content-Type"]
        ) as response:
            status, answer = response.status, await response.read()
    else:
        status, answer, _ = await service.post(body, headers)
    assert (status, answer) == (401, b"")
    assert service.handled == []


MALFORMED: dict[str, tuple[bytes, str]] = {
    "no JSON": (b'{"type": ', "application/json"),
    "empty": (b"", "application/json"),
    "a list": (b"[]", "application/json"),
    "a number": (b"1", "application/json"),
    "no type": (b"{}", "application/json"),
    "no event": (encoded({"type": "event_callback", "api_app_id": APP}), "application/json"),
    "event is no object": (encoded(envelope("x")), "application/json"),
    "no channel": (encoded(envelope(message(channel=None))), "application/json"),
    "not a number": (b'{"type":"event_callback","event":NaN}', "application/json"),
    "deep": (b"[" * 100_000, "application/json"),
    "challenge is no string": (encoded({"type": "url_verification", "challenge": 1}), "application/json"),
    "no form": (b"payload", FORM),
    "empty form": (b"", FORM),
    "form with neither": (b"a=b", FORM),
    "payload is no JSON": (b"payload=%7B", FORM),
    "payload is a list": (b"payload=%5B%5D", FORM),
    "payload in broken UTF-8": (b"payload=%FF", FORM),
    "no text at all": (b"\xff\xfe", "application/json"),
    "authorizations is a string": (encoded({**envelope(message()), "authorizations": "x"}), "application/json"),
    "authorizations holds a string": (encoded({**envelope(message()), "authorizations": ["x"]}), "application/json"),
    "click without actions": (urlencode({"payload": encoded(click(actions=[])).decode()}).encode(), FORM),
    "command without a channel": (b"command=%2Fstop&user_id=U1", FORM),
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_what_is_signed_but_malformed_gets_400(service: Service, case: str) -> None:
    body, kind = MALFORMED[case]
    status, answer, _ = await service.post(body, signed(body, kind=kind))
    assert (status, answer) == (400, b"")
    assert service.handled == []


async def test_a_body_of_more_than_a_mebibyte_gets_413(service: Service) -> None:
    body = encoded(envelope(message("x" * 1_048_576)))
    status, answer, _ = await service.post(body, signed(body))
    assert (status, answer, service.handled) == (413, b"", [])


async def test_a_large_body_without_a_length_gets_413(service: Service) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 65_536

    async with service.http.post(service.url, data=chunks(), headers=signed(b"")) as response:
        assert response.status == 413


async def test_other_methods_are_not_allowed(service: Service) -> None:
    async with service.http.get(service.url) as response:
        assert response.status == 405


# -- when we cannot take it


@pytest.mark.parametrize("error", [AdmissionUnavailable("valkey is away"), Closed("going down")])
async def test_what_was_not_admitted_is_left_to_slack_to_send_again(service: Service, error: Exception) -> None:
    service.error = error
    started = time.monotonic()
    status, answer, headers = await service.post(BODY, signed(BODY))
    assert (status, answer) == (503, b"")
    assert headers["retry-after"] == "1"
    assert "x-slack-no-retry" not in headers
    assert time.monotonic() - started < 2
    service.error = None
    assert await service.send(BODY) == 200
    assert len(service.handled) == 1


async def test_our_own_fault_is_never_acknowledged(service: Service) -> None:
    service.error = RuntimeError("a bug")
    with structlog.testing.capture_logs() as logs:
        status, answer, headers = await service.post(BODY, signed(BODY))
    assert (status, answer) == (500, b"")
    assert "x-slack-no-retry" not in headers
    assert [line["log_level"] for line in logs] == ["error", "info"]


async def test_before_we_know_who_we_are_slack_has_to_wait(service: Service) -> None:
    service.identity = None
    status, answer, headers = await service.post(BODY, signed(BODY))
    assert (status, answer, headers["retry-after"]) == (503, b"", "1")


async def test_without_a_known_app_id_the_signature_decides(service: Service) -> None:
    service.identity = Identity("", TEAM, IDENTITY.bot_user_id, IDENTITY.bot_id)
    assert await service.send(FOREIGN) == 200


async def test_one_line_is_logged_without_what_was_said(service: Service) -> None:
    body = encoded(envelope(mention("a private matter")))
    with structlog.testing.capture_logs() as logs:
        await service.send(body)
    (line,) = logs
    assert (line["id"], line["kind"], line["outcome"]) == ("Ev0000000001", "MessageReceived", "started")
    assert line["ms"] >= 0
    assert "private" not in str(line)


async def test_many_at_once_are_all_handled(service: Service) -> None:
    bodies = [encoded(envelope(message(ts=f"1750000000.{n:06d}"), event_id=f"Ev{n}")) for n in range(50)]
    assert set(await asyncio.gather(*(service.send(body) for body in bodies))) == {200}
    assert len({inbound.dedupe_id for inbound in service.handled if isinstance(inbound, MessageReceived)}) == 50


@pytest.mark.parametrize("secret", ["", "  "])
def test_an_empty_signing_secret_is_refused_at_once(secret: str) -> None:
    with pytest.raises(ConfigError, match="SLACK_SIGNING_SECRET"):
        SlackTransport(Service().handle, secret, Service())
