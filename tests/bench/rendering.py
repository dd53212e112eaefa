"""What real Slack cards add to a delta: splitting and drawing the answer so far at each edit, without the sending."""

import time
from dataclasses import dataclass
from typing import Any, cast

from bots.cards.text import strings_for
from bots.cards.view import CardView, with_text
from bots.platform import ReplyAddress
from bots.slack.card import SlackCard
from tests.bench.answers import answer_pieces

DELTAS_PER_EDIT = 45
"""1.5 seconds between two edits, at 30 deltas a second."""


@dataclass(frozen=True)
class Drawn:
    """CPU time of one run, and how often a view was drawn and a message written."""

    cpu_s: float
    deltas: int
    views: int
    writes: int


class _Client:
    """A Slack that takes everything at once and forgets it."""

    def __init__(self) -> None:
        self.writes = 0
        self.text = ""

    async def post(self, *_: Any, text: str, **__: Any) -> str:
        self.writes += 1
        self.text = text
        return f"{self.writes}.0"

    async def update(self, *_: Any, text: str, **__: Any) -> None:
        self.writes += 1
        self.text = text


async def draw(answers: int, deltas: int) -> Drawn:
    """Show so many growing answers, one after the other, each as a card of its own."""
    client = _Client()
    address = ReplyAddress("slack", "T1", "C1", "1.0", "1.0", "U1")
    pieces = [answer_pieces(number, deltas) for number in range(answers)]
    views = 0
    started = time.process_time()
    for number in range(answers):
        card = SlackCard(cast("Any", client), address, str(number), strings=strings_for("en"), model="bench")
        view = CardView(task_id=str(number))
        for start in range(0, deltas, DELTAS_PER_EDIT):
            # What `CardReporter` does with the pieces that came between two writes.
            view = with_text(view, "".join(pieces[number][start : start + DELTAS_PER_EDIT]))
            await card.show(view, "text")
            views += 1
        assert view.text == "".join(pieces[number])
    return Drawn(time.process_time() - started, answers * deltas, views, client.writes)
