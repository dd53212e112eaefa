import json
import random
from contextlib import suppress
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ProviderError
from harness.messages import AssistantMessage
from harness.providers.base import ReasoningDelta, StreamItem, TextDelta, ToolSpec
from harness.providers.profiles import DEFAULT, ProviderProfile
from harness.providers.responses_assembler import ResponsesAssembler
from harness.providers.sse import SseReader
from harness.providers.stream import close_stream, parse_chunk
from tests.providers.responses_cases import ALL
from tests.providers.responses_wire import CREATED, added, done, end, ev, fcall, incomplete, message, more, say, thought
from tests.providers.test_sse import cut
from tests.providers.wire import Good


def assembler(profile: ProviderProfile = DEFAULT, tools: tuple[ToolSpec, ...] = ()) -> ResponsesAssembler:
    numbers = count(1)
    return ResponsesAssembler(profile, lambda: f"id-{next(numbers)}", tools=tools)


def assemble(
    *events: dict[str, Any], profile: ProviderProfile = DEFAULT, tools: tuple[ToolSpec, ...] = ()
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
        shown += folding.flush() if folding.is_over else close_stream(reader, folding, url_setting="URL")
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


JSON = st.dictionaries(st.text(max_size=4), st.one_of(st.integers(), st.text(max_size=8), st.booleans()), max_size=4)
CALL = st.tuples(st.just("call"), st.tuples(st.sampled_from(["f", "g", "h"]), JSON))
TEXT = st.tuples(
    st.sampled_from(["message", "thought"]), st.text("ab c<é你", min_size=1, max_size=9).map(lambda t: "x" + t)
)
ITEMS = st.lists(CALL | TEXT, min_size=1, max_size=5)

# How a server names the item of an event: (number of the item) -> (its place, its id). None is absent.
INTERLEAVED = {
    "place and id": lambda i: (i, f"it_{i}"),
    "place alone": lambda i: (i, None),
    "id alone": lambda i: (None, f"it_{i}"),
    "place, one id for all": lambda i: (i, "it"),
    "one place for all, id": lambda i: (0, f"it_{i}"),
    "places with holes": lambda i: (3 * i + 1, f"it_{i}"),
}
SEQUENTIAL = {"neither": lambda i: (None, None), "one place for all": lambda i: (0, None)}


def pieces(text: str, rng: random.Random) -> list[str]:
    places = sorted(rng.randrange(len(text)) for _ in range(rng.randrange(4)))
    return [text[start:stop] for start, stop in pairwise([0, *places, len(text)]) if start < stop]


def item_events(
    number: int, kind: str, content: Any, name: tuple[int | None, str | None], rng: random.Random
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events of one item, some of the optional ones left out, and the whole item."""
    place, ident = name
    where = {"output_index": place, "item_id": ident}
    where = {key: value for key, value in where.items() if value is not None}
    if kind == "call":
        item = fcall(content[0], json.dumps(content[1]), f"call_{number}", id=ident)
        deltas = [ev("function_call_arguments.delta", delta=text, **where) for text in pieces(item["arguments"], rng)]
        last = [ev("function_call_arguments.done", arguments=item["arguments"], **where)]
    else:
        item = message(content) if kind == "message" else thought(content)
        item["id"] = ident
        sort = "output_text" if kind == "message" else "reasoning_summary_text"
        deltas = [ev(f"{sort}.delta", delta=text, **where) for text in pieces(content, rng)]
        last = [ev(f"{sort}.done", text=content, **where)]
    deltas = rng.choice([deltas, deltas, deltas[:-1], []])
    events = [added(item, number), *deltas, *rng.choice([[], last]), done(item, number)]
    for event in (events[0], events[-1]):
        event.pop("output_index")
        event |= {"output_index": place} if place is not None else {}
    return events, item


def overlapped(lanes: list[tuple[str, list[dict[str, Any]]]], rng: random.Random) -> list[dict[str, Any]]:
    """The events of all items in one order: calls overlap, texts do not, as nobody could read two at once."""
    events: list[dict[str, Any]] = []
    open_lanes: list[list[dict[str, Any]]] = []

    def some(chance: float) -> None:
        while open_lanes and rng.random() < chance:
            lane = rng.choice(open_lanes)
            events.append(lane.pop(0))
            if not lane:
                open_lanes.remove(lane)

    for kind, lane in lanes:
        if kind == "call":
            events.append(lane.pop(0))  # items begin in order
            open_lanes.append(lane)
            some(0.5)
        else:
            some(1)
            events.extend(lane)
    some(1)
    return events


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(INTERLEAVED | SEQUENTIAL)), ITEMS, st.booleans(), st.randoms(use_true_random=False))
def test_well_formed_responses_under_every_style(
    style: str, wanted: list[tuple[str, Any]], with_output: bool, rng: random.Random
) -> None:
    """Whatever optional events are left out and however calls overlap, all is there once."""
    # Two equal items without an id could as well be one that is told twice.
    wanted = [(kind, content if kind == "call" else f"{content}{n}") for n, (kind, content) in enumerate(wanted)]
    made = [
        item_events(number, kind, content, (INTERLEAVED | SEQUENTIAL)[style](number), rng)
        for number, (kind, content) in enumerate(wanted)
    ]
    lanes = [(kind if style in INTERLEAVED else "", lane) for (kind, _), (lane, _) in zip(wanted, made, strict=True)]
    tells = [content for kind, content in wanted if kind == "message"]
    thinks = [content for kind, content in wanted if kind == "thought"]
    calls = [(number, content) for number, (kind, content) in enumerate(wanted) if kind == "call"]
    if not tells and not calls:
        return
    output = [item for _, item in made] if with_output else []
    events = [CREATED, *overlapped(lanes, rng), end(*output)]
    got, items = assemble(*events, profile=ProviderProfile(think_tags="off"))
    assert got.text == "\n\n".join(tells)
    assert "".join(item.text for item in items if isinstance(item, TextDelta)) == got.text
    assert "".join(item.text for item in items if isinstance(item, ReasoningDelta)) == "\n\n".join(thinks)
    assert [(call.name, call.arguments) for call in got.tool_calls] == [content for _, content in calls]
    assert [call.provider_id for call in got.tool_calls] == [f"call_{number}" for number, _ in calls]
    assert got.finish_reason == ("tool_calls" if calls else "stop")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "message"]), inner),
    max_leaves=2,
)
PART = st.dictionaries(st.sampled_from(["type", "text", "refusal"]), ANYTHING)
ITEM = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "reasoning", "function_call", "other"]) | ANYTHING},
    optional={
        **dict.fromkeys(["id", "call_id", "name", "arguments", "status", "encrypted_content"], ANYTHING),
        **dict.fromkeys(["content", "summary"], st.lists(PART | ANYTHING, max_size=2) | ANYTHING),
    },
)
RESPONSE = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["completed", "incomplete", "failed", "cancelled", "queued"]) | ANYTHING,
        "output": st.lists(ITEM | ANYTHING, max_size=3) | ANYTHING,
        "usage": ANYTHING | st.dictionaries(st.sampled_from(["input_tokens", "output_tokens"]), ANYTHING),
        **dict.fromkeys(["error", "incomplete_details", "object"], ANYTHING),
    },
)
KINDS = [
    *(
        f"{sort}.{stage}"
        for sort in ("output_text", "refusal", "reasoning_summary_text")
        for stage in ("delta", "done")
    ),
    *("reasoning_text.delta", "function_call_arguments.delta", "function_call_arguments.done"),
    *("output_item.added", "output_item.done", "reasoning_summary_part.added", "other"),
    *("completed", "incomplete", "failed", "cancelled", "done"),
]
EVENT = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS).map(lambda kind: f"response.{kind}") | st.just("error") | ANYTHING},
    optional={
        **dict.fromkeys(["delta", "text", "refusal", "arguments", "output_index", "item_id", "error"], ANYTHING),
        "item": ITEM | ANYTHING,
        "response": RESPONSE | ANYTHING,
    },
)


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENT | RESPONSE, max_size=6))
def test_no_event_is_too_strange(events: list[dict[str, Any]]) -> None:
    with suppress(ProviderError):  # one clear error; any other exception fails the test
        got, items = assemble(*events)
        assert got.text == "".join(item.text for item in items if isinstance(item, TextDelta))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([name for name, (_, expected) in ALL.items() if isinstance(expected, Good)]), st.integers(0))
def test_a_good_body_that_breaks_off_is_never_taken_for_a_whole(name: str, place: int) -> None:
    body, _ = ALL[name]
    text, _, outcome = read(body[: place % len(body)], [])
    whole_text, _, whole = read(body, [])
    assert whole_text.startswith(text.removesuffix("\ufffd")), "half a character is shown as such"
    if isinstance(outcome, AssistantMessage):
        assert outcome == whole, "all that is missing came after the end"
    else:
        assert outcome in {"truncated", "empty", "protocol"}


def test_what_comes_with_the_end_is_not_read() -> None:
    folding = assembler()
    folding.feed(end(message("Hi")))
    assert folding.is_over
    assert folding.feed(say(" there")) == []
    assert folding.feed({"type": "error", "message": "late"}) == []
    assert folding.error is None
    assert folding.finish(done=True).text == "Hi"


@pytest.mark.parametrize(
    "texts", [["Hi", " you"], ["<think>a", "b</think>", "Hi"], ["a <tool", " b", " [TOOL_CALLS] c"]]
)
def test_the_short_way_and_the_long_way_agree(texts: list[str]) -> None:
    short, long = assembler(), assembler()
    shown: list[StreamItem] = []
    for text in texts:
        shown += short.feed(say(text))
    shown += short.feed(end())
    items = long.feed(end(message(*texts)))
    merged = ["".join(getattr(item, "text", "") for item in way) for way in (shown, items)]
    assert merged[0] == merged[1]
    outcomes: list[object] = []
    for folding in (short, long):
        folding.flush()
        try:
            outcomes.append(folding.finish(done=True))
        except ProviderError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


def test_text_alone_is_a_beginning() -> None:
    with pytest.raises(ProviderError) as caught:
        assemble(say("Hi"), profile=ProviderProfile(think_tags="off"))
    assert caught.value.kind == "truncated"


def test_the_profile_translates_reasons() -> None:
    profile = ProviderProfile(finish_reason_map={"finito": "content_filter"})
    with pytest.raises(ProviderError) as caught:
        assemble(say("Hi"), incomplete("finito"), profile=profile)
    assert caught.value.kind == "content_filter"


def test_calls_in_the_text_become_calls_where_the_profile_says_so() -> None:
    profile = ProviderProfile(text_tool_markup="parse")
    tool = ToolSpec("f", "", {"type": "object", "properties": {"a": {"type": "integer"}}})
    text = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    got, _ = assemble(say(text[:20]), say(text[20:]), end(message(text)), profile=profile, tools=(tool,))
    assert [(call.name, call.arguments) for call in got.tool_calls] == [("f", {"a": 1})]


def test_pieces_of_a_call_are_shown_before_its_end() -> None:
    folding = assembler()
    folding.feed(added(fcall()))
    (shown,) = folding.feed(more('{"a"'))
    assert getattr(shown, "arguments", "") == '{"a"'
