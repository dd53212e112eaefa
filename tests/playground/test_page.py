"""The page in a real browser: write, mention, answer, click, delete, and both colour schemes."""

import contextlib
from collections.abc import AsyncGenerator

import pytest
from playwright.async_api import Page, expect

from bots.playground.control import control_app
from bots.playground.serving import serve_asgi
from bots.playground.slack.server import SlackServer
from tests.playground.browser import MISSING, chromium
from tests.playground.rig import Receiver, client, receiving, slack, until

pytestmark = pytest.mark.skipif(MISSING is not None, reason=MISSING or "")

GENERAL = "C0GENERAL01"
EVIL = "<img src=x onerror=window.hacked=1> **b**"


def card(text: str) -> list[dict]:
    stop = {"type": "button", "text": {"type": "plain_text", "text": "Stop"}, "action_id": "stop:1", "style": "danger"}
    return [
        {"type": "markdown", "text": text},
        {"type": "actions", "elements": [stop]},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": "Running"}]},
    ]


@contextlib.asynccontextmanager
async def playground() -> AsyncGenerator[tuple[SlackServer, Receiver, Page]]:
    receiver = Receiver()
    async with slack() as server, receiving(server, receiver), chromium() as browser:
        app = control_app([server], facts=lambda: {"model": "Model: none", "service": ""})
        async with serve_asgi(app) as url:
            page = await browser.new_page(color_scheme="light")
            errors: list[str] = []
            page.on("pageerror", lambda error: errors.append(str(error)))
            await page.goto(url)
            yield server, receiver, page
            assert errors == []


async def test_mention_answer_click_and_recall():
    async with playground() as (server, receiver, page):
        await expect(page.get_by_role("heading", name="# general")).to_be_visible()
        await expect(page.get_by_text("A local stand-in for Slack")).to_be_visible()
        box = page.get_by_role("textbox", name="Message #general as Alice Moreau")
        await page.get_by_role("button", name="calc 2*(3+4)").click()
        await expect(box).to_have_value("calc 2*(3+4)")
        await box.press("Enter")
        await expect(box).to_have_value("")
        question = page.locator("#messages .message")
        await expect(question.locator(".mention")).to_have_text("@bot")
        mention = await until(lambda: [e for e in receiver.events if e["type"] == "app_mention"])
        assert mention[0]["text"] == "<@U0BT5LOCAL1> calc 2*(3+4)"

        # The answer opens its thread by itself and grows in place.
        root = mention[0]["ts"]
        web = client(server)
        posted = await web.chat_postMessage(channel=GENERAL, text="x", blocks=card("| a |\n|-|\n| 1 |"), thread_ts=root)
        answer = page.locator(f'#thread [data-message="{posted["ts"]}"]')
        await expect(answer.locator("td")).to_have_text("1")
        await web.chat_update(channel=GENERAL, ts=posted["ts"], text="x", blocks=card(f"你好 {EVIL}"))
        await expect(answer.locator("strong").last).to_have_text("b")
        await expect(answer.locator("p").nth(1)).to_contain_text("你好 <img src=x")
        assert await page.evaluate("window.hacked") is None

        await answer.get_by_role("button", name="Stop").click()
        await until(lambda: any(b"payload=" in body for _, body in receiver.received))

        await question.hover()
        await question.get_by_role("button", name="Delete this message").click()
        await expect(question.locator(".tombstone")).to_have_text("This message was deleted.")
        changed = await until(
            lambda: [e for e in receiver.events if e.get("message", {}).get("subtype") == "tombstone"]
        )
        assert changed[0]["message"]["ts"] == root
        await expect(page.locator("#calls")).to_have_text("2")
        await expect(page.locator("#violations")).to_have_text("0")


async def test_three_people_a_direct_message_and_a_reply_by_keyboard():
    async with playground() as (server, _, page):
        await page.get_by_role("radio", name="Bob").check()
        await page.get_by_role("button", name="Harness Bot").click()
        box = page.get_by_role("textbox", name="Message the bot as Bob Okafor")
        await expect(page.get_by_label("Mention @bot").first).to_be_hidden()
        await box.fill("第一行")
        await box.press("Shift+Enter")
        await box.type("second line")
        await box.press("Enter")
        await until(lambda: server.messages("dm-bob"))
        assert server.messages("dm-bob")[0]["text"] == "第一行\nsecond line"

        # Carol has no direct messages: the channel takes their place.
        await page.get_by_role("radio", name="Carol").check()
        await expect(page.get_by_role("heading", name="# general")).to_be_visible()
        await expect(page.get_by_role("button", name="Harness Bot")).to_have_count(0)
        box = page.get_by_role("textbox", name="Message #general as Carol Lindqvist")
        await page.get_by_label("Mention @bot").first.uncheck()
        await box.fill("no mention")
        await box.press("Enter")
        await page.get_by_role("button", name="Reply to Carol Lindqvist in a thread").focus()
        await page.keyboard.press("Enter")
        reply = page.get_by_role("textbox", name="Reply as Carol Lindqvist")
        await expect(reply).to_be_focused()
        await reply.fill("a reply")
        await reply.press("Enter")
        await expect(page.get_by_role("button", name="1 reply")).to_be_visible()
        root, answer = await until(lambda: len(found := server.messages("general")) == 2 and found)
        assert answer["thread"] == root["message"]
        assert root["text"] == "no mention"
        await page.keyboard.press("Escape")
        await expect(page.locator("#thread")).to_be_hidden()


async def test_light_dark_and_narrow():
    background = "getComputedStyle(document.body).backgroundColor"
    async with playground() as (_, _, page):
        light = await page.evaluate(background)
        await page.emulate_media(color_scheme="dark")
        dark = await page.evaluate(background)
        assert light != dark
        await page.get_by_role("button", name="Switch between light and dark").click()
        assert await page.evaluate(background) == light
        await page.reload()
        assert await page.evaluate(background) == light
        await page.set_viewport_size({"width": 380, "height": 720})
        await expect(page.get_by_role("radio", name="Bob")).not_to_be_in_viewport()
        await page.get_by_role("button", name="Open the sidebar").click()
        await expect(page.get_by_role("radio", name="Bob")).to_be_in_viewport()
        wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        assert await page.evaluate(wide) is False


async def test_a_refusal_is_said_and_a_fault_can_be_ordered():
    async with playground() as (server, _, page):
        await page.get_by_text("Break something").click()
        await page.get_by_role("button", name="429 on the next edit").click()
        await expect(page.get_by_role("alert")).to_have_text("On order: 429 on the next edit.")
        ts = (await client(server).chat_postMessage(channel=GENERAL, text="x", blocks=card("x")))["ts"]
        with pytest.raises(Exception, match="ratelimited"):
            await client(server).chat_update(channel=GENERAL, ts=ts, text="x", blocks=card("y"))
        await expect(page.locator("#limited")).to_have_text("1")
