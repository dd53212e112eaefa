"""What a conversation consists of, in words of no particular model vendor.

All values are immutable: a session that was loaded never changes under its reader. The stored log keeps what really
happened, raw; `harness.history` makes the repaired copy that a model may be sent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model response or of a whole run. `estimated`: the server named no figures.

    `cost`: what they cost, in the currency of the prices that were set; None when no price is known.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False
    cost: float | None = None

    @property
    def total(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.estimated or other.estimated,
            _joint_cost(self, other),
        )


def _joint_cost(one: Usage, other: Usage) -> float | None:
    # Nothing used costs nothing, so that a sum may begin with `Usage()`; one part without a price leaves it unknown.
    if not one.total or not other.total:
        return other.cost if not one.total else one.cost
    return None if one.cost is None or other.cost is None else one.cost + other.cost


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What a person asked. `speaker` names them where several people talk in one conversation."""

    text: str
    speaker: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the model's answer. `refusal`: the model declined, in its own words."""

    text: str
    refusal: bool = False


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The model's thinking. `field` is the wire field it came in, because some servers want it back in that one."""

    text: str
    field: str = ""
    details: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call that the model asks for.

    `id` is ours and unique in the session; `provider_id` is what the model's server called it ("" when it sent none)
    and goes back unchanged. `arguments` is the parsed object, or None when the text in `raw_arguments` is not a JSON
    object: such a call is malformed and never reaches a tool. `provider_data` is opaque and goes back with the call.
    """

    id: str
    name: str
    arguments: JsonObject | None
    raw_arguments: str = "{}"
    provider_id: str = ""
    provider_data: JsonObject | None = None

    @property
    def is_malformed(self) -> bool:
        """True when the arguments are not one JSON object."""
        return self.arguments is None


Part = Text | Reasoning | ToolCall
_CHARS_PER_TOKEN = 4


def estimated_tokens(characters: int) -> int:
    """Tokens that a text of so many characters makes, roughly: for where a server names no figures."""
    return -(-characters // _CHARS_PER_TOKEN)


MessageState = Literal["complete", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """One answer of the model, its parts in the order they came.

    `finish_reason` is the server's word for why it stopped ("" when it said nothing). A message that is not
    `complete` holds what had arrived when the run was canceled (`interrupted`) or broke (`failed`).
    """

    parts: tuple[Part, ...] = ()
    state: MessageState = "complete"
    finish_reason: str = ""
    usage: Usage = field(default_factory=Usage)

    @property
    def text(self) -> str:
        """The answer as shown to a person: all text parts joined."""
        return "".join([part.text for part in self.parts if isinstance(part, Text)])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the model asks for, in its order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of one call; `call_id` is the call's own `id`. Errors are results too: the model is told."""

    call_id: str
    name: str
    content: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class SummaryMessage:
    """What came before, in short.

    A plain one, with neither `covers` nor `trims`, stands in its place like any message. The others are appended by
    compaction and say how the log before them is sent from here on, while it stays as it is: the first `covers`
    messages as `text` instead, and of those up to `trims` the results of tools only in short. Only the newest of them
    counts, and only at `position` in its log: where the log was cleared since, it says nothing.
    `usage`: the tokens that writing the text took.
    """

    text: str
    covers: int = 0
    trims: int = 0
    position: int = 0
    usage: Usage = field(default_factory=Usage)

    @property
    def is_mark(self) -> bool:
        """True when it says how the log before it is sent."""
        return bool(self.covers or self.trims)


Message = UserMessage | AssistantMessage | ToolResult | SummaryMessage
