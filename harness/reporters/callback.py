"""Callbacks instead of events, for people who want to override the few methods that they need."""

from typing import assert_never

from harness.approval import Approval
from harness.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    MessageRetracted,
    ModelDelta,
    ModelEnded,
    ModelReasoning,
    ModelRetrying,
    ModelStarted,
    RunEnded,
    RunStarted,
    StepTaken,
    TaskStateChanged,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    UsageReported,
)
from harness.messages import ToolCall, ToolResult


class CallbackReporter:
    """Turns the events of one task into calls of async methods; each does nothing until a subclass overrides it.

    The text of a model turn comes in one of two ways, never in both:

    - A subclass that overrides `on_text_delta` streams: `on_text_delta` for each piece, then `on_text_complete`.
    - Any other gets the whole text of the turn at its end, by `on_message`.

    Turns without text call none of them. When a run ends in the middle of a turn, there is no `on_text_complete`, and
    `on_message` gets what was written until then; `on_end` follows and says how the run ended. One reporter shows one
    task at a time. Contract of each callback: as that of `Reporter.emit`.
    """

    # On the class, so that a subclass with an `__init__` of its own need not call this one's.
    _streamed = False
    _pieces: list[str] | None = None

    async def on_thinking(self, text: str) -> None:
        """A piece of the model's thinking."""

    async def on_text_delta(self, text: str) -> None:
        """A piece of the answer, never empty. One piece has all of it when the model does not stream."""

    async def on_text_complete(self, text: str) -> None:
        """All text of a model turn, whose pieces have been shown."""

    async def on_retracted(self) -> None:
        """What this turn has shown, text and thinking, is void: take it back, the turn is written anew.

        A subclass that streams and does not override this is never asked to: a turn that breaks ends its run.
        """

    async def on_message(self, text: str) -> None:
        """All text of a model turn, none of which was shown before."""

    async def on_tool_call(self, call: ToolCall) -> None:
        """A call begins."""

    async def on_tool_progress(self, call_id: str, text: str) -> None:
        """A running call says something."""

    async def on_tool_result(self, result: ToolResult) -> None:
        """A call is over; `result.call_id` is the id of the call."""

    async def on_approval(self, approval: Approval) -> None:
        """A call waits for a person: `Runtime.decide(approval.id, ...)` answers. Do not wait for the answer in here."""

    async def on_end(self, end: RunEnded) -> None:
        """The run is over, whatever way: `status`, `error`, all text in `answer`. The last call."""

    @property
    def can_retract(self) -> bool:
        """Text that was not shown need not be taken back; pieces that were need `on_retracted`."""
        return not self._streams or type(self).on_retracted is not CallbackReporter.on_retracted

    async def emit(self, event: Event) -> None:
        """Call what stands for the event."""
        match event:
            case ModelStarted():
                self._begin()
            case ModelReasoning(text=text):
                await self.on_thinking(text)
            case ModelDelta(text=text):
                await self._piece(text)
            case MessageRetracted():
                self._begin()
                await self.on_retracted()
            case ModelEnded(text=text):
                await self._whole(text)
            case ToolStarted(call=call):
                await self.on_tool_call(call)
            case ToolProgressed(call_id=call_id, text=text):
                await self.on_tool_progress(call_id, text)
            case ToolEnded(call_id=call_id, name=name, result=result, is_error=is_error):
                await self.on_tool_result(ToolResult(call_id, name, result, is_error))
            case ApprovalRequested(approval=approval):
                await self.on_approval(approval)
            case RunEnded():
                await self._ended(event)
            case (
                RunStarted() | StepTaken() | TaskStateChanged() | UsageReported() | ModelRetrying() | ApprovalDecided()
            ):
                pass
            case _:
                assert_never(event)

    @property
    def _streams(self) -> bool:
        return type(self).on_text_delta is not CallbackReporter.on_text_delta

    def _begin(self) -> None:
        self._pieces = None
        self._streamed = False

    async def _piece(self, text: str) -> None:
        if self._streams:
            self._streamed = True
            await self.on_text_delta(text)
        else:
            self._pieces = self._pieces or []
            self._pieces.append(text)

    async def _whole(self, text: str) -> None:
        streamed = self._streamed
        self._begin()
        if not text:
            return
        if not self._streams:
            await self.on_message(text)
            return
        if not streamed:
            await self.on_text_delta(text)
        await self.on_text_complete(text)

    async def _ended(self, end: RunEnded) -> None:
        unfinished = "".join(self._pieces or ())
        self._begin()
        if unfinished:
            await self.on_message(unfinished)
        await self.on_end(end)
