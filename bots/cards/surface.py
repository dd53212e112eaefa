"""Where a card is shown. A platform implements this; the reporter drives it."""

from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from bots.cards.view import CardView

Priority = Literal["final", "state", "text"]


class CardSurface(Protocol):
    """One card of one task on one platform.

    Contract: calls are never concurrent. Each raises `bots.platform.PlatformError` for what the platform does, and
    keeps what it knows to be shown, so that the next call sends only what differs. Showing a view that is shown
    already sends nothing. A payload that was refused is not sent again; `Refused` is raised at once.

    Where cards of one chat have to wait for each other, they do it in `turn`, not in `show`: the caller chooses the
    view when its turn has come, so what goes out is never older than that.
    """

    def wait_time(self, priority: Priority) -> float:
        """Seconds until the next write of this priority fits the platform's rate limits; 0 = now."""
        ...

    def interval(self, live_cards: int) -> float:
        """Seconds between two text edits of this card when so many cards are live."""
        ...

    def turn(self, priority: Priority) -> AbstractAsyncContextManager[None]:
        """Wait until this card may be posted, and keep the others of the chat waiting inside of the block.

        Returns at once where nothing has to be posted. Raises `PlatformError` like every call. The wait may be
        canceled, and a turn need not be used: either way the next card has its turn at once. The card keeps its place
        until it has been posted: cards come in the order in which each first asked, however often one asks again.
        """
        ...

    async def show(self, view: CardView, priority: Priority) -> None:
        """Make the platform show this view: post it the first time, edit it from then on.

        Long views take several messages; the state word of a final one is written last, when everything else is there.
        Raises `RateLimited` without having sent anything further when a write does not fit the limits.
        """
        ...

    async def repost(self, view: CardView) -> None:
        """Show the view as new messages: the next rung when editing fails for good."""
        ...

    async def remove(self) -> None:
        """Delete every message of the card."""
        ...
