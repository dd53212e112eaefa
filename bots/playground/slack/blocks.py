"""Block validation as Slack does it: every fault of a payload, worded and located as Slack words and locates it.

A block type that is not in this module is refused as unknown: when the app starts to send a new one, its rules
belong here first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from bots.playground.chat_server import JsonObject
from bots.playground.slack import limits, mrkdwn


def validate(blocks: list[Any], *, escaped: bool) -> list[str]:
    """All faults, as `must be less than 3001 characters [json-pointer:/blocks/0/text/text]`; empty = accepted.

    `escaped` counts text after escaping, as `chat.update` does; `chat.postMessage` takes the overflow.
    """
    check = _Check(escaped=escaped)
    check.blocks(blocks)
    return check.faults


def markdown_length(blocks: list[Any]) -> int:
    """Characters of all markdown blocks of a payload together."""
    found = (cast("JsonObject", block) for block in blocks if isinstance(block, dict))
    return sum(len(str(block.get("text", ""))) for block in found if block.get("type") == "markdown")


def buttons(blocks: list[JsonObject]) -> list[JsonObject]:
    """Every button of validated blocks, in order, with the block_id it belongs to."""
    found: list[JsonObject] = []
    for block in blocks:
        elements: list[JsonObject] = list(block.get("elements", ())) if block["type"] == "actions" else []
        if block["type"] == "section" and "accessory" in block:
            elements.append(block["accessory"])
        found += ({**element, "block_id": block["block_id"]} for element in elements if element["type"] == "button")
    return found


# Elements inside rich text and the field each one cannot do without.
_RICH_FIELDS = {
    "text": "text",
    "user": "user_id",
    "link": "url",
    "emoji": "name",
    "broadcast": "range",
    "channel": "channel_id",
}


class _Check:
    """One walk over a payload. Each method takes a value and its JSON pointer."""

    def __init__(self, *, escaped: bool) -> None:
        self.faults: list[str] = []
        self._escaped = escaped
        self._kinds: dict[str, Callable[[JsonObject, str], None]] = {
            "markdown": self._markdown,
            "section": self._section,
            "header": self._header,
            "context": self._context,
            "actions": self._actions,
            "divider": lambda _block, _at: None,
            "image": self._image,
            "rich_text": self._rich_text,
        }

    def blocks(self, blocks: list[Any]) -> None:
        self._count(blocks, limits.BLOCKS_PER_MESSAGE, "/blocks")
        ids: set[str] = set()
        for index, raw in enumerate(blocks):
            at = f"/blocks/{index}"
            block = self._object(raw, at)
            if block is None:
                continue
            kind = block.get("type")
            rule = self._kinds.get(kind) if isinstance(kind, str) else None
            if rule is None:
                self._fault(f"unsupported type: {kind}", f"{at}/type")
                continue
            if "block_id" in block:
                block_id = self._string(block, "block_id", limits.BLOCK_ID, at)
                if block_id in ids:
                    self._fault(f'block_id "{block_id}" already exists', f"{at}/block_id")
                ids.add(block_id or "")
            rule(block, at)

    def _markdown(self, block: JsonObject, at: str) -> None:
        self._string(block, "text", limits.MARKDOWN_TEXT, at)

    def _section(self, block: JsonObject, at: str) -> None:
        fields = block.get("fields")
        if "text" not in block and not fields:
            self._fault("missing required field: text", at)
        if "text" in block:
            self._text(block["text"], limits.SECTION_TEXT, f"{at}/text")
        if fields is not None:
            for index, field in enumerate(self._items(block, "fields", limits.SECTION_FIELDS, at)):
                self._text(field, limits.SECTION_FIELD_TEXT, f"{at}/fields/{index}")
        if "accessory" in block:
            self._element(block["accessory"], f"{at}/accessory", {"button", "image"})

    def _header(self, block: JsonObject, at: str) -> None:
        self._text(block.get("text"), limits.HEADER_TEXT, f"{at}/text", kinds={"plain_text"})

    def _context(self, block: JsonObject, at: str) -> None:
        for index, raw in enumerate(self._items(block, "elements", limits.CONTEXT_ELEMENTS, at)):
            where = f"{at}/elements/{index}"
            element = self._object(raw, where)
            if element is not None and element.get("type") == "image":
                self._image(element, where)
            elif element is not None:
                self._text(element, limits.TEXT_OBJECT, where)

    def _actions(self, block: JsonObject, at: str) -> None:
        ids: set[str] = set()
        for index, raw in enumerate(self._items(block, "elements", limits.ACTIONS_ELEMENTS, at)):
            where = f"{at}/elements/{index}"
            action_id = self._element(raw, where, {"button"})
            if action_id in ids:
                self._fault(f'action_id "{action_id}" already exists in this block', f"{where}/action_id")
            if action_id:
                ids.add(action_id)

    def _image(self, block: JsonObject, at: str) -> None:
        if "image_url" not in block and "slack_file" not in block:
            self._fault("missing required field: image_url", at)
        if "image_url" in block:
            self._string(block, "image_url", limits.IMAGE_URL, at)
        self._string(block, "alt_text", limits.IMAGE_ALT_TEXT, at)
        if "title" in block:
            self._text(block["title"], limits.IMAGE_TITLE, f"{at}/title", kinds={"plain_text"})

    def _rich_text(self, block: JsonObject, at: str) -> None:
        allowed = {"rich_text_section", "rich_text_list", "rich_text_preformatted", "rich_text_quote"}
        for index, raw in enumerate(self._items(block, "elements", None, at)):
            where = f"{at}/elements/{index}"
            element = self._object(raw, where)
            if element is None:
                continue
            if element.get("type") not in allowed:
                self._fault(f"unsupported type: {element.get('type')}", f"{where}/type")
            else:
                self._rich_elements(element, where)

    def _rich_elements(self, holder: JsonObject, at: str) -> None:
        """The inside of a section, quote, preformatted text or list."""
        for index, raw in enumerate(self._items(holder, "elements", None, at)):
            where = f"{at}/elements/{index}"
            element = self._object(raw, where)
            if element is None:
                continue
            kind = element.get("type")
            if holder["type"] == "rich_text_list":
                if kind != "rich_text_section":
                    self._fault(f"unsupported type: {kind}", f"{where}/type")
                else:
                    self._rich_elements(element, where)
            elif kind not in _RICH_FIELDS:
                self._fault(f"unsupported type: {kind}", f"{where}/type")
            elif not isinstance(element.get(_RICH_FIELDS[kind]), str):
                self._fault(f"missing required field: {_RICH_FIELDS[kind]}", where)

    def _element(self, raw: Any, at: str, kinds: set[str]) -> str | None:
        """A button or an accessory image; returns a button's action_id."""
        element = self._object(raw, at)
        if element is None:
            return None
        kind = element.get("type")
        if kind not in kinds:
            self._fault(f"unsupported type: {kind}", f"{at}/type")
            return None
        if kind == "image":
            self._image(element, at)
            return None
        self._text(element.get("text"), limits.BUTTON_TEXT, f"{at}/text", kinds={"plain_text"})
        if "value" in element:
            self._string(element, "value", limits.BUTTON_VALUE, at)
        if "url" in element:
            self._string(element, "url", limits.BUTTON_URL, at)
        if "style" in element and element["style"] not in limits.BUTTON_STYLES:
            self._fault("must be one of primary, danger", f"{at}/style")
        if "confirm" in element:
            self._confirm(element["confirm"], f"{at}/confirm")
        return self._string(element, "action_id", limits.ACTION_ID, at) if "action_id" in element else None

    def _confirm(self, raw: Any, at: str) -> None:
        confirm = self._object(raw, at)
        if confirm is None:
            return
        plain = {"plain_text"}
        self._text(confirm.get("title"), limits.CONFIRM_TITLE, f"{at}/title", kinds=plain)
        self._text(confirm.get("text"), limits.CONFIRM_TEXT, f"{at}/text")
        self._text(confirm.get("confirm"), limits.CONFIRM_BUTTON, f"{at}/confirm", kinds=plain)
        self._text(confirm.get("deny"), limits.CONFIRM_BUTTON, f"{at}/deny", kinds=plain)

    def _text(self, raw: Any, limit: int, at: str, *, kinds: set[str] | None = None) -> None:
        """A text object."""
        text = self._object(raw, at)
        if text is None:
            return
        if text.get("type") not in (kinds or {"plain_text", "mrkdwn"}):
            self._fault(f"unsupported type: {text.get('type')}", f"{at}/type")
        elif text["type"] == "mrkdwn" and "emoji" in text:
            self._fault("additional property: emoji", at)
        elif text["type"] == "plain_text" and "verbatim" in text:
            self._fault("additional property: verbatim", at)
        self._string(text, "text", limit, at, escaped=self._escaped)

    def _string(self, holder: JsonObject, key: str, limit: int, at: str, *, escaped: bool = False) -> str | None:
        value = holder.get(key)
        where = f"{at}/{key}"
        if value is None:
            self._fault(f"missing required field: {key}", at)
            return None
        if not isinstance(value, str):
            self._fault("must be a string", where)
            return None
        length = len(mrkdwn.escape(value) if escaped else value)
        if length == 0:
            self._fault("must be more than 0 characters", where)
        elif length > limit:
            self._fault(f"must be less than {limit + 1} characters", where)
        return value

    def _items(self, holder: JsonObject, key: str, limit: int | None, at: str) -> list[Any]:
        value = holder.get(key)
        if not isinstance(value, list):
            self._fault(f"missing required field: {key}", at)
            return []
        items = cast("list[Any]", value)
        if not items:
            self._fault("no fewer than 1 items allowed", f"{at}/{key}")
        if limit is not None:
            self._count(items, limit, f"{at}/{key}")
        return items

    def _count(self, items: list[Any], limit: int, at: str) -> None:
        if len(items) > limit:
            self._fault(f"no more than {limit} items allowed", at)

    def _object(self, value: Any, at: str) -> JsonObject | None:
        if isinstance(value, dict):
            return cast("JsonObject", value)
        self._fault("missing required object" if value is None else "must be an object", at)
        return None

    def _fault(self, what: str, at: str) -> None:
        self.faults.append(f"{what} [json-pointer:{at}]")
