"""A real browser for the page. CHROMIUM names another one than Debian's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator

from playwright.async_api import Browser, async_playwright

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
MISSING = None if os.path.exists(CHROMIUM) else f"no browser at {CHROMIUM} (apt-get install chromium, or set CHROMIUM)"


@contextlib.asynccontextmanager
async def chromium() -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        # Containers have no user namespaces for chromium's sandbox; it only ever sees our own page.
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()
