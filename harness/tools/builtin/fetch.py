"""Fetching a web page as text."""

import asyncio
from typing import Final

from yarl import URL

from harness.errors import ToolError
from harness.tools.base import Tool, tool
from harness.tools.charsets import decoded
from harness.tools.download import Downloader, Page, parsed
from harness.tools.html_text import html_to_text

_HTML: Final = frozenset({"text/html", "application/xhtml+xml"})
_MAX_LINK_CHARS: Final = 300
_MARGIN_S: Final = 10.0


def fetch_tool(downloader: Downloader | None = None) -> Tool:
    """The tool `fetch`. `downloader`: the guard and the limits, by default those for the public internet."""
    source = downloader or Downloader()

    @tool(read_only=True, timeout_s=source.timeout_s + _MARGIN_S, policy="ask", untrusted="the web page {url}")
    async def fetch(url: str) -> str:
        """Fetch a public web page (HTML, JSON or plain text) and give it as readable text, links with their targets."""
        page = await source.get(url, _readable)
        # Off the event loop: a page of two megabytes takes a while.
        return await asyncio.to_thread(_shown, page)

    return fetch


def _readable(content_type: str) -> bool:
    return content_type in _HTML or content_type.startswith("text/") or _is_json(content_type)


def _is_json(content_type: str) -> bool:
    return content_type == "application/json" or content_type.endswith("+json")


def _shown(page: Page) -> str:
    is_html = page.content_type in _HTML
    text = decoded(page.body, page.charset, is_html=is_html)
    head = f"{page.url} ({page.content_type}, {len(page.body):,} bytes)"
    if is_html:
        title, text = html_to_text(text, lambda target: _absolute(page.url, target))
        head += f"\nTitle: {title}" if title else ""
    return f"{head}\n\n{text.strip() or '(no text)'}"


def _absolute(base: URL, target: str) -> str | None:
    if not target or target.startswith("#"):
        return None
    try:
        shown = str(parsed(str(base.join(URL(target)))))
    except (ValueError, ToolError):
        return None
    return shown if len(shown) <= _MAX_LINK_CHARS else f"{shown[:_MAX_LINK_CHARS]}..."
