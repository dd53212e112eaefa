"""What a person reads of a message: all blocks in order, as text. Buttons are not text."""

from __future__ import annotations

from typing import cast

from bots.playground.chat_server import JsonObject
from bots.playground.slack import mrkdwn
from bots.playground.slack.model import Version
from bots.playground.slack.mrkdwn import NameOf


def visible_text(version: Version, name_of: NameOf) -> str:
    """The blocks' text, or the plain text of a message without blocks. A markdown block gives its source."""
    if version.shape == "gone":
        return ""
    if not version.blocks:
        return mrkdwn.decode(version.text, name_of)
    parts = (block_text(block, name_of) for block in version.blocks)
    return "\n".join(part for part in parts if part)


def block_text(block: JsonObject, name_of: NameOf) -> str:
    """The text of one block."""
    match block["type"]:
        case "markdown":
            return mrkdwn.decode_markdown(str(block["text"]), name_of)
        case "section":
            texts = [block["text"]] if "text" in block else []
            return "\n".join(text_object(text, name_of) for text in (*texts, *block.get("fields", ())))
        case "header":
            return text_object(block["text"], name_of)
        case "context":
            texts = [e for e in block["elements"] if e["type"] != "image"]
            return " ".join(text_object(text, name_of) for text in texts)
        case "rich_text":
            return "\n".join(rich_text(element, name_of) for element in block["elements"])
        case "image":
            return str(block.get("title", {}).get("text") or block["alt_text"])
        case _:
            return ""


def text_object(text: JsonObject, name_of: NameOf) -> str:
    """The text of a mrkdwn or plain_text object."""
    value = str(text["text"])
    return mrkdwn.decode(value, name_of) if text["type"] == "mrkdwn" else mrkdwn.decode_entities(value)


def rich_text(element: JsonObject, name_of: NameOf) -> str:
    """The text of a rich_text element and of everything in it."""
    match element["type"]:
        case "text":
            return str(element["text"])
        case "user":
            user_id = str(element["user_id"])
            return f"@{name_of(user_id) or user_id}"
        case "link":
            return str(element.get("text") or element["url"])
        case "broadcast":
            return f"@{element['range']}"
        case "channel":
            return f"#{element['channel_id']}"
        case "emoji":
            return f":{element['name']}:"
        case "rich_text_list":
            return "\n".join(f"• {rich_text(item, name_of)}" for item in element["elements"])
        case _:
            inner = cast("list[JsonObject]", element.get("elements", []))
            return "".join(rich_text(child, name_of) for child in inner)


def formatted_texts(text: str, blocks: list[JsonObject]) -> list[str]:
    """Every text of a payload in which Slack looks for tokens, code of markdown blocks left out."""
    found = [text]
    for block in blocks:
        match block["type"]:
            case "markdown":
                found.append(mrkdwn.MARKDOWN_CODE.sub("", str(block["text"])))
            case "section":
                found += (str(t["text"]) for t in (block.get("text"), *block.get("fields", ())) if t)
            case "context":
                found += (str(e["text"]) for e in block["elements"] if e["type"] == "mrkdwn")
            case _:
                pass
    return found
