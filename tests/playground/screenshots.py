"""Pictures of a running demo, light and dark: `python -m tests.playground.screenshots OUT.png [URL]`.

Start the demo first (`make demo ARGS=--no-open`). OUT.png is the light picture; the dark one gets `-dark` in its name.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from playwright.async_api import Page, expect

from tests.playground.browser import MISSING, chromium

URL = "http://127.0.0.1:8000"
SIZE = {"width": 1360, "height": 820}


async def ask(page: Page, text: str) -> None:
    """Ask in the channel and wait until the card in the thread says Done."""
    box = page.get_by_role("textbox", name="Message #general")
    await box.fill(text)
    await box.press("Enter")
    await expect(page.locator("#thread .message").first.locator(".content")).to_contain_text(text, timeout=30_000)
    card = page.locator('#thread [data-author="bot"]').last
    await expect(card).to_contain_text("Done", timeout=60_000)


async def recall(page: Page, text: str) -> None:
    """Ask, and delete the question while the answer is being written."""
    box = page.get_by_role("textbox", name="Message #general")
    await box.fill(text)
    await box.press("Enter")
    card = page.locator('#thread [data-author="bot"]').last
    await expect(card).to_contain_text("Running", timeout=30_000)
    question = page.locator("#messages .message").last
    await question.hover()
    await question.get_by_role("button", name="Delete this message").click()
    await expect(card).to_contain_text("Canceled", timeout=30_000)


async def take(url: str, out: Path) -> None:
    async with chromium() as browser:
        page = await browser.new_page(viewport=SIZE, device_scale_factor=2)
        await page.goto(url)
        await ask(page, "calc 2*(3+4)")
        await page.get_by_role("radio", name="Bob").check()
        box = page.get_by_role("textbox", name="Message #general")
        await page.get_by_label("Mention @bot").first.uncheck()
        await box.fill("大家好，机器人会算数了！")
        await box.press("Enter")
        await page.get_by_label("Mention @bot").first.check()
        await page.get_by_role("radio", name="Alice").check()
        await recall(page, "long")
        await ask(page, "table")
        await page.mouse.move(0, 0)
        schemes = (("light", out), ("dark", out.with_stem(out.stem + "-dark")))
        for scheme, path in schemes:
            await page.emulate_media(color_scheme=scheme)
            # A finished frame in the new colours: the hover transition is over by then.
            await page.wait_for_timeout(300)
            await page.screenshot(path=path)
            sys.stdout.write(f"{path}\n")


def main() -> int:
    if MISSING or not 2 <= len(sys.argv) <= 3:
        sys.stderr.write(f"{MISSING or __doc__}\n")
        return 2
    asyncio.run(take(sys.argv[2] if len(sys.argv) == 3 else URL, Path(sys.argv[1])))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
