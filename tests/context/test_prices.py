"""What answers cost: by the model's name, and unknown where no price is set."""

from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ConfigError
from harness.messages import SummaryMessage, Usage, UserMessage
from harness.pricing import Price, price_of, priced
from harness.providers.profiles import PRESETS, profile_for
from harness.stores.codec import MESSAGE, USAGE

ANY, GPT, MINI, EXACT = (Price(input=number, output=number) for number in (1, 2, 3, 4))
PRICES = {"*": ANY, "gpt-*": GPT, "gpt-*-mini": MINI, "gpt-5": EXACT}


@pytest.mark.parametrize(
    ("model", "price"),
    [("gpt-5", EXACT), ("gpt-5-mini", MINI), ("gpt-5.1", GPT), ("GPT-5", ANY), ("", ANY), ("gpt-[x]", GPT)],
)
def test_the_price_that_names_most_of_the_model_counts(model: str, price: Price) -> None:
    for order in permutations(PRICES.items()):
        assert price_of(dict(order), model) == price


def test_a_name_is_no_pattern_unless_it_has_a_star() -> None:
    assert price_of({"gpt-?": ANY, "gpt-.": GPT, "gpt-[0-9]": MINI}, "gpt-5") is None
    assert price_of({"a.*": ANY}, "abc") is None
    assert price_of({}, "gpt-5") is None


def test_a_million_tokens_cost_what_the_price_says() -> None:
    price = Price(input=1.25, output=10)
    assert priced(Usage(2_000_000, 500_000), price).cost == pytest.approx(2.5 + 5)
    assert priced(Usage(5, 5), None) == Usage(5, 5)
    assert priced(Usage(5, 5), Price(input=0, output=0)).cost == 0


PARTS = st.lists(
    st.builds(Usage, st.integers(0, 99), st.integers(0, 99), st.booleans(), st.one_of(st.none(), st.floats(0, 9)))
)


@given(PARTS)
def test_a_sum_is_known_when_all_that_was_used_has_a_price(parts: list[Usage]) -> None:
    total = sum(parts, Usage())
    used = [part.cost for part in parts if part.total]
    if used and None in used:
        assert total.cost is None
    elif used:
        assert total.cost == pytest.approx(sum(cost for cost in used if cost is not None))


def test_a_profile_may_bring_prices_and_a_window(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('context_window = 32000\n[prices]\n"local-*" = { input = 0, output = 0 }\n')
    profile = profile_for("https://api.openai.com/v1", str(file))
    assert profile.context_window == 32_000
    assert price_of(profile.prices, "local-7b") == Price(input=0, output=0)
    assert profile.think_tags == PRESETS["openai"].think_tags


@pytest.mark.parametrize(
    "content",
    [
        "context_window = 0",
        '[prices]\n"x" = { input = 1 }',
        '[prices]\n"x" = { input = -1, output = 1 }',
        '[prices]\n"x" = { input = nan, output = 1 }',
        '[prices]\n"x" = { input = 1, output = 1, per = "hour" }',
    ],
)
def test_a_wrong_price_or_window_is_one_clear_error(tmp_path: Path, content: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(content)
    with pytest.raises(ConfigError, match="MODEL_PROFILE"):
        profile_for("https://x", str(file))


def test_no_price_is_built_in() -> None:
    assert not any(preset.prices for preset in PRESETS.values())


def test_costs_and_marks_are_stored_and_what_was_stored_before_is_still_read() -> None:
    mark = SummaryMessage("notes", 3, 5, 9, Usage(7, 1, cost=0.5))
    assert MESSAGE.decode(MESSAGE.encode(mark)) == mark
    assert USAGE.decode('{"input_tokens": 1, "output_tokens": 2, "estimated": true}') == Usage(1, 2, estimated=True)
    assert MESSAGE.decode('{"is": "summary", "text": "old"}') == SummaryMessage("old")
    assert MESSAGE.decode(MESSAGE.encode(UserMessage("x"))) == UserMessage("x")
