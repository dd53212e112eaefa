"""Compaction of a conversation that no longer fits: decides, asks the model for a summary, and says what to append."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from harness.context.compaction import (
    FULL,
    TRIGGER,
    Room,
    covering,
    digest,
    growth,
    recent_from,
    sent_tokens,
    trimmed,
)
from harness.context.sizes import frame_tokens, request_tokens, scale
from harness.context.summary import summary_of, summary_request, transcript_room
from harness.errors import ProviderError
from harness.history import newest_mark, prepare_history, stretch
from harness.messages import AssistantMessage, Message, SummaryMessage, Usage
from harness.providers.base import ModelRequest

log = structlog.stdlib.get_logger(__name__)

DEFAULT_WINDOW: Final = 128_000
_PAUSE: Final = 0.05
"""The share of the window that must have come since the newest mark: so a summary that fails is not asked for again
with every step."""

_HALVINGS: Final = 4

Ask = Callable[[ModelRequest], Awaitable[AssistantMessage]]
"""Asks the model out of sight; raises ProviderError."""


@dataclass(frozen=True, slots=True)
class Compactor:
    """Keeps conversations within a context window of so many tokens. Holds no state of a run."""

    window: int = DEFAULT_WINDOW

    async def compact(
        self, messages: Sequence[Message], frame: ModelRequest, ask: Ask, *, refused: bool = False
    ) -> SummaryMessage | None:
        """What to append to the log so that the next request is shorter; None when nothing has to be done, or can be.

        `frame`: what goes with every request of the run. `refused`: the server has just said that the
        request is too long, whatever the figures say. A summary that fails is done without; a cancellation passes.
        """
        size = request_tokens(messages, frame)
        if not (refused or self._is_due(messages, size)):
            return None
        # A server that refuses has a smaller window than we know of: what was sent is more than it holds.
        window = min(self.window, size) if refused else self.window
        place = _Place(window, frame_tokens(frame), scale(messages, frame))
        cheap = trimmed(messages, place.room)
        if sent_tokens(messages, cheap) <= place.room.target:
            return cheap if _changes(messages, cheap) else None
        covered = cheap.covers
        if recent_from(messages, covered, place.room.recent) <= covered:
            # Only the newest exchange is left, and it is too large: its results in short.
            least = replace(cheap, trims=len(messages))
            return least if _changes(messages, least) else None
        text, usage, place = await _summarised(messages, cheap, place, ask)
        if not text and not refused and size < self.window * FULL:
            return replace(cheap, usage=usage)
        cut = recent_from(messages, covered, place.room.recent)
        return covering(messages, cut, text or digest(messages, cut, place.room.summary), place.room, usage)

    def _is_due(self, messages: Sequence[Message], size: int) -> bool:
        if size < self.window * TRIGGER:
            return False
        return newest_mark(messages) is None or growth(messages) >= self.window * _PAUSE


@dataclass(frozen=True, slots=True)
class _Place:
    """A context window of so many tokens, as far as we know. `frame` and `scale` as in `Room.of`."""

    window: int
    frame: int
    scale: float

    @property
    def room(self) -> Room:
        return Room.of(self.window, self.frame, self.scale)


async def _summarised(
    messages: Sequence[Message], cheap: SummaryMessage, place: _Place, ask: Ask
) -> tuple[str, Usage, _Place]:
    """The model's notes on what is older than the newest exchanges, "" when there are none; and what they took.

    A server that finds even this too long is asked with half of it: the place returned is the one in which it fitted.
    """
    for _ in range(_HALVINGS):
        room = place.room
        cut = recent_from(messages, cheap.covers, room.recent)
        request = summary_request(
            cheap.text,
            stretch(messages, cheap.covers, cut, trims=cut),
            room=transcript_room(place.window, place.scale),
            summary_tokens=room.summary,
        )
        try:
            answer = await ask(request)
        except ProviderError as error:
            log.warning("a conversation could not be summed up", kind=error.kind, reason=error.message)
            if error.kind != "context_length":
                break
            place = replace(place, window=place.window // 2)
            continue
        text = summary_of(answer)
        if not text:
            log.warning("a conversation could not be summed up", kind="empty", reason="the model wrote no notes")
        return text, answer.usage, place
    return "", Usage(), place


def _changes(messages: Sequence[Message], mark: SummaryMessage) -> bool:
    return mark.is_mark and prepare_history([*messages, mark]) != prepare_history(messages)
