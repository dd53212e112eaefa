import json
import random
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ProviderError
from harness.messages import AssistantMessage, JsonObject, Reasoning, Text
from harness.providers.anthropic_assembler import AnthropicAssembler
from harness.providers.base import ReasoningDelta, StreamItem, TextDelta, ToolCallDelta, ToolSpec
from harness.providers.profiles import DEFAULT, ProviderProfile
from harness.providers.sse import SseReader
from harness.providers.stream import close_stream, parse_chunk
from tests.providers.anthropic_cases import (
    ALL,
    CALL,
    STOP,
    args,
    begin,
    done,
    end,
    said,
    sign,
    start,
    text,
    think,
    tool,
)
from tests.providers.test_sse import cut


def assembler(profile: ProviderProfile = DEFAULT, tools: list[ToolSpec] | None = None) -> AnthropicAssembler:
    numbers = count(1)
    return AnthropicAssembler(profile, lambda: f"id-{next(numbers)}", tools=tools or ())


def assemble(
    *events: JsonObject, profile: ProviderProfile = DEFAULT, tools: list[ToolSpec] | None = None
) -> tuple[AssistantMessage, list[StreamItem]]:
    folding = assembler(profile, tools)
    items = [item for event in events for item in folding.feed(event)]
    items += folding.flush()
    return folding.finish(done=False), items


def read(body: bytes, places: list[int]) -> tuple[str, str, object]:
    """What a reader sees of a body that arrives in these pieces: text, names of calls, and the end."""
    reader, folding = SseReader(), assembler()
    shown: list[StreamItem] = []
    try:
        for piece in cut(body, places):
            for payload in reader.feed(piece):
                shown += folding.feed(parse_chunk(payload, folding))
                if folding.error is not None:
                    raise folding.error
        shown += close_stream(reader, folding, url_setting="URL")
        end_of_it: object = folding.finish(done=reader.done or reader.body is not None)
    except ProviderError as error:
        end_of_it = error.kind
    texts = "".join(item.text for item in shown if isinstance(item, TextDelta))
    return texts, "".join(getattr(item, "name", "") for item in shown), end_of_it


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(ALL)), st.lists(st.integers(0, 10_000), max_size=20))
def test_any_rechunking_yields_the_same_message(name: str, places: list[int]) -> None:
    body, _ = ALL[name]
    assert read(body, places) == read(body, [])


JSON = st.dictionaries(st.text(max_size=4), st.one_of(st.integers(), st.text(max_size=8), st.booleans()), max_size=4)
SAYING = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<["), max_size=12)
BLOCK = st.one_of(
    st.tuples(st.just("text"), SAYING),
    st.tuples(st.just("thinking"), SAYING),
    st.tuples(st.sampled_from(["f", "g"]), JSON),
    st.tuples(st.just("server_tool_use"), JSON),
)


def pieces(whole: str, rng: random.Random) -> list[str]:
    places = sorted(rng.randrange(len(whole) + 1) for _ in range(rng.randrange(4)))
    return [whole[start:stop] for start, stop in pairwise([0, *places, len(whole)])]


def written(index: int, kind: str, content: Any, rng: random.Random, *, same_id: bool) -> list[dict[str, Any]]:
    """One block as a server writes it; what it may leave out is sometimes left out."""
    optional = {"index": index} if rng.random() < 0.7 else {}
    match kind:
        case "text":
            first, body = begin(index, "text", **({"text": ""} if optional else {})), content
            rest = [text(piece, index) for piece in pieces(body, rng)]
        case "thinking":
            first = begin(index, "thinking", **({"thinking": "", "signature": ""} if optional else {}))
            rest = [*(think(piece, index) for piece in pieces(content, rng)), sign(f"sig{index}", index)]
        case _:
            ident = "same" if same_id else f"id{index}"
            fields = {"id": ident, "name": kind, **({"input": {}} if optional else {})}
            first = begin(index, kind if kind == "server_tool_use" else "tool_use", **fields)
            rest = [args(piece, index) for piece in pieces(json.dumps(content), rng)]
    return [first, *rest, *([done(index)] if optional else [])]


def interleaved(queues: list[list[dict[str, Any]]], rng: random.Random) -> list[dict[str, Any]]:
    """Blocks begin in order; apart from that their events may mix."""
    events: list[dict[str, Any]] = []
    begun = 0
    while any(queues):
        ready = [queue for queue in queues[: begun + 1] if queue]
        queue = rng.choice(ready)
        begun += queue is queues[min(begun, len(queues) - 1)] and queue[0]["type"] == "content_block_start"
        events.append(queue.pop(0))
        if rng.random() < 0.1:
            events.append({"type": "ping"})
    return events


@settings(max_examples=150, deadline=None)
@given(st.lists(BLOCK, min_size=1, max_size=5), st.booleans(), st.randoms(use_true_random=False))
def test_well_formed_blocks_in_any_interleaving(
    blocks: list[tuple[str, Any]], same_id: bool, rng: random.Random
) -> None:
    indexes = sorted(rng.sample(range(20), len(blocks)))
    queues = [written(at, *block, rng, same_id=same_id) for at, block in zip(indexes, blocks, strict=True)]
    events = [*([start()] if rng.random() < 0.8 else []), *interleaved(queues, rng), end(), STOP]
    wanted_calls = [(kind, content) for kind, content in blocks if kind in {"f", "g"}]
    wanted_text = "".join(content for kind, content in blocks if kind == "text")
    if not wanted_calls and not wanted_text.strip():
        with pytest.raises(ProviderError) as caught:
            assemble(*events)
        assert caught.value.kind == "empty"
        return
    message, items = assemble(*events)
    assert [(call.name, call.arguments) for call in message.tool_calls] == wanted_calls
    assert [call.id for call in message.tool_calls] == [f"id-{n + 1}" for n in range(len(wanted_calls))]
    assert sorted(message.text) == sorted(wanted_text)
    assert "".join(item.text for item in items if isinstance(item, TextDelta)) == message.text
    details = [block for part in message.parts if isinstance(part, Reasoning) for block in part.details]
    assert [(block["thinking"], block["signature"]) for block in details] == [
        (content, f"sig{at}") for at, (kind, content) in zip(indexes, blocks, strict=True) if kind == "thinking"
    ]


# Sampled, not built: what matters is each type in each place.
ANYTHING = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        7,
        10**400,
        1.5,
        float("nan"),
        float("inf"),
        "",
        "x",
        "\ud83d",
        [],
        ["x"],
        [{}],
        {},
        {"type": "x"},
    ]
)
FIELDS = st.dictionaries(
    st.sampled_from(
        ["type", "text", "thinking", "signature", "data", "id", "name", "input", "partial_json", "stop_reason", "usage"]
    ),
    ANYTHING
    | st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use", "text_delta", "thinking_delta"])
    | st.sampled_from(["input_json_delta", "signature_delta", "refusal", "max_tokens"])
    | st.dictionaries(st.sampled_from(["input_tokens", "output_tokens"]), ANYTHING),
)
TYPES = st.sampled_from(
    ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message"]
)
EVENT = st.fixed_dictionaries(
    {"type": TYPES | st.sampled_from(["message_stop", "error", "ping", "other"]) | ANYTHING},
    optional={
        "index": st.integers(0, 2) | ANYTHING,
        "content_block": FIELDS | ANYTHING,
        "delta": FIELDS | ANYTHING,
        "message": FIELDS | ANYTHING,
        "content": st.lists(FIELDS | ANYTHING, max_size=3) | ANYTHING,
        "usage": ANYTHING | FIELDS,
        "error": ANYTHING | FIELDS,
        "base_resp": ANYTHING,
    },
)


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENT, max_size=6), st.booleans())
def test_no_event_is_too_strange(events: list[dict[str, Any]], stopped: bool) -> None:
    try:
        message, items = assemble(*events, *([STOP] if stopped else []))
    except ProviderError:
        return  # one clear error; any other exception fails the test
    assert message.text.strip() or message.tool_calls
    assert message.text == "".join(item.text for item in items if isinstance(item, TextDelta))


@pytest.mark.parametrize("kept", range(len(CALL) + 4))
def test_a_stream_that_ends_too_early_never_makes_a_call(kept: int) -> None:
    events = [start(), *said("Hi"), *CALL, end("tool_use")]
    folding = assembler()
    for event in events[:kept]:
        folding.feed(event)
    folding.flush()
    with pytest.raises(ProviderError) as caught:
        folding.finish(done=True)
    assert caught.value.kind == ("truncated" if kept else "empty")


def test_a_call_is_announced_once_and_its_arguments_are_shown_as_they_come() -> None:
    _, items = assemble(start(), tool(0, "x", "f"), tool(1, "y", "g", {"b": 2}), args('{"a"'), args(": 1}"), STOP)
    calls = [item for item in items if isinstance(item, ToolCallDelta)]
    assert calls == [
        ToolCallDelta(0, "f", ""),
        ToolCallDelta(1, "g", '{"b": 2}'),
        ToolCallDelta(0, "", '{"a"'),
        ToolCallDelta(0, "", ": 1}"),
    ]


def test_text_and_thinking_keep_their_order() -> None:
    message, items = assemble(start(), think("a", 0), text("b", 1), think("c", 2), text("d", 3), STOP)
    assert [part.text for part in message.parts if isinstance(part, Text | Reasoning)] == ["a", "b", "c", "d"]
    assert [item.text for item in items if isinstance(item, TextDelta | ReasoningDelta)] == ["a", "b", "c", "d"]


def test_a_signed_thought_is_closed_by_the_next_block_at_its_index() -> None:
    message, _ = assemble(start(), begin(0, "thinking"), think("a"), sign("s"), *said("Hi"), think("b"), STOP)
    first = {"type": "thinking", "thinking": "a", "signature": "s"}
    details = [block for part in message.parts if isinstance(part, Reasoning) for block in part.details]
    assert details == [first, {"type": "thinking", "thinking": "b"}]


def test_nothing_is_read_behind_the_end() -> None:
    folding = assembler()
    for event in (start(), *said("Hi"), STOP):
        folding.feed(event)
    assert folding.is_over
    assert folding.feed(text(" there")) == folding.feed(tool(1, "x", "f")) == []
    assert folding.finish(done=False).parts == (Text("Hi"),)


def test_the_profile_translates_reasons() -> None:
    profile = ProviderProfile(finish_reason_map={"finito": "max_tokens"})
    assert assemble(*said("Hi"), end("finito"), STOP, profile=profile)[0].finish_reason == "length"


def test_the_profile_may_leave_tags_and_markup_alone() -> None:
    profile = ProviderProfile(think_tags="off", text_tool_markup="pass")
    message, _ = assemble(*said("<think>a</think><tool_call>"), STOP, profile=profile)
    assert message.text == "<think>a</think><tool_call>"


def test_calls_in_the_text_are_made_where_the_profile_wants_that() -> None:
    offered = [ToolSpec("f", "", {"type": "object", "properties": {"a": {"type": "integer"}}})]
    written_out = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    profile = ProviderProfile(text_tool_markup="parse")
    message, _ = assemble(*said(written_out), STOP, profile=profile, tools=offered)
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("f", {"a": 1})]


@pytest.mark.parametrize(
    "texts", [["Hi", " you"], ["<think>a", "b</think>", "Hi"], ["a <tool", " b", " [TOOL_CALLS] c"]]
)
def test_the_short_way_and_the_long_way_agree(texts: list[str]) -> None:
    short, long = assembler(), assembler()
    for piece in texts:
        assert short.feed(text(piece)) == long.feed({**text(piece), "base_resp": None})
    assert short.flush() == long.flush()
    outcomes: list[object] = []
    for folding in (short, long):
        folding.feed(STOP)
        try:
            outcomes.append(folding.finish(done=False))
        except ProviderError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]
