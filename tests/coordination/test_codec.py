import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.coordination.codec import MAX_INPUT_BYTES, InputTooLarge, decode_input, encode_input
from harness.admission import Origin, RunInput

whole = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
origins = st.builds(Origin, whole, whole, whole, whole, st.dictionaries(whole, whole, max_size=3))


@given(st.builds(RunInput, whole, whole, whole, origins))
def test_round_trip(run: RunInput) -> None:
    data = encode_input(run)
    assert decode_input(data) == run
    assert b"\n" not in data


def test_half_an_emoji_costs_only_itself() -> None:
    run = RunInput("t", "a:b:c/", "hi \ud83d there", Origin(reply_to={"k": "\udc00"}))
    assert decode_input(encode_input(run)) == RunInput("t", "a:b:c/", "hi ? there", Origin(reply_to={"k": "?"}))


def test_limit() -> None:
    overhead = len(encode_input(RunInput("t", "a:b:c/", "", Origin())))
    encode_input(RunInput("t", "a:b:c/", "x" * (MAX_INPUT_BYTES - overhead), Origin()))
    with pytest.raises(InputTooLarge, match="262145 bytes, more than 262144"):
        encode_input(RunInput("t", "a:b:c/", "x" * (MAX_INPUT_BYTES - overhead + 1), Origin()))
