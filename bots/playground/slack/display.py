"""Messages as the page draws them: a tree of a few harmless tags, so that the page never parses anybody's markup.

A node is a string or `{"tag", "attrs"?, "children"?}`; the page builds DOM nodes from it and knows no other tags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from bots.playground.chat_server import JsonObject
from bots.playground.slack import mrkdwn, visible
from bots.playground.slack.model import Version
from bots.playground.slack.mrkdwn import NameOf

Node: TypeAlias = str | JsonObject

_MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
# markdown-it node type -> our tag, where nothing but the tag changes
_SAME = {
    "paragraph": "p",
    "strong": "strong",
    "em": "em",
    "s": "s",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "blockquote": "blockquote",
    "table": "table",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "hr": "hr",
    "hardbreak": "br",
    "softbreak": "br",
}
_STYLED = re.compile(
    r"```(?P<pre>.+?)```|`(?P<code>[^`\n]+)`"
    r"|(?<![\w*])\*(?P<strong>\S(?:[^*\n]*\S)?)\*(?![\w*])"
    r"|(?<![\w_])_(?P<em>\S(?:[^_\n]*\S)?)_(?![\w_])"
    r"|(?<![\w~])~(?P<s>\S(?:[^~\n]*\S)?)~(?![\w~])",
    re.DOTALL,
)
_EMOJI = {
    "white_check_mark": "✅",
    "x": "❌",
    "warning": "⚠️",
    "hourglass_flowing_sand": "⏳",
    "wrench": "🔧",
    "gear": "⚙️",
    "octagonal_sign": "🛑",
    "thinking_face": "🤔",
    "speech_balloon": "💬",
    "no_entry": "⛔",
    "eyes": "👀",
}
_EMOJI_CODE = re.compile(r":([a-z0-9_+-]+):")


def message_nodes(version: Version, name_of: NameOf) -> list[Node]:
    """What one state of a message looks like."""
    if not version.blocks:
        return [_tag("p", mrkdwn_nodes(version.text, name_of))]
    return [node for block in version.blocks for node in _block(block, name_of)]


def markdown_nodes(text: str, name_of: NameOf) -> list[Node]:
    """A markdown block, as Slack renders it."""
    tree = SyntaxTreeNode(_MARKDOWN.parse(text))
    return [node for child in tree.children for node in _from_markdown(child, name_of)]


def mrkdwn_nodes(text: str, name_of: NameOf) -> list[Node]:
    """Slack's own text format."""
    nodes: list[Node] = []
    end = 0
    for match in _STYLED.finditer(text):
        nodes += _inline(text[end : match.start()], name_of)
        kind = match.lastgroup or "code"
        inner = match[kind]
        if kind in {"pre", "code"}:
            nodes.append(_tag(kind, [mrkdwn.decode(inner.strip("\n") if kind == "pre" else inner, name_of)]))
        else:
            nodes.append(_tag(kind, mrkdwn_nodes(inner, name_of)))
        end = match.end()
    return nodes + _inline(text[end:], name_of)


def _block(block: JsonObject, name_of: NameOf) -> Iterator[Node]:
    match block["type"]:
        case "markdown":
            yield from markdown_nodes(str(block["text"]), name_of)
        case "section":
            texts = [block["text"]] if "text" in block else []
            yield from (_tag("p", _text(text, name_of)) for text in (*texts, *block.get("fields", ())))
            if block.get("accessory", {}).get("type") == "button":
                yield _tag("div", [_button(block["accessory"])], css="actions")
        case "header":
            yield _tag("h2", _text(block["text"], name_of))
        case "context":
            parts = (e for e in block["elements"] if e["type"] != "image")
            yield _tag("div", [_tag("span", _text(part, name_of)) for part in parts], css="context")
        case "divider":
            yield _tag("hr")
        case "actions":
            yield _tag("div", [_button(button) for button in block["elements"]], css="actions")
        case "rich_text":
            yield from (_rich(element, name_of) for element in block["elements"])
        case "image":
            yield _tag("p", [_link(str(block.get("image_url", "")), [str(block["alt_text"])])])
        case _:
            pass


def _button(button: JsonObject) -> Node:
    attrs = {"action": button["action_id"]}
    if "style" in button:
        attrs["style"] = button["style"]
    if "confirm" in button:
        attrs["confirm"] = button["confirm"]["text"]["text"]
    return {"tag": "button", "attrs": attrs, "children": [emoji(str(button["text"]["text"]))]}


def _text(text: JsonObject, name_of: NameOf) -> list[Node]:
    value = str(text["text"])
    return mrkdwn_nodes(value, name_of) if text["type"] == "mrkdwn" else _lines(mrkdwn.decode_entities(value))


def _inline(text: str, name_of: NameOf) -> list[Node]:
    """Tokens, entities, emoji codes and line breaks of a text without styles."""
    nodes: list[Node] = []
    end = 0
    for token in mrkdwn.TOKEN.finditer(text):
        nodes += _lines(mrkdwn.decode_entities(text[end : token.start()]))
        nodes.append(_token(token[1], name_of))
        end = token.end()
    return nodes + _lines(mrkdwn.decode_entities(text[end:]))


def _token(token: str, name_of: NameOf) -> Node:
    shown = mrkdwn.token_text(token, name_of)
    if token.startswith("!date^"):
        return shown
    if token[0] in "@#!":
        return _tag("span", [shown], css="mention")
    return _link(mrkdwn.decode_entities(token.partition("|")[0]), [shown])


def _lines(text: str) -> list[Node]:
    nodes: list[Node] = []
    for number, line in enumerate(text.split("\n")):
        if number:
            nodes.append(_tag("br"))
        if line:
            nodes.append(emoji(line))
    return nodes


def emoji(text: str) -> str:
    """Text with the emoji codes that this page knows as characters."""
    return _EMOJI_CODE.sub(lambda match: _EMOJI.get(match[1], match[0]), text)


def _rich(element: JsonObject, name_of: NameOf) -> Node:
    """One element of a rich_text block: the client's own composer makes sections of text, mentions and links."""
    simple: dict[str, Callable[[], Node]] = {
        "text": lambda: _styled(element, _lines(str(element["text"]))),
        "user": lambda: _token(f"@{element['user_id']}", name_of),
        "broadcast": lambda: _token(f"!{element['range']}", name_of),
        "channel": lambda: _token(f"#{element['channel_id']}", name_of),
        "link": lambda: _link(str(element["url"]), [str(element.get("text") or element["url"])]),
        "emoji": lambda: emoji(f":{element['name']}:"),
    }
    kind = str(element["type"])
    if kind in simple:
        return simple[kind]()
    children = [_rich(child, name_of) for child in element.get("elements", ())]
    match kind:
        case "rich_text_preformatted":
            # Code is shown as it is: no emoji in it.
            return _tag("pre", [visible.rich_text(element, name_of)])
        case "rich_text_quote":
            return _tag("blockquote", children)
        case "rich_text_list":
            ordered = element.get("style") == "ordered"
            return _tag("ol" if ordered else "ul", [_tag("li", [child]) for child in children])
        case _:
            return _tag("p", children)


def _styled(element: JsonObject, nodes: list[Node]) -> Node:
    tags = {"bold": "strong", "italic": "em", "strike": "s", "code": "code"}
    node = _tag("span", nodes)
    for style, tag in tags.items():
        if element.get("style", {}).get(style):
            node = _tag(tag, [node])
    return node


def _from_markdown(node: SyntaxTreeNode, name_of: NameOf) -> Iterator[Node]:
    def children() -> list[Node]:
        return [made for child in node.children for made in _from_markdown(child, name_of)]

    match node.type:
        case "text":
            yield from _inline_markdown(node.content, name_of)
        case "inline":
            yield from children()
        case "code_inline":
            yield _tag("code", [node.content])
        case "fence" | "code_block":
            language = node.info.split()[0] if node.type == "fence" and node.info.strip() else ""
            yield _tag("pre", [node.content.rstrip("\n")], css=f"language {language}" if language else "")
        case "heading":
            yield _tag(node.tag, children())
        case "link" | "image":
            href = str(node.attrs.get("href") or node.attrs.get("src") or "")
            yield _link(href, children() or [node.content or href])
        case "th" | "td":
            alignment = re.search(r"text-align:(\w+)", str(node.attrs.get("style", "")))
            yield _tag(node.type, children(), css=f"align-{alignment[1]}" if alignment else "")
        case "ordered_list":
            start = node.attrs.get("start")
            attrs = {"attrs": {"start": int(start)}} if isinstance(start, int) else {}
            yield {"tag": "ol", "children": children(), **attrs}
        case kind if kind in _SAME:
            # Paragraphs of a tight list are marked hidden: only their content shows.
            if kind == "paragraph" and node.hidden:
                yield from children()
            else:
                yield _tag(_SAME[kind], children())
        case _:
            yield from children() or ([node.content] if node.content else [])


def _inline_markdown(text: str, name_of: NameOf) -> Iterator[Node]:
    """Text that markdown-it has decoded already: only mentions and emoji are left."""
    end = 0
    for token in mrkdwn.TOKEN.finditer(text):
        if text[end : token.start()]:
            yield emoji(text[end : token.start()])
        yield _token(token[1], name_of)
        end = token.end()
    if text[end:]:
        yield emoji(text[end:])


def _link(href: str, children: list[Node]) -> Node:
    if not re.match(r"https?://|mailto:", href):
        return _tag("span", children)
    return {"tag": "a", "attrs": {"href": href}, "children": children}


def _tag(tag: str, children: list[Node] | None = None, *, css: str = "") -> Node:
    node: JsonObject = {"tag": tag}
    if css:
        node["attrs"] = {"class": css}
    if children:
        node["children"] = children
    return node
