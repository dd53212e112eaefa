"""Tools: what the model is told about them, what it may send, and what the built-in ones answer."""

import asyncio
import math
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from harness.admission import Origin, RunInput
from harness.errors import ConfigError, ToolError
from harness.messages import ToolCall, ToolResult
from harness.reporters.base import EventSink
from harness.reporters.recording import RecordingReporter
from harness.task import Task
from harness.tools.base import Tool, ToolContext, by_name, tool
from harness.tools.builtin import default_tools
from harness.tools.builtin.calculator import calculator
from harness.tools.builtin.clock import clock
from harness.tools.builtin.random_number import random_number
from harness.tools.executor import Caller, ToolExecutor, clamp


async def _no_progress(_text: str) -> None:
    pass


CONTEXT = ToolContext("task", "session", "slack:U1", _no_progress)


async def use(item: Tool, **arguments: Any) -> str:
    return await item.call(arguments, CONTEXT)


# --- what the model is told ---


class Unit(StrEnum):
    C = "celsius"
    F = "fahrenheit"


class Place(BaseModel):
    """Somewhere."""

    city: str
    title: str = ""


@tool
async def forecast(
    place: Place,
    context: ToolContext,
    days: Annotated[int, Field(description="how many days", ge=1, le=7)] = 3,
    unit: Unit = Unit.C,
    near: list[Place] | None = None,
    ratio: float | Unit = 0.5,
    *,
    mode: Literal["short", "long"] = "short",
    title: str = "",
) -> str:
    """The weather of a place.

    Several days at once.
    """
    return f"{place.city} {days} {unit.value} {near} {ratio} {mode} {title} {context.requester}"


def test_the_schema_comes_from_the_signature() -> None:
    schema = dict(forecast.spec.parameters)
    properties = schema["properties"]
    assert schema["type"] == "object"
    assert schema["required"] == ["place"]
    assert schema["additionalProperties"] is False
    assert set(properties) == {"place", "days", "unit", "near", "ratio", "mode", "title"}, "no context"
    assert properties["days"] == {
        "description": "how many days", "type": "integer", "minimum": 1, "maximum": 7, "default": 3,
    }  # fmt: skip
    assert properties["mode"]["enum"] == ["short", "long"]
    assert properties["title"] == {"type": "string", "default": ""}, "a parameter may be called title"
    assert properties["ratio"]["anyOf"] == [{"type": "number"}, {"$ref": "#/$defs/Unit"}]
    assert {kind.get("type") for kind in properties["near"]["anyOf"]} == {"array", "null"}
    assert schema["$defs"]["Unit"]["enum"] == ["celsius", "fahrenheit"]
    assert set(schema["$defs"]["Place"]["properties"]) == {"city", "title"}
    assert "title" not in schema["$defs"]["Place"], "generated titles only cost tokens"
    assert forecast.spec.name == "forecast"
    assert forecast.spec.description == "The weather of a place.\n\nSeveral days at once."


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    @tool(name="ping", read_only=True, timeout_s=2)
    def anything() -> str:
        """Ping."""
        return "pong"

    assert dict(anything.spec.parameters) == {"type": "object", "properties": {}, "additionalProperties": False}
    assert (anything.name, anything.read_only, anything.timeout_s) == ("ping", True, 2)


def test_what_cannot_be_described_is_refused_where_it_is_written() -> None:
    def undocumented(a: int) -> str:
        return ""

    def bare(a) -> str:  # type: ignore[no-untyped-def]
        """Bare."""
        return ""

    def many(*a: int) -> str:
        """Many."""
        return ""

    for function, reason in ((undocumented, "docstring"), (bare, "annotation"), (many, "ordinary")):
        with pytest.raises(TypeError, match=reason):
            tool(function)


def test_two_tools_of_one_name_are_a_mistake() -> None:
    with pytest.raises(ConfigError, match="calculator"):
        by_name([calculator, calculator])
    assert list(by_name(default_tools())) == ["calculator", "random_number", "clock"]


async def test_arguments_arrive_as_python_values_and_the_caller_is_known() -> None:
    said = await use(forecast, place={"city": "Oslo"}, days="2", unit="fahrenheit", near=[{"city": "Bergen"}])
    assert said == "Oslo 2 fahrenheit [Place(city='Bergen', title='')] 0.5 short  slack:U1"


async def test_a_result_that_is_no_string_is_shown_as_one() -> None:
    @tool
    def count() -> int:
        """Count."""
        return 3

    assert await use(count) == "3"


# Arguments that do not fit: (arguments, what the message must name).
MISFITS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "missing": ({}, ["place: Field required"]),
    "nested": ({"place": {"title": "x"}}, ["place.city: Field required"]),
    "unknown": ({"place": {"city": "Oslo"}, "cty": 1}, ["cty: Extra inputs"]),
    "the hidden one": ({"place": {"city": "Oslo"}, "context": {}}, ["context: Extra inputs"]),
    "out of bounds": ({"place": {"city": "Oslo"}, "days": 9}, ["days: ", "less than or equal to 7"]),
    "not whole": ({"place": {"city": "Oslo"}, "days": 1.5}, ["days: "]),
    "several": ({"place": {"city": 1}, "mode": "m", "near": [3]}, ["place.city: ", "mode: ", "near.", "; "]),
}


@pytest.mark.parametrize("case", MISFITS)
async def test_wrong_arguments_are_explained_one_by_one(case: str) -> None:
    arguments, named = MISFITS[case]
    with pytest.raises(ToolError) as caught:
        await use(forecast, **arguments)
    assert str(caught.value).startswith("Invalid arguments. ")
    for words in named:
        assert words in str(caught.value)


# --- the calculator ---

EXACT = {
    "2*(3+4)": "14",
    "0.1+0.2": "0.3",
    "1.10*3": "3.3",
    "10/4": "2.5",
    "10/5": "2",
    "1/3": "0.3333333333333333333333333333",
    "2**100": str(2**100),
    "2**-1": "0.5",
    "(-2)**3": "-8",
    "-2**2": "-4",
    "0**0": "1",
    "0.0**0": "1",
    "7//2": "3",
    "-7//2": "-4",
    "7%3": "1",
    "-7%3": "2",
    "7.5%-2": "-0.5",
    "-7.5//2": "-4",
    "10**30//3.0": "3" * 30,
    "10**30%0.7": "0.3",
    "69.99999999999999999999999999//9.999999999999999999999999999": "6",
    "sqrt(16)": "4",
    "sqrt(2)": "1.414213562373095048801688724",
    f"sqrt({10**40})": str(10**20),
    "abs(-3.5)": "3.5",
    "round(2.5)": "2",
    "round(3.5)": "4",
    "round(2.675, 2)": "2.68",
    "round(1234.5, -2)": "1200",
    "round(1250, -2)": "1200",
    "round(1e30)": str(10**30),
    "round(1.5, 28)": "1.5",
    "min(3, 1.5, 2)": "1.5",
    "max(1, 2)": "2",
    "floor(-1.5)": "-2",
    "ceil(1.2)": "2",
    "log(8, 2)": "3",
    "log(e)": "1",
    "e": "2.718281828459045235360287471",
    "pi": "3.141592653589793238462643383",
    "abs(" * 98 + "1" + ")" * 98: "1",
    "log(1)": "0",
    "exp(0)": "1",
    "sin(0)": "0",
    "sin(pi)": "0",
    "sin(1e-20)": "1E-20",
    "cos(pi)": "-1",
    "tan(0)": "0",
    "0xff + 1_000": "1255",
    "1_000.5*2": "2001",
    " 1 +\t1 ": "2",
    "-0.0": "0",
    "1e400": "1E+400",
    "+".join(["12"] * 160): "1920",
    "9" * 400 + "+1": str(10**400),
}


@pytest.mark.parametrize("expression", EXACT)
async def test_the_calculator_is_exact(expression: str) -> None:
    assert await use(calculator, expression=expression) == EXACT[expression]


# What must not be computed: expression -> a part of what the model is told.
HOSTILE = {
    "9**9**9": "digits",
    "(10**999)*(10**999)": "digits",
    "2**(10**900)": "too large",
    "1.5**(10**900)": "too large",
    "(10**900)**0.5**(0-3)": "too large",
    "exp(10**900)": "too large",
    "1e99999": "too large",
    "sin(10**900)": "too large",
    "sin(1e400)": "too large",
    "(0-8)**(1/3)": "not a real number",
    "sqrt(-1)": "negative",
    "log(0)": "positive",
    "log(10, 1)": "other than 1",
    "1/0": "zero",
    "1//0": "zero",
    "1%0": "zero",
    "1/0.0": "zero",
    "5.5%0.0": "zero",
    "0**-1": "zero",
    "0.0**-1": "zero",
    "1" * 501: "longer than 500",
    "-" * 450 + "1": "nested",
    "(" * 240 + "1" + ")" * 240: "not an arithmetic",
    "": "not an arithmetic",
    "\x00": "not an arithmetic",
    "\ud800": "not an arithmetic",
    "1 +": "not an arithmetic",
    "2x": "not an arithmetic",
    "import os": "not an arithmetic",
    "1; 2": "not an arithmetic",
    "x": "not known",
    "nan": "not known",
    "__import__('os')": "not known",
    "open('/etc/passwd')": "not known",
    "factorial(5)": "not known",
    "().__class__": "Only numbers",
    "(1).real": "Only numbers",
    "sqrt.__globals__": "Only numbers",
    "[1][0]": "Only numbers",
    "{1: 2}": "Only numbers",
    "[x for x in (1, 2)]": "Only numbers",
    "(lambda: 1)()": "Only numbers",
    "max(*[1, 2])": "Only numbers",
    "(a := 1)": "Only numbers",
    "f'{1}'": "Only numbers",
    "1 if 1 else 2": "Only numbers",
    "1 < 2": "Only numbers",
    "not 1": "Only numbers",
    "~1": "Only numbers",
    "'a' * 10": "Only numbers",
    "b'a'": "Only numbers",
    "1j": "Only numbers",
    "True": "Only numbers",
    "None": "Only numbers",
    "...": "Only numbers",
    "2 ^ 3": "not supported",
    "1 << 1000": "not supported",
    "sqrt()": "takes 1",
    "round(1, 2, 3)": "takes 1 to 2",
    "round(1.5, 0.5)": "whole number",
    "round(1.5, 1000)": "whole number",
}


@pytest.mark.timeout(10)  # each of these would take for ever, or all memory, if it were simply computed
@pytest.mark.parametrize("expression", HOSTILE)
async def test_what_the_calculator_does_not_compute_is_said_clearly(expression: str) -> None:
    with pytest.raises(ToolError, match=HOSTILE[expression]):
        await use(calculator, expression=expression)


# --- the others ---


async def test_random_numbers_stay_within_their_bounds() -> None:
    assert {await use(random_number, min=-1, max=1) for _ in range(300)} == {"-1", "0", "1"}
    assert await use(random_number, min=10**40, max=10**40) == str(10**40)
    with pytest.raises(ToolError, match="must not be greater"):
        await use(random_number, min=2, max=1)
    with pytest.raises(ToolError, match="min: "):
        await use(random_number, min="a", max=1)


async def test_the_clock_knows_zones() -> None:
    for zone, offset in (("UTC", 0), ("Asia/Shanghai", 8), ("Asia/Kathmandu", 5.75)):
        said = await use(clock, timezone=zone)
        now = datetime.fromisoformat(said.partition(" ")[0])
        difference = now.utcoffset()
        assert difference is not None
        assert math.isclose(difference.total_seconds() / 3600, offset)
        assert abs((datetime.now(now.tzinfo) - now).total_seconds()) < 5
        assert said.endswith(f"({now:%A}, {zone})")
    assert (await use(clock)).endswith(", UTC)")


@pytest.mark.parametrize(
    "zone", ["Mars/Base", "", "../../etc/passwd", "/etc/passwd", "Europe", "a\x00b", "\ud800", "x" * 5000]
)
async def test_what_is_no_zone_is_said(zone: str) -> None:
    with pytest.raises(ToolError, match="not a time zone"):
        await use(clock, timezone=zone)


def test_long_results_keep_head_and_tail() -> None:
    assert clamp("x" * 100, 100) == "x" * 100
    short = clamp("a" * 500 + "b" * 500, 100)
    assert short.startswith("a" * 75 + "\n")
    assert short.endswith("\n" + "b" * 25)
    assert "900 characters" in short


def test_every_built_in_result_is_a_number_or_a_time() -> None:
    assert Decimal(calculator.function("1/7")) < 1


# --- the executor, where a tool does not do what it is told ---


def sink() -> tuple[EventSink, RecordingReporter]:
    reporter = RecordingReporter()
    return EventSink(Task(RunInput("t", "s", "go", Origin())), reporter), reporter


class Stubborn:
    """A tool that goes on when it is canceled, until the test lets it end."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.let_go = asyncio.Event()
        self.ended = asyncio.Event()

        @tool(name="stubborn")
        async def run() -> str:
            """Goes on."""
            self.started.set()
            while not self.let_go.is_set():
                try:
                    await self.let_go.wait()
                except asyncio.CancelledError:
                    continue
            self.ended.set()
            return "at last"

        self.tool = run


CALLER = Caller("t", "s", "u")


async def test_a_tool_that_ignores_its_time_limit_is_left_behind() -> None:
    stubborn = Stubborn()
    executor = ToolExecutor(by_name([stubborn.tool]), timeout_s=0.02, stop_grace_s=0.02)
    events, reporter = sink()
    results: dict[str, ToolResult] = {}
    await asyncio.wait_for(executor.run([ToolCall("c", "stubborn", {})], CALLER, events, results, {"c": ""}), 5)
    assert results["c"].is_error
    assert "did not finish" in results["c"].content
    assert reporter.kinds == ["tool:start", "tool:end"]
    stubborn.let_go.set()
    await asyncio.wait_for(stubborn.ended.wait(), 5)


async def test_a_cancellation_does_not_wait_for_ever_for_a_tool_that_ignores_it() -> None:
    stubborn = Stubborn()
    executor = ToolExecutor(by_name([stubborn.tool]), stop_grace_s=0.02)
    events, _ = sink()
    results: dict[str, ToolResult] = {}
    run = asyncio.create_task(executor.run([ToolCall("c", "stubborn", {})], CALLER, events, results, {"c": ""}))
    await asyncio.wait_for(stubborn.started.wait(), 5)
    run.cancel()
    done, _ = await asyncio.wait({run}, timeout=5)
    assert done
    assert run.cancelled()
    assert results == {}
    stubborn.let_go.set()
    await asyncio.wait_for(stubborn.ended.wait(), 5)


async def test_a_canceled_tool_is_really_stopped_and_has_time_to_clean_up() -> None:
    cleaned = asyncio.Event()

    @tool(read_only=True)
    async def tidy() -> str:
        """Tidies up behind itself."""
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()
        return ""

    events, reporter = sink()
    executor = ToolExecutor(by_name([tidy]))
    run = asyncio.create_task(executor.run([ToolCall("c", "tidy", {})], CALLER, events, {}, {"c": ""}))
    while not reporter.events:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert cleaned.is_set()


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_tool_that_cancels_itself_has_failed_and_nothing_else(read_only: bool) -> None:
    @tool(read_only=read_only)
    async def odd() -> str:
        """A library inside it was canceled."""
        raise asyncio.CancelledError

    events, _ = sink()
    results: dict[str, ToolResult] = {}
    await ToolExecutor(by_name([odd])).run([ToolCall("c", "odd", {})], CALLER, events, results, {"c": ""})
    assert results["c"].is_error


async def test_a_tool_may_raise_a_timeout_of_its_own() -> None:
    @tool
    async def asks() -> str:
        """Asks a server."""
        raise TimeoutError("the server did not answer")

    events, _ = sink()
    results: dict[str, ToolResult] = {}
    await ToolExecutor(by_name([asks])).run([ToolCall("c", "asks", {})], CALLER, events, results, {"c": ""})
    assert "the server did not answer" in results["c"].content
