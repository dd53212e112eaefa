"""What shows one task in a chat: its card, and beside it the questions that it asks."""

from bots.cards.reporter import RECALLED, CardReporter
from bots.gateway.questions import Questions
from bots.platform import ReplyAddress
from harness.events import ApprovalDecided, ApprovalRequested, Event, ModelDelta, TaskStateChanged


class AskingReporter:
    """Passes every event to the card, and those about permission to the questions.

    `remove_on_recall`: take the questions away when the request was deleted, instead of showing them as canceled. May
    be given the events of the past: a question that was asked is not asked again.
    """

    def __init__(
        self,
        card: CardReporter,
        questions: Questions,
        address: ReplyAddress,
        language: str,
        *,
        remove_on_recall: bool = False,
    ) -> None:
        self._card = card
        self._questions = questions
        self._address = address
        self._language = language
        self._remove_on_recall = remove_on_recall
        self._has_asked = False

    @property
    def can_retract(self) -> bool:
        """See `CanRetract`."""
        return self._card.can_retract

    def detach(self) -> None:
        """See `CanDetach`. Questions need no owner: what they show follows their rows."""
        self._card.detach()

    async def emit(self, event: Event) -> None:
        """See `Reporter`; returns at once."""
        await self._card.emit(event)
        if type(event) is ModelDelta:
            return
        match event:
            case ApprovalRequested(approval=approval):
                self._has_asked = True
                self._questions.ask(approval, self._address, self._language)
            case ApprovalDecided(approval_id=approval_id, task_id=task_id):
                self._questions.settle(approval_id, task_id)
            case TaskStateChanged(to=to, reason=reason, task_id=task_id) if to.is_terminal and self._has_asked:
                self._questions.settle_task(task_id, remove=self._remove_on_recall and reason == RECALLED)
            case _:
                pass
