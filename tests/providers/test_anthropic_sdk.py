from typing import Any

import anthropic
import httpx2
import orjson
import pytest

from harness.providers.transport import RESPONSE, ModelHttpClient
from harness.testing.raw_model_server import RawModelServer, RawReply
from tests.providers.anthropic_cases import STOP, end, named, said, start

GOOD = RawReply(named(start(), *said("Hi"), end(), STOP))


def client_of(server: RawModelServer) -> anthropic.AsyncAnthropic:
    no_limit = httpx2.Timeout(None)
    return anthropic.AsyncAnthropic(
        api_key="x",
        base_url=server.base_url.removesuffix("/v1"),
        max_retries=0,
        timeout=no_limit,
        http_client=ModelHttpClient(no_limit),
    )


async def test_the_sdk_still_gives_what_the_provider_stands_on() -> None:
    """The pin: an upgrade of the SDK that takes the raw body, the headers or the typed error away fails here."""
    refused = {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}
    asked: Any = {"model": "m", "max_tokens": 500_000, "messages": [], "extra_body": {"messages": [1], "x": 2}}
    async with RawModelServer(GOOD) as raw, client_of(raw) as client:
        create = client.messages.with_streaming_response.create
        for stream in (True, False):
            async with create(**asked, stream=stream) as response:
                assert await response.http_response.extensions[RESPONSE].content.read() == GOOD.body
                assert response.status_code == 200
                assert response.headers["content-type"].startswith("text/event-stream")
            assert (raw.bodies[-1]["messages"], raw.bodies[-1]["x"]) == ([1], 2)
        raw.reply = RawReply(orjson.dumps(refused), status=400, headers={"Retry-After": "3"})
        with pytest.raises(anthropic.BadRequestError) as bad:
            async with create(**asked, stream=True):
                pass
    assert orjson.loads(bad.value.response.text) == refused
    assert (bad.value.status_code, bad.value.response.headers["retry-after"]) == (400, "3")
