import asyncio
import math
from typing import Any

import pytest

from harness.errors import ProviderError
from harness.messages import AssistantMessage, Reasoning, Text, ToolResult, UserMessage
from harness.providers.base import Completed, ModelRequest, StreamingProvider, TextDelta, ToolSpec
from harness.providers.script import Call, Cut, Fail, Hang, Heard, Say, Step, Think, decide, pieces
from harness.providers.scripted import ScriptedProvider, calls, says

TOOLS = frozenset({"calculator", "write_file"})
SPECS = [ToolSpec(name, "", {"type": "object"}) for name in sorted(TOOLS)]


def steps(*said: str, results: Any = (), tools: frozenset[str] = TOOLS) -> list[Step]:
    return decide(Heard(said, results, tools))


def text(*said: str, **more: Any) -> str:
    return "".join(step.text for step in steps(*said, **more) if isinstance(step, Say))


def test_long_is_two_thousand_varied_words_at_thirty_a_second() -> None:
    script = steps("long")
    answer = text("long")
    assert len(answer.split()) == 2000
    sentences = [sentence for sentence in answer.replace("\n", " ").split(". ") if len(sentence) > 30]
    assert len(set(sentences)) == len(sentences) > 80
    assert answer.count("\n## ") >= 5
    assert script[5].delay_s == pytest.approx(1 / 30)
    assert 60 < sum(step.delay_s for step in script) < 70


@pytest.mark.parametrize("said", ["belong", "longer", "decode", "vegetable", "cutter", "change", "failing", "so-long"])
def test_a_word_inside_a_word_is_no_command(said: str) -> None:
    assert text(said).startswith("Hello!")


@pytest.mark.parametrize("said", ["long", "LONG", "tell me a long story, please", "alice: long", "写一段long的"])
def test_a_command_may_stand_anywhere(said: str) -> None:
    assert len(text(said).split()) == 2000


def test_calc_calls_the_calculator_and_says_the_result() -> None:
    assert steps("calc 2*(3+4)") == [Call("calculator", '{"expression": "2*(3+4)"}', 0.4)]
    assert steps("calc 1 + 1 =?")[0] == Call("calculator", '{"expression": "1 + 1"}', 0.4)
    assert "2*(3+4) = 14" in text("calc 2*(3+4)", results=[("calculator", "14")])
    assert "结果" in text("帮我 calc 2*(3+4)", results=[("calculator", "14")])
    assert "division by zero" in text("calc 1/0", results=[("calculator", "division by zero")])


def test_a_tool_that_is_not_on_offer_is_not_called() -> None:
    assert "`calculator`" in text("calc 1+1", tools=frozenset())


def test_write_calls_write_file() -> None:
    (call,) = steps("write notes.txt")
    assert isinstance(call, Call)
    assert (call.name, '"path": "notes.txt"' in call.arguments) == ("write_file", True)
    assert steps("please write notes")[0] == steps("write notes")[0]
    assert text("write me a poem").startswith("Hello!")


def test_misbehaviour() -> None:
    assert isinstance(steps("cut")[-1], Cut)
    assert isinstance(steps("hang")[-1], Hang)
    assert steps("slow")[0].delay_s == 8.0
    assert steps("slow table")[0].delay_s == 8.0
    (limited,) = steps("fail 429")
    assert isinstance(limited, Fail)
    assert (limited.kind, limited.status, limited.retry_after) == ("rate_limit", 429, 1.0)
    (broken,) = steps("fail 500")
    assert isinstance(broken, Fail)
    assert (broken.kind, broken.status) == ("overloaded", 500)


def test_formats() -> None:
    assert "| --- |" in text("table")
    assert "```python" in text("code")


def test_the_friendly_answer() -> None:
    answer = text("good morning")
    assert 40 <= len(answer.split()) <= 70
    assert "`long`" in answer
    assert "语言模型" in text("早上好")


def test_the_conversation_is_known() -> None:
    assert "3rd exchange; you began with “my name is Ada”" in text("my name is Ada", "ok", "and now?")
    assert "第 2 轮" in text("我叫小王", "继续")
    assert "“my name is Ada”" in text("my name is Ada", "ok", "what did I say first?")
    assert "“我叫小王”" in text("我叫小王", "我前面说了什么？")
    assert "first message" in text("do you remember?")


@pytest.mark.parametrize("sample", ["", "a  b\n", "你好，world 了 ok", "  x\n\n- y"])
def test_pieces_lose_nothing(sample: str) -> None:
    assert "".join(pieces(sample)) == sample


def request(*said: str) -> ModelRequest:
    return ModelRequest("", [UserMessage(line) for line in said], SPECS)


async def test_the_provider_plays_the_script_in_process() -> None:
    provider = ScriptedProvider(speed=math.inf)
    assert isinstance(provider, StreamingProvider)
    async with provider.stream(request("hello")) as items:
        got = [item async for item in items]
    assert isinstance(got[-1], Completed)
    shown = "".join(item.text for item in got if isinstance(item, TextDelta))
    assert shown == got[-1].message.text == (await provider.generate(request("hello"))).text
    assert len(provider.requests) == 2


async def test_a_tool_turn_in_process() -> None:
    provider = ScriptedProvider(speed=math.inf)
    first = await provider.generate(request("calc 6*7"))
    (call,) = first.tool_calls
    assert (call.arguments, first.finish_reason) == ({"expression": "6*7"}, "tool_calls")
    history = [UserMessage("calc 6*7"), first, ToolResult(call.id, call.name, "42")]
    assert "6*7 = 42" in (await provider.generate(ModelRequest("", history, SPECS))).text


@pytest.mark.parametrize(
    ("said", "kind"), [("fail 429", "rate_limit"), ("fail 500", "overloaded"), ("cut", "truncated")]
)
async def test_failures_in_process(said: str, kind: str) -> None:
    with pytest.raises(ProviderError) as caught:
        await ScriptedProvider(speed=math.inf).generate(request(said))
    assert caught.value.kind == kind


async def test_hang_can_be_canceled() -> None:
    provider = ScriptedProvider(speed=math.inf)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await provider.generate(request("hang"))


async def test_given_answers_are_played_in_order() -> None:
    provider = ScriptedProvider([[Think("hm"), *says("Hi there")], calls("f", '{"broken'), says("end")])
    first = await provider.generate(request("a"))
    assert first.parts == (Reasoning("hm"), Text("Hi there"))
    (call,) = (await provider.generate(request("b"))).tool_calls
    assert (call.is_malformed, call.raw_arguments) == (True, '{"broken')
    with pytest.raises(AssertionError, match="1 scripted"):
        provider.assert_complete()
    assert isinstance(await provider.generate(request("c")), AssistantMessage)
    provider.assert_complete()
    with pytest.raises(ProviderError, match="run out"):
        await provider.generate(request("d"))
    with pytest.raises(AssertionError, match="after the last"):
        provider.assert_complete()
    assert [asked.messages[0].text for asked in provider.requests] == ["a", "b", "c", "d"]


async def test_the_pace_can_be_changed_on_the_way() -> None:
    provider = ScriptedProvider([[Say("a"), Say("b", 60.0), Say("c", 60.0)]], speed=10_000)
    said = ""
    async with asyncio.timeout(1), provider.stream(request("x")) as items:
        async for item in items:
            if isinstance(item, TextDelta):
                said += item.text
                if item.text == "b":
                    provider.speed = math.inf
    assert said == "abc"
