"""What is stored can be read again, by this code and by what comes after it."""

import contextlib
import string
from typing import Any, get_args

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.admission import Origin, RunInput
from harness.approval import Approval, Grant
from harness.errors import StoreError
from harness.events import Event, RunError
from harness.messages import AssistantMessage, JsonObject, Message, Reasoning, Text, ToolCall, Usage, UserMessage
from harness.stores import codec
from harness.stores.base import ParkedRun
from harness.stores.codec import Codec
from harness.testing.store_suite import a_parked_run, every_kind_of_message

TEXT = st.text(st.characters(codec="utf-8"))
FLOATS = st.floats(allow_nan=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(2**63 - 2, 2**80) | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)
COUNTS = st.integers(0, 2**63 - 1)

for hint, strategy in ((str, TEXT), (float, st.floats(allow_nan=False, allow_infinity=False)), (int, COUNTS)):
    st.register_type_strategy(hint, strategy)
st.register_type_strategy(
    ToolCall, st.builds(ToolCall, TEXT, TEXT, st.none() | OBJECTS, TEXT, TEXT, st.none() | OBJECTS)
)
st.register_type_strategy(Reasoning, st.builds(Reasoning, TEXT, TEXT, st.lists(OBJECTS, max_size=2).map(tuple)))
st.register_type_strategy(Origin, st.builds(Origin, TEXT, TEXT, TEXT, TEXT, st.dictionaries(TEXT, TEXT, max_size=2)))
for cls in (Approval, Grant):
    st.register_type_strategy(cls, st.builds(cls, arguments=OBJECTS))

RECORDS: list[tuple[Codec[Any], Any]] = [
    *((codec.MESSAGE, kind) for kind in get_args(Message)),
    *((codec.EVENT, kind) for kind in get_args(Event)),
    (codec.CALL, ToolCall),
    (codec.APPROVAL, Approval),
    (codec.GRANT, Grant),
    (codec.RUN_INPUT, RunInput),
    (codec.PARKED_RUN, ParkedRun),
    (codec.USAGE, Usage),
    (codec.RUN_ERROR, RunError),
]


@pytest.mark.parametrize(("kept", "kind"), RECORDS, ids=lambda value: getattr(value, "__name__", ""))
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_every_record_comes_back_exactly(kept: Codec[Any], kind: type, data: st.DataObject) -> None:
    record = data.draw(st.from_type(kind))
    text = kept.encode(record)
    assert kept.decode(text) == record
    assert "\x00" not in text, "PostgreSQL has no zero character"


@settings(deadline=None)
@given(OBJECTS)
def test_arguments_keep_the_type_of_every_number(arguments: JsonObject) -> None:
    call = ToolCall("c", "tool", arguments)
    # repr tells 1 from 1.0 and from True, and 0.0 from -0.0.
    assert repr(codec.CALL.decode(codec.CALL.encode(call)).arguments) == repr(arguments)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=[])))
def test_half_a_character_is_never_stored(text: str) -> None:
    stored = codec.MESSAGE.encode(UserMessage(text))
    stored.encode()
    back = codec.MESSAGE.decode(stored)
    assert isinstance(back, UserMessage)
    assert back.text == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def test_half_a_character_deep_in_the_arguments() -> None:
    call = ToolCall("c", "tool", {"a": ["\ud83d", {"\ude00": 1}], "n": 10**30})
    assert codec.CALL.decode(codec.CALL.encode(call)).arguments == {"a": ["\ufffd", {"\ufffd": 1}], "n": 10**30}


@pytest.mark.parametrize(
    "arguments", [{"a": {1, 2}}, {"a": object()}, {"a": 10**5000}], ids=["a set", "an object", "a very long number"]
)
def test_what_json_cannot_say_is_refused(arguments: JsonObject) -> None:
    with pytest.raises(StoreError, match="ToolCall cannot be stored"):
        codec.CALL.encode(ToolCall("c", "tool", arguments))


def test_endless_nesting_is_refused() -> None:
    nested: dict[str, Any] = {}
    for _ in range(100_000):
        nested = {"a": nested}
    with pytest.raises(StoreError, match="ToolCall cannot be stored"):
        codec.CALL.encode(ToolCall("c", "tool", nested))
    while nested:
        nested = nested.popitem()[1]  # freed link by link: Python frees a chain recursively


def test_a_record_of_newer_code_is_refused() -> None:
    text = codec.MESSAGE.encode(UserMessage("hello"))
    with pytest.raises(StoreError, match="upgrade the program"):
        codec.MESSAGE.decode(text, codec.RECORD_VERSION + 1)


def test_a_field_that_this_code_does_not_know_is_passed_over_and_a_missing_one_has_its_default() -> None:
    assert codec.MESSAGE.decode('{"is":"user","text":"hello","mood":"good"}') == UserMessage("hello")


@pytest.mark.parametrize(
    "text",
    [
        '{"is":"user"}',
        '{"is":"nobody","text":"x"}',
        '{"text":"x"}',
        '{"is":"user","text":7}',
        '{"is":"assistant","state":"unheard-of"}',
        '{"is":"assistant","parts":[{"is":"call","id":"c","name":"t","arguments":[]}]}',
        '{"is":"user","text":"x"',
        "[]",
        "null",
        "",
    ],
)
def test_a_damaged_record_is_named_as_such(text: str) -> None:
    with pytest.raises(StoreError, match="damaged"):
        codec.MESSAGE.decode(text)


@settings(deadline=None)
@given(st.text(string.printable))
def test_nothing_but_a_store_error_comes_of_any_text(text: str) -> None:
    for kept, _ in RECORDS:
        with contextlib.suppress(StoreError):
            kept.decode(text)


STORED_IN_THE_PAST = {
    "message": '{"is":"assistant","parts":[{"is":"reasoning","text":"hm","field":"reasoning","details":[{"a":1}]},'
    '{"is":"text","text":"Sure","refusal":false},{"is":"call","id":"c","name":"shell","arguments":{"n":1},'
    '"raw_arguments":"{}","provider_id":"p","provider_data":null}],"state":"complete","finish_reason":"tool_calls",'
    '"usage":{"input_tokens":1,"output_tokens":2,"estimated":true}}',
    "event": '{"is":"task:state","task_id":"t","seq":3,"at":1.5,"from_":null,"to":"queued","reason":"","position":1}',
}


def holds(new: Any, old: Any) -> bool:
    """Whether the new form says all that the old one said; it may say more."""
    match old:
        case dict():
            return all(name in new and holds(new[name], value) for name, value in old.items())
        case list():
            return len(new) == len(old) and all(map(holds, new, old))
        case _:
            return new == old


def test_what_the_first_version_stored_can_be_read() -> None:
    """A renamed field or tag breaks this: give the new name a new RECORD_VERSION and read the old one."""
    message = codec.MESSAGE.decode(STORED_IN_THE_PAST["message"], 1)
    call = ToolCall("c", "shell", {"n": 1}, provider_id="p")
    parts = (Reasoning("hm", "reasoning", ({"a": 1},)), Text("Sure"), call)
    assert message == AssistantMessage(parts, "complete", "tool_calls", Usage(1, 2, estimated=True))
    assert holds(orjson.loads(codec.MESSAGE.encode(message)), orjson.loads(STORED_IN_THE_PAST["message"]))
    event = codec.EVENT.decode(STORED_IN_THE_PAST["event"], 1)
    assert holds(orjson.loads(codec.EVENT.encode(event)), orjson.loads(STORED_IN_THE_PAST["event"]))
    kinds = {orjson.loads(codec.MESSAGE.encode(message))["is"] for message in every_kind_of_message()}
    assert kinds == {"summary", "user", "assistant", "result"}
    assert codec.PARKED_RUN.decode(codec.PARKED_RUN.encode(a_parked_run())) == a_parked_run()
