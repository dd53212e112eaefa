"""Calls in the text: those that are whole become calls, everything else stays an error."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.messages import UserMessage
from harness.providers.base import ModelRequest, ToolSpec
from harness.providers.openai_chat import OpenAIChatProvider
from harness.providers.profiles import ProviderProfile
from harness.providers.text_calls import TextToolParser
from harness.testing.raw_model_server import RawModelServer, RawReply
from tests.providers.wire import DONE, delta, say, sse

WRITE = ToolSpec(
    "write",
    "Writes.",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
        "required": ["path"],
    },
)
NOW = ToolSpec("now", "The time.", {"type": "object", "properties": {}})


def parsed(text: str) -> list[tuple[str, object]]:
    return [(call.name, call.arguments) for call in TextToolParser([WRITE, NOW], lambda: "id")(text)]


A = ("write", {"path": "a"})
B = ("now", {})
JSON_A = '<tool_call>\n{"name": "write", "arguments": {"path": "a"}}\n</tool_call>'
JSON_B = '<tool_call>{"name": "now", "parameters": {}}</tool_call>'
TWO_VALUES = "<parameter=path>\na\n</parameter>\n<parameter=lines>\n3\n</parameter>"
INVOKE_A = '<invoke name="write"><parameter name="path">a</parameter></invoke>'
DSML_PATH = '<｜DSML｜parameter name="path" string="true">a</｜DSML｜parameter>'
LIST = '[{"name": "write", "arguments": {"path": "a"}}, {"name": "now", "arguments": {}}]'

WHOLE: dict[str, tuple[str, list[tuple[str, object]]]] = {
    "json": (JSON_A, [A]),
    "json, arguments as text": (
        '<tool_call>{"name": "write", "arguments": "{\\"path\\": \\"a\\"}"}</tool_call>',
        [A],
    ),
    "json, two": (f"{JSON_A}\n{JSON_B}", [A, B]),
    "json, wrapped": (f"<tool_calls>\n{JSON_B}</tool_calls>", [B]),
    "function": (f"<function=write>\n{TWO_VALUES}\n</function>", [("write", {"path": "a", "lines": 3})]),
    "function, wrapped": ("<tool_call>\n<function=now>\n</function>\n</tool_call>", [B]),
    "a string that looks like a number": (
        "<function=write><parameter=path>7</parameter></function>",
        [("write", {"path": "7"})],
    ),
    "invoke": (f"<function_calls>{INVOKE_A}</function_calls>", [A]),
    "invoke, wrapped": (f"<minimax:tool_call>{INVOKE_A}</minimax:tool_call>", [A]),
    "invoke with a prefix": (
        f'<｜DSML｜function_calls>\n<｜DSML｜invoke name="write">{DSML_PATH}</｜DSML｜invoke></｜DSML｜function_calls>',
        [A],
    ),
    "list": (f"[TOOL_CALLS] {LIST}", [A, B]),
    "in the order of the text": (f"<function=now></function>{INVOKE_A}", [B, A]),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_call_is_read(name: str) -> None:
    text, calls = WHOLE[name]
    assert parsed(text) == calls


BROKEN = {
    "unclosed": '<tool_call>{"name": "write", "arguments": {"path": "a"}}',
    "cut json": '<tool_call>{"name": "write", "arguments": {"path": </tool_call>',
    "unclosed function": "<function=write><parameter=path>a</parameter>",
    "unclosed parameter": "<function=write><parameter=path>a</function>",
    "unknown tool": '<tool_call>{"name": "rm", "arguments": {}}</tool_call>',
    "required argument missing": '<tool_call>{"name": "write", "arguments": {}}</tool_call>',
    "unknown argument": '<tool_call>{"name": "now", "arguments": {"x": 1}}</tool_call>',
    "text behind it": '<tool_call>{"name": "now"}</tool_call> That is how a call looks.',
    "text between": '<tool_call>{"name": "now"}</tool_call> and <tool_call>{"name": "now"}</tool_call>',
    "one of two broken": '<tool_call>{"name": "now"}</tool_call><tool_call>{"name": "rm"}</tool_call>',
    "other prefixes": '<a:invoke name="now"></b:invoke>',
    "cut list": '[TOOL_CALLS] [{"name": "now", "arguments": {}}',
    "no list": '[TOOL_CALLS] {"name": "now"}',
    "special words": "<|python_tag|>now.call()",
    "deep": '<tool_call>{"name": "now", "arguments": ' + "[" * 5_000 + "}</tool_call>",
    "too long": "<function=write>" * 20_000,
}


@pytest.mark.parametrize("name", BROKEN)
def test_anything_else_is_no_call(name: str) -> None:
    assert parsed(BROKEN[name]) == []


@given(st.dictionaries(st.just("path"), st.text().filter(lambda text: "<" not in text), min_size=1))
def test_arguments_come_out_as_they_went_in(arguments: dict[str, str]) -> None:
    body = json.dumps({"name": "write", "arguments": arguments})
    assert parsed(f"<tool_call>{body}</tool_call>") == [("write", arguments)]


@given(st.text(alphabet='<>/=|｜"{}[]: \nainvokefunctionparametertool_callTOOL_CALLS'))
def test_no_text_breaks_the_parser(text: str) -> None:
    assert all(name in ("write", "now") for name, _ in parsed(text))


async def ask(mode: str, *pieces: str) -> object:
    profile = ProviderProfile(text_tool_markup=mode)  # type: ignore[arg-type]
    async with RawModelServer(RawReply(sse(*map(say, pieces), delta("stop"), DONE))) as server:
        provider = OpenAIChatProvider(api_key="k", base_url=server.base_url, model="m", profile=profile)
        try:
            return await provider.generate(ModelRequest("", [UserMessage("x")], [WRITE, NOW]))
        except Exception as error:
            return getattr(error, "kind", error)
        finally:
            await provider.aclose()


PIECES = ("Let me look. <tool", "_call>", '{"name": "write", ', '"arguments": {"path": "a"}}</tool', "_call>")


async def test_only_the_profile_makes_calls_of_text() -> None:
    made = await ask("parse", *PIECES)
    assert [(call.name, call.arguments) for call in made.tool_calls] == [A]  # type: ignore[attr-defined]
    assert made.text == "Let me look. "  # type: ignore[attr-defined]
    assert await ask("fail", *PIECES) == "tool_markup"
    assert (await ask("pass", *PIECES)).text == "".join(PIECES)  # type: ignore[attr-defined]
    assert await ask("parse", *PIECES[:-1]) == "tool_markup"
