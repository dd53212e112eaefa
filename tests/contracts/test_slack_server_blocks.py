"""Block limits of the local Slack server: one over is refused in Slack's words, the limit itself is accepted."""

import pytest
from slack_sdk.errors import SlackApiError

from tests.playground.rig import client, slack

GENERAL = "C0GENERAL01"


def mrkdwn(text):
    return {"type": "mrkdwn", "text": text}


def plain(text):
    return {"type": "plain_text", "text": text}


def button(**extra):
    return {"type": "button", "text": plain("Stop"), "action_id": "stop", **extra}


def actions(*elements, **extra):
    return {"type": "actions", "elements": list(elements), **extra}


def numbered(count):
    return [button(action_id=f"b{n}") for n in range(count)]


CASES = [
    ("/blocks/0/text/text", 3000, lambda n: [{"type": "section", "text": mrkdwn("x" * n)}]),
    ("/blocks/0/fields/0/text", 2000, lambda n: [{"type": "section", "fields": [mrkdwn("x" * n)]}]),
    ("/blocks/0/fields", 10, lambda n: [{"type": "section", "fields": [mrkdwn("x")] * n}]),
    ("/blocks/0/text/text", 150, lambda n: [{"type": "header", "text": plain("x" * n)}]),
    ("/blocks/0/elements", 10, lambda n: [{"type": "context", "elements": [mrkdwn("x")] * n}]),
    ("/blocks/0/elements/0/text", 3000, lambda n: [{"type": "context", "elements": [mrkdwn("x" * n)]}]),
    ("/blocks/0/elements", 25, lambda n: [actions(*numbered(n))]),
    ("/blocks/0/elements/0/text/text", 75, lambda n: [actions(button(text=plain("x" * n)))]),
    ("/blocks/0/elements/0/value", 2000, lambda n: [actions(button(value="x" * n))]),
    ("/blocks/0/elements/0/action_id", 255, lambda n: [actions(button(action_id="x" * n))]),
    ("/blocks/0/block_id", 255, lambda n: [{"type": "divider", "block_id": "x" * n}]),
    ("/blocks/0/text", 12000, lambda n: [{"type": "markdown", "text": "x" * n}]),
    ("/blocks/0/alt_text", 2000, lambda n: [{"type": "image", "image_url": "https://x.test", "alt_text": "x" * n}]),
    ("/blocks", 50, lambda n: [{"type": "divider"}] * n),
]


@pytest.mark.parametrize(("pointer", "limit", "build"), CASES, ids=[f"{p}-{n}" for p, n, _ in CASES])
async def test_the_limit_passes_and_one_more_does_not(pointer, limit, build):
    async with slack() as server:
        web = client(server)
        await web.chat_postMessage(channel=GENERAL, text="x", blocks=build(limit))
        with pytest.raises(SlackApiError) as caught:
            await web.chat_postMessage(channel=GENERAL, text="x", blocks=build(limit + 1))
        answer = caught.value.response
        assert answer["error"] == "invalid_blocks"
        what = "items allowed" if pointer.endswith(("elements", "fields", "blocks")) else "characters"
        start = f"[ERROR] no more than {limit}" if what == "items allowed" else f"[ERROR] must be less than {limit + 1}"
        assert answer["response_metadata"]["messages"] == [f"{start} {what} [json-pointer:{pointer}]"]
        assert [v.kind for v in server.violations.all] == ["invalid_blocks"]


@pytest.mark.parametrize(
    "blocks",
    [
        [{"type": "fancy_card"}],
        ["text"],
        [{"type": "markdown", "text": ""}],
        [{"type": "section"}],
        [{"type": "section", "text": "a bare string"}],
        [{"type": "header", "text": mrkdwn("headers are plain")}],
        [{"type": "context", "elements": []}],
        [actions(button(), button())],
        [actions(button(style="loud"))],
        [actions({"type": "button", "text": mrkdwn("labels are plain"), "action_id": "x"})],
        [{"type": "divider", "block_id": "same"}, {"type": "divider", "block_id": "same"}],
        [{"type": "rich_text", "elements": [{"type": "text", "text": "needs a section around it"}]}],
        [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [{"type": "text"}]}]}],
        [{"type": "rich_text", "elements": [{"type": "rich_text_list", "elements": [{"type": "text", "text": "x"}]}]}],
        [{"type": "image", "image_url": "https://x.test"}],
    ],
)
async def test_wrong_blocks_are_refused(blocks):
    async with slack() as server:
        with pytest.raises(SlackApiError) as caught:
            await client(server).api_call("chat.postMessage", json={"channel": GENERAL, "text": "x", "blocks": blocks})
        assert caught.value.response["error"] == "invalid_blocks"
        assert server.messages("general") == []


async def test_an_update_counts_escaped_characters_and_a_post_does_not():
    text = ">" * 1_000  # 1,000 characters, 4,000 once escaped
    section = [{"type": "section", "text": mrkdwn(text)}]
    async with slack() as server:
        web = client(server)
        ts = (await web.chat_postMessage(channel=GENERAL, text="x", blocks=section))["ts"]
        with pytest.raises(SlackApiError) as caught:
            await web.chat_update(channel=GENERAL, ts=ts, text="x", blocks=section)
        messages = caught.value.response["response_metadata"]["messages"]
        assert messages == ["[ERROR] must be less than 3001 characters [json-pointer:/blocks/0/text/text]"]
        # Entities and tokens are what they are: not escaped twice.
        fits = [{"type": "section", "text": mrkdwn("&gt;" * 749 + "<@U0ALICE0001>"[:0] + "&lt;")}]
        await web.chat_update(channel=GENERAL, ts=ts, text="x", blocks=fits)


async def test_markdown_counts_over_the_whole_message():
    async with slack() as server:
        web = client(server)
        half = {"type": "markdown", "text": "x" * 6_000}
        await web.chat_postMessage(channel=GENERAL, text="x", blocks=[half, half])
        with pytest.raises(SlackApiError) as caught:
            await web.chat_postMessage(
                channel=GENERAL, text="x", blocks=[half, half, {"type": "markdown", "text": "y"}]
            )
        assert caught.value.response["error"] == "msg_blocks_too_long"


async def test_blocks_get_ids_and_an_unchanged_block_keeps_its_own():
    async with slack() as server:
        web = client(server)
        card = [{"type": "markdown", "text": "one"}, actions(button())]
        first = await web.chat_postMessage(channel=GENERAL, text="x", blocks=card)
        ids = [block["block_id"] for block in first["message"]["blocks"]]
        assert all(ids)
        card = [{"type": "markdown", "text": "two"}, actions(button())]
        second = await web.chat_update(channel=GENERAL, ts=first["ts"], text="x", blocks=card)
        changed = [block["block_id"] for block in second["message"]["blocks"]]
        assert changed[0] != ids[0]
        assert changed[1] == ids[1]
