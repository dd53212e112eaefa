"""The whole kernel against faults that somebody else has scripted: `llmock`, a separate server, which also judges us.

Every fault ends in one clear sequence of events, and its verdict on how the client behaved is asked for at the end.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from llmock.pytest_plugin import LLMock
from llmock.testing import LLMockServer

from harness.engine import Limits
from harness.errors import ErrorKind
from harness.events import ModelRetrying, ToolEnded
from harness.messages import AssistantMessage
from harness.providers.anthropic import AnthropicProvider
from harness.providers.base import ModelProvider
from harness.providers.openai_chat import OpenAIChatProvider
from harness.providers.openai_responses import OpenAIResponsesProvider
from harness.reporters.recording import RecordingReporter
from harness.runtime import Started
from harness.status import TaskStatus
from harness.stores.memory import MemorySessionStore
from harness.task import Task
from harness.tools.base import Tool, tool
from tests.features.rig import OnlyForward, collapsed, kernel_on, the_end
from tests.terminal.rig import clean_env
from tests.warm import run_warm

KEY, MODEL = "sk-local-0123456789", "local-model"
TEXT = "One two three four five."
SHOWN = "One two "


@dataclass(frozen=True)
class Wire:
    """One protocol that both sides speak.

    `head`: how many events its stream has before the first word. `env`: what points the command at it.
    """

    base: str
    head: int
    provider: Callable[[str], ModelProvider]
    env: Callable[[str], Mapping[str, str]]


WIRES = {
    "chat": Wire(
        "openai",
        1,
        lambda url: OpenAIChatProvider(api_key=KEY, base_url=url, model=MODEL),
        lambda url: {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": url, "OPENAI_MODEL": MODEL},
    ),
    "responses": Wire(
        "openai",
        4,
        lambda url: OpenAIResponsesProvider(api_key=KEY, base_url=url, model=MODEL),
        lambda url: {
            "MODEL_PROTOCOL": "responses", "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": url, "OPENAI_MODEL": MODEL,
        },
    ),
    "anthropic": Wire(
        "anthropic",
        3,
        lambda url: AnthropicProvider(api_key=KEY, base_url=url, model=MODEL),
        lambda url: {
            "MODEL_PROTOCOL": "anthropic", "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_MODEL": MODEL,
        },
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[LLMockServer]:
    with LLMockServer() as running:
        yield running


@pytest.fixture
def mock(server: LLMockServer) -> LLMock:
    return LLMock(server).reset().tool_mode("off")


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


@asynccontextmanager
async def run(
    mock: LLMock,
    wire: Wire,
    *,
    reporter: RecordingReporter | None = None,
    tools: Sequence[Tool] = (),
    limits: Limits | None = None,
) -> AsyncIterator[tuple[Task, RecordingReporter, MemorySessionStore]]:
    """One whole run; the verdict is asked for by whoever has it, when all is closed."""
    store, reporter = MemorySessionStore(), reporter or RecordingReporter()
    provider = wire.provider(mock.base_url(wire.base))
    async with kernel_on(provider, tools=tools, limits=limits, sessions=store) as runtime:
        outcome = await runtime.run("s", "What is 2 + 3?", reporter)
        assert isinstance(outcome, Started)
        the_end(reporter.events)
        yield outcome.task, reporter, store


async def findings(mock: LLMock) -> set[str]:
    """What llmock holds against us."""
    return {finding.code for finding in (await asyncio.to_thread(mock.verdict)).findings}


def retries(reporter: RecordingReporter) -> list[tuple[int, ErrorKind]]:
    return [(event.attempt, event.reason) for event in reporter.events if isinstance(event, ModelRetrying)]


START = ["task:state", "run:start", "model:start"]
ANSWER = ["model:delta", "model:end", "usage", "step", "step"]
END = ["task:state", "run:end"]
# Only where something is to be given up: elsewhere a busy machine must not be taken for a silent model.
QUICK = Limits(first_delta_timeout_s=0.6, idle_timeout_s=0.6)
SILENT = {"the stream stalls", "a slow first word"}

Inject = Callable[[LLMock, int], object]
# What happens in the middle of the answer, after some of its events: (fault, the kind of error).
BROKEN: dict[str, tuple[Inject, ErrorKind]] = {
    "the connection is dropped": (lambda mock, after: mock.disconnect(after_chunks=after), "connection"),
    "the stream ends early": (lambda mock, after: mock.truncate(after_chunks=after), "truncated"),
    "an event is malformed": (lambda mock, after: mock.corrupt(after_chunks=after), "protocol"),
    "the stream stalls": (lambda mock, after: mock.stall(after_chunks=after, seconds=20), "timeout"),
}


@pytest.mark.parametrize("fault", BROKEN)
async def test_a_broken_answer_is_taken_back_and_asked_for_once_more(mock: LLMock, wire: Wire, fault: str) -> None:
    inject, kind = BROKEN[fault]
    inject(mock.reply(TEXT, times=None), wire.head + 2)
    async with run(mock, wire, limits=QUICK if fault in SILENT else None) as (task, reporter, store):
        assert collapsed(reporter.kinds) == [*START, "model:delta", "message:retracted", "model:retry", *ANSWER, *END]
        assert (task.status, task.result) == (TaskStatus.COMPLETED, TEXT)
        assert reporter.text == SHOWN + TEXT
        assert retries(reporter) == [(1, kind)]
        said = [message.text for message in (await store.load("s")).messages if isinstance(message, AssistantMessage)]
        assert said == [TEXT]
    # A stream of which all was sent before we hung up counts as read to its end there.
    assert await findings(mock) <= ({"malformed_chunk_ignored"} if kind == "protocol" else set())


@pytest.mark.parametrize("fault", BROKEN)
async def test_where_nothing_can_be_taken_back_the_partial_text_stays_with_the_failure(
    mock: LLMock, wire: Wire, fault: str
) -> None:
    inject, kind = BROKEN[fault]
    inject(mock.reply(TEXT, times=None), wire.head + 2)
    limits = QUICK if fault in SILENT else None
    async with run(mock, wire, reporter=OnlyForward(), limits=limits) as (task, reporter, store):
        assert collapsed(reporter.kinds) == [*START, "model:delta", "step", *END]
        assert (task.status, task.result) == (TaskStatus.FAILED, SHOWN)
        assert task.error is not None
        assert task.error.kind == kind
        [said] = [message for message in (await store.load("s")).messages if isinstance(message, AssistantMessage)]
        assert (said.text, said.state) == (SHOWN, "failed")
    # That we did not ask again is meant, and that the person was told of it is what the server cannot see.
    assert len(mock.requests) == 1
    assert await findings(mock) <= {"gave_up", "truncated_stream_accepted", "malformed_chunk_ignored"}


# What happens before the first word: (fault, the retries that it takes, how long each waits at least).
BEFORE: dict[str, tuple[Inject, list[ErrorKind], float]] = {
    "too many requests": (lambda mock, _: mock.rate_limit(times=2, retry_after=0.2), ["rate_limit"] * 2, 0.2),
    "a server error": (lambda mock, _: mock.fail(500), ["overloaded"], 0.3),
    "overloaded": (lambda mock, _: mock.fail(529), ["overloaded"], 0.3),
    "the connection is dropped": (lambda mock, head: mock.disconnect(after_chunks=head), ["connection"], 0.3),
    "the stream is empty": (lambda mock, _: mock.truncate(after_chunks=0), ["empty"], 0.3),
    "a slow first word": (lambda mock, _: mock.slow_first_token(20), ["timeout"], 0.3),
}


@pytest.mark.parametrize("fault", BEFORE)
async def test_before_the_first_word_it_is_asked_again_visibly(mock: LLMock, wire: Wire, fault: str) -> None:
    inject, kinds, wait_s = BEFORE[fault]
    inject(mock.reply(TEXT, times=None), wire.head)
    limits = QUICK if fault in SILENT else None
    async with run(mock, wire, reporter=OnlyForward(), limits=limits) as (task, reporter, _):
        assert collapsed(reporter.kinds) == [*START, *["model:retry"] * len(kinds), *ANSWER, *END]
        assert (task.status, task.result) == (TaskStatus.COMPLETED, TEXT)
        assert retries(reporter) == list(enumerate(kinds, start=1))
        assert all(event.delay_s >= wait_s for event in reporter.events if isinstance(event, ModelRetrying))
    assert await findings(mock) == set()


async def test_a_first_word_that_is_slow_but_in_time_is_nothing_special(mock: LLMock, wire: Wire) -> None:
    mock.reply(TEXT).slow_first_token(0.2)
    async with run(mock, wire) as (task, reporter, _):
        assert collapsed(reporter.kinds) == [*START, *ANSWER, *END]
        assert task.result == TEXT
    assert await findings(mock) == set()


# What does not pass: (fault, the kind of error, how often it is asked again).
LASTING: dict[str, tuple[Inject, ErrorKind, int]] = {
    "an outage": (lambda mock, _: mock.outage(), "overloaded", 1),
    "a wrong key": (lambda mock, _: mock.fail(401, times=None), "auth", 0),
    "a prompt that is too long": (lambda mock, _: mock.context_overflow(times=None), "context_length", 0),
    "an unknown model": (lambda mock, _: mock.fail(404, times=None), "bad_request", 0),
    "a wait beyond the deadline": (lambda mock, _: mock.rate_limit(times=None, retry_after=3600), "rate_limit", 0),
}


@pytest.mark.parametrize("fault", LASTING)
async def test_what_does_not_pass_ends_the_run_with_its_reason(mock: LLMock, wire: Wire, fault: str) -> None:
    inject, kind, again = LASTING[fault]
    inject(mock, wire.head)
    async with run(mock, wire, limits=Limits(model_retries=1)) as (task, reporter, store):
        assert collapsed(reporter.kinds) == [*START, *["model:retry"] * again, "step", *END]
        assert (task.status, task.result) == (TaskStatus.FAILED, "")
        assert task.error is not None
        assert task.error.kind == kind
        assert KEY not in task.error.message
        assert [type(message).__name__ for message in (await store.load("s")).messages] == ["UserMessage"]
    assert len(mock.requests) == 1 + again
    assert await findings(mock) <= {"gave_up"}


CALLED = ["model:end", "usage", "step", "tool:start", "tool:end", "step", "model:start"]


@pytest.mark.parametrize(
    ("broken", "told"), [("unknown_tool", "The tools are: add"), ("malformed_arguments", "not one JSON object")]
)
async def test_a_broken_call_never_reaches_a_tool_and_the_model_is_told(
    mock: LLMock, wire: Wire, broken: str, told: str
) -> None:
    added: list[int] = []

    @tool
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        added.append(a + b)
        return str(a + b)

    mock.call_tool("add", {"a": 2, "b": 3}).break_tool_call(broken).call_tool("add", {"a": 2, "b": 3}).reply("Five.")
    async with run(mock, wire, tools=[add]) as (task, reporter, _):
        assert collapsed(reporter.kinds) == [*START, *CALLED, *CALLED, *ANSWER, *END]
        wrong, right = [event for event in reporter.events if isinstance(event, ToolEnded)]
        assert wrong.is_error
        assert told in wrong.result
        assert (right.result, right.is_error, added) == ("5", False, [5])
        assert task.result == "Five."
    assert told in str(mock.requests[1].body), "the next request has it"
    assert await findings(mock) == set()


async def test_a_call_that_is_cut_off_does_not_run_before_it_has_come_whole(mock: LLMock, wire: Wire) -> None:
    added: list[int] = []

    @tool
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        added.append(a + b)
        return str(a + b)

    mock.call_tool("add", {"a": 2, "b": 3}, times=2).disconnect(after_chunks=wire.head + 2).reply("Five.")
    async with run(mock, wire, reporter=OnlyForward(), tools=[add]) as (task, reporter, _):
        assert collapsed(reporter.kinds) == [*START, "model:retry", *CALLED, *ANSWER, *END]
        assert (added, task.result) == ([5], "Five.")
    assert await findings(mock) == set()


# --- the same through the command ---

ONCE = {"MODEL_RETRIES": "0", "IDLE_TIMEOUT_S": "1"}
# (fault, what stands on standard output, a word of the sentence on standard error).
SHOWN_BY_COMMAND: dict[str, tuple[Inject, str, str]] = {
    "dropped": (lambda mock, after: mock.disconnect(after_chunks=after), f"{SHOWN}\n", "connection"),
    "cut": (lambda mock, after: mock.truncate(after_chunks=after), f"{SHOWN}\n", "broke off"),
    "malformed": (lambda mock, after: mock.corrupt(after_chunks=after), f"{SHOWN}\n", "not valid JSON"),
    "stalled": (lambda mock, after: mock.stall(after_chunks=after, seconds=20), f"{SHOWN}\n", "went silent"),
    "limited": (lambda mock, _: mock.rate_limit(retry_after=9), "", "429"),
    "down": (lambda mock, _: mock.outage(status=500), "", "500"),
    "too long": (lambda mock, _: mock.context_overflow(), "", "context length"),
}


# A process each: every fault with one protocol, and with the others the one that only the protocol can tell.
PROCESSES = [("chat", fault) for fault in SHOWN_BY_COMMAND] + [(name, "cut") for name in WIRES if name != "chat"]


@pytest.mark.parametrize(("name", "fault"), PROCESSES)
async def test_the_command_fails_with_one_sentence(mock: LLMock, name: str, fault: str, tmp_path: Path) -> None:
    wire, (inject, out, says) = WIRES[name], SHOWN_BY_COMMAND[fault]
    inject(mock.reply(TEXT, times=None), wire.head + 2)
    env = clean_env(**wire.env(mock.base_url(wire.base)), **ONCE)
    done = await asyncio.to_thread(run_warm, "harness", "run", "What is 2 + 3?", env=env, folder=tmp_path)
    assert (done.code, done.out) == (1, out)
    assert done.errors.count("\n") == 1, done.errors
    assert done.errors.startswith("[failed]: ")
    assert says in done.errors
    assert KEY not in done.errors
    assert len(mock.requests) == 1
    assert await findings(mock) <= {"gave_up", "truncated_stream_accepted", "malformed_chunk_ignored"}
