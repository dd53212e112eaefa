"""Where a card is shown. A platform implements this; the reporter drives it."""

from typing import Literal, Protocol

from bots.cards.view import CardView

Priority = Literal["final", "state", "text"]


class CardSurface(Protocol):
    """One card of one task on one platform.

    Contract: calls are never concurrent. Each raises `bots.platform.PlatformError` for what the platform does, and
    keeps what it knows to be shown, so that the next call sends only what differs. Showing a view that is shown
    already sends nothing.
    """

    def wait_time(self, priority: Priority) -> float:
        """Seconds until the next write of this priority fits the platform's rate limits; 0 = now."""
        ...

    def interval(self, live_cards: int) -> float:
        """Seconds between two text edits of this card when so many cards are live."""
        ...

    async def show(self, view: CardView, priority: Priority) -> None:
        """Make the platform show this view: post it the first time, edit it from then on.

        Long views take several messages. Raises `RateLimited` without having sent anything further when a write does
        not fit the limits.
        """
        ...

    async def repost(self, view: CardView) -> None:
        """Show the view as new messages: the next rung when editing fails for good."""
        ...

    async def remove(self) -> None:
        """Delete every message of the card."""
        ...
