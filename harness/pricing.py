"""What tokens cost. Pure; the prices themselves are data that whoever runs the service sets, since they change."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from harness.messages import Usage

_PER: Final = 1_000_000
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Price(BaseModel):
    """The price of a million tokens, in any one currency. Input that a server had cached counts in full."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: _Amount
    output: _Amount


def price_of(prices: Mapping[str, Price], model: str) -> Price | None:
    """The price of a model by its name; None when it has none.

    A key may hold `*`, which stands for any characters. The exact name goes first, then the key that names most of it.
    """
    if model in prices:
        return prices[model]
    fitting = [key for key in prices if "*" in key and _fits(key, model)]
    return prices[max(fitting, key=lambda key: (len(key.replace("*", "")), key))] if fitting else None


def priced(usage: Usage, price: Price | None) -> Usage:
    """The same tokens with what they cost."""
    if price is None:
        return usage
    return replace(usage, cost=(usage.input_tokens * price.input + usage.output_tokens * price.output) / _PER)


def _fits(key: str, model: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, key.split("*"))), model, re.DOTALL) is not None
