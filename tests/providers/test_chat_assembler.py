import json
import random
from contextlib import suppress
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ProviderError
from harness.messages import AssistantMessage, Reasoning
from harness.providers.base import StreamItem, TextDelta, ToolCallDelta
from harness.providers.chat_assembler import ChatAssembler
from harness.providers.profiles import DEFAULT, ProviderProfile
from harness.providers.sse import SseReader
from harness.providers.stream import close_stream, parse_chunk
from tests.providers.cases import ALL
from tests.providers.test_sse import cut
from tests.providers.wire import call, calls, delta, say, usage


def assembler(profile: ProviderProfile = DEFAULT) -> ChatAssembler:
    numbers = count(1)
    return ChatAssembler(profile, lambda: f"id-{next(numbers)}")


def assemble(
    *chunks: dict[str, Any], profile: ProviderProfile = DEFAULT, done: bool = True
) -> tuple[AssistantMessage, list[StreamItem]]:
    folding = assembler(profile)
    items = [item for chunk in chunks for item in folding.feed(chunk)]
    items += folding.flush()
    return folding.finish(done=done), items


def read(body: bytes, places: list[int]) -> tuple[str, str, object]:
    """What a reader sees of a body that arrives in these pieces: text, reasoning, and the end."""
    reader, folding = SseReader(), assembler()
    shown: list[StreamItem] = []
    try:
        for piece in cut(body, places):
            for payload in reader.feed(piece):
                shown += folding.feed(parse_chunk(payload, folding))
                if folding.error is not None:
                    raise folding.error
        shown += close_stream(reader, folding, url_setting="URL")
        end: object = folding.finish(done=reader.done or reader.body is not None)
    except ProviderError as error:
        end = error.kind
    texts = "".join(item.text for item in shown if isinstance(item, TextDelta))
    return texts, "".join(getattr(item, "name", "") for item in shown), end


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(ALL)), st.lists(st.integers(0, 10_000), max_size=20))
def test_any_rechunking_yields_the_same_message(name: str, places: list[int]) -> None:
    body, _ = ALL[name]
    assert read(body, places) == read(body, [])


# How a server writes one fragment: (number of the call, its id, its name, is it the first fragment) -> entry.
INTERLEAVED = {
    "index, id and name first": lambda i, ident, name, first: call(i, first and ident, first and name),
    "index, id in each chunk": lambda i, ident, name, first: call(i, ident, first and name),
    "index, id and name in each chunk": lambda i, ident, name, first: call(i, ident, name),
    "index, empty id and name later": lambda i, ident, name, first: call(i, ident if first else "", first and name),
    "index without id": lambda i, ident, name, first: call(i, None, first and name),
    "index from 1 with holes": lambda i, ident, name, first: call(3 * i + 1, ident, first and name),
}
SEQUENTIAL = {
    "id without index": lambda i, ident, name, first: call(None, ident, first and name),
    "id and name without index": lambda i, ident, name, first: call(None, ident, name),
    "id, index always 0": lambda i, ident, name, first: call(0, ident, first and name),
    "neither, one after another": lambda i, ident, name, first: call(None, None, first and name),
    "index always 0, id first": lambda i, ident, name, first: call(0, first and ident, first and name),
}
JSON = st.dictionaries(st.text(max_size=4), st.one_of(st.integers(), st.text(max_size=8), st.booleans()), max_size=4)


def fragments(arguments: dict[str, Any], rng: random.Random) -> list[str]:
    """The call begins with its head, as in every known server; the arguments follow in any pieces."""
    text = json.dumps(arguments)
    places = sorted(rng.randrange(1, len(text)) for _ in range(rng.randrange(4)))
    edges = [0, *places, len(text)]
    pieces = [text[start:end] for start, end in pairwise(edges) if start < end]
    return pieces if rng.random() < 0.5 else ["", *pieces]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(INTERLEAVED | SEQUENTIAL)),
    st.lists(st.tuples(st.sampled_from(["f", "g", "h"]), JSON), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_well_formed_calls_under_every_style(
    style: str, wanted: list[tuple[str, dict[str, Any]]], rng: random.Random
) -> None:
    entry = (INTERLEAVED | SEQUENTIAL)[style]
    queues = [list(enumerate(fragments(arguments, rng))) for _, arguments in wanted]
    chunks: list[dict[str, Any]] = []
    open_calls: list[int] = []
    waiting = list(range(len(wanted)))
    while waiting or open_calls:
        # Calls begin in order; a server without indexes of its own finishes one before the next.
        if waiting and (not open_calls or (style in INTERLEAVED and rng.random() < 0.4)):
            open_calls.append(waiting.pop(0))
            number = open_calls[-1]
        else:
            number = rng.choice(open_calls)
        position, piece = queues[number].pop(0)
        made = entry(number, f"id{number}", wanted[number][0], position == 0 or None)
        made.setdefault("function", {})["arguments"] = piece
        chunks.append(calls(made))
        if not queues[number]:
            open_calls.remove(number)
    message, _ = assemble(*chunks, delta("tool_calls"))
    assert [(made.name, made.arguments) for made in message.tool_calls] == wanted
    assert [made.id for made in message.tool_calls] == [f"id-{n}" for n in range(1, len(wanted) + 1)]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)
ENTRY = st.dictionaries(
    st.sampled_from(["index", "id", "function", "type", "x"]),
    ANYTHING | st.dictionaries(st.sampled_from(["name", "arguments"]), ANYTHING),
)
DELTA = st.dictionaries(
    st.sampled_from(["content", "role", "reasoning_content", "reasoning_details", "refusal", "function_call"]), ANYTHING
) | st.builds(lambda entries: {"tool_calls": entries}, st.lists(ENTRY | ANYTHING, max_size=3))
CHOICE = st.fixed_dictionaries({}, optional={"index": ANYTHING, "delta": DELTA | ANYTHING, "finish_reason": ANYTHING})
CHUNK = st.dictionaries(
    st.sampled_from(["error", "usage", "base_resp", "object", "message", "code", "detail"]), ANYTHING
) | (st.builds(lambda choices: {"choices": choices}, st.lists(CHOICE | ANYTHING, max_size=2) | ANYTHING))


@settings(max_examples=150, deadline=None)
@given(st.lists(CHUNK, max_size=6), st.booleans())
def test_no_chunk_is_too_strange(chunks: list[dict[str, Any]], done: bool) -> None:
    with suppress(ProviderError):  # one clear error; any other exception fails the test
        assemble(*chunks, done=done)


def test_calls_are_announced_once_and_arguments_shown_as_they_come() -> None:
    _, items = assemble(
        calls(call(0, "x")), calls(call(0, None, "f", '{"a"')), calls(call(0, None, "f", ": 1}")), delta("tool_calls")
    )
    assert items == [ToolCallDelta(0, "f", '{"a"'), ToolCallDelta(0, "", ": 1}")]


def test_cumulative_chunks_yield_what_is_new() -> None:
    profile = ProviderProfile(cumulative=True)
    message, items = assemble(say("He"), say("Hello"), say("Hello"), say("Hello you"), delta("stop"), profile=profile)
    assert message.text == "Hello you"
    assert [item.text for item in items if isinstance(item, TextDelta)] == ["He", "llo", " you"]


def test_content_that_begins_inside_the_think_block() -> None:
    message, _ = assemble(say("hm</think>Hi"), delta("stop"), profile=ProviderProfile(think_tags="open"))
    assert message.text == "Hi"
    assert message.parts[0] == Reasoning("hm", "<think>")


def test_the_profile_may_leave_tags_and_markup_alone() -> None:
    profile = ProviderProfile(think_tags="off", text_tool_markup="pass")
    message, _ = assemble(say("<think>a</think><tool_call>"), delta("stop"), profile=profile)
    assert message.text == "<think>a</think><tool_call>"


def test_the_profile_translates_reasons() -> None:
    profile = ProviderProfile(finish_reason_map={"finito": "content_filter"})
    with pytest.raises(ProviderError) as caught:
        assemble(say("Hi", "finito"), profile=profile)
    assert caught.value.kind == "content_filter"


def test_usage_inside_the_choice() -> None:
    chunk = delta("stop")
    chunk["choices"][0]["usage"] = {"prompt_tokens": 5, "completion_tokens": 6}
    message, _ = assemble(say("Hi"), chunk, usage(None, None))
    assert (message.usage.input_tokens, message.usage.output_tokens) == (5, 6)


@pytest.mark.parametrize(
    "texts", [["Hi", " you"], ["<think>a", "b</think>", "Hi"], ["a <tool", " b", " [TOOL_CALLS] c"]]
)
def test_the_short_way_and_the_long_way_agree(texts: list[str]) -> None:
    short, long = assembler(), assembler()
    for text in texts:
        assert short.feed(delta(content=text)) == long.feed(delta(content=text, role="assistant", refusal=None))
    assert short.flush() == long.flush()
    outcomes: list[object] = []
    for folding in (short, long):
        try:
            outcomes.append(folding.finish(done=True))
        except ProviderError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
