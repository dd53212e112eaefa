"""The work on one run: from the lease to the last model turn, or to a question, or to whatever ends it early.

It neither begins nor ends a task: it says how the work ended, and the runtime does the rest.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from harness.admission import Admission, Lease, Origin
from harness.approval import Approval
from harness.engine import Engine
from harness.errors import AdmissionUnavailable, LimitExceeded, ProviderError, StaleFence, StoreError
from harness.events import RunError
from harness.live import LiveTask
from harness.messages import AssistantMessage, Message, Text, ToolResult, UserMessage
from harness.parking import state_of, verdicts
from harness.run_state import RunState
from harness.status import StopReason, TaskStatus
from harness.stores.base import ParkedRun, Records, SessionStore
from harness.stores.records import CallStep
from harness.stores.run_log import RunLog
from harness.task_registry import TaskRegistry
from harness.tools.executor import CUT_OFF, NEVER_RAN, Caller

log = structlog.stdlib.get_logger(__name__)

_LIMITS = {"max_turns": StopReason.MAX_TURNS, "budget": StopReason.BUDGET}


@dataclass(frozen=True, slots=True)
class WorkEnd:
    """How the work on a run ended. `state` is None when it never began; with `asked` it only waits for a person.

    `elapsed_s`: the running time so far, that from before a question included.
    """

    state: RunState | None
    stop: StopReason
    error: RunError | None
    asked: Sequence[Approval]
    elapsed_s: float


class Worker:
    """Works on runs, any number at once. Parameters as in `Runtime`; `registry` holds what must not be torn apart."""

    def __init__(
        self,
        engine: Engine,
        sessions: SessionStore,
        admission: Admission,
        registry: TaskRegistry,
        *,
        records: Records | None,
        speaker_name: Callable[[Origin], Awaitable[str]] | None,
        now: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._sessions = sessions
        self._admission = admission
        self._registry = registry
        self._records = records
        self._speaker_name = speaker_name
        self._now = now

    async def work(self, live: LiveTask, lease: Lease, before: TaskStatus | None, parked: ParkedRun | None) -> WorkEnd:
        """Work on the run. `before`: the task's status until now; `parked`: what it goes on from after a question.

        Raises nothing: whatever happens is how it ended.
        """
        task = live.task
        state: RunState | None = None
        error: RunError | None = None
        asked: Sequence[Approval] = ()
        stop = StopReason.FINISHED
        ran_before = parked.elapsed_s if parked else 0.0
        left = self._engine.limits.run_timeout_s - ran_before
        loop = asyncio.get_running_loop()
        started = loop.time()
        deadline = loop.call_later(left, lambda: task.cancel("out of time", stop=StopReason.TIMEOUT))
        try:
            if parked is not None:
                # Before the look at cancellations: a run that was canceled while it waited still has its text.
                state = await self._open(live, lease, parked)
            task.enter()
            await live.running(before, fence=lease.fence, model=self._engine.provider.model)
            state = state or await self._open(live, lease, None)
            asked = await self._engine.run(state)
            if not asked and task.stop_reason is not None:
                stop = task.stop_reason  # taken at the last moment, and promised to whoever asked for it
        except asyncio.CancelledError:
            stop = task.stop_reason or StopReason.INTERRUPTED
        except AdmissionUnavailable:
            stop = StopReason.INTERRUPTED
        except StaleFence:
            # The store knows of a new owner before the next renewal does.
            task.is_lost = True
            stop = StopReason.INTERRUPTED
        except ProviderError as failure:
            stop, error = StopReason.FAILED, RunError(failure.kind, failure.message)
        except LimitExceeded as failure:
            stop = _LIMITS.get(failure.kind, StopReason.FAILED)
            error = RunError(failure.kind, failure.message)
        except StoreError as failure:
            stop, error = StopReason.FAILED, RunError("internal", f"The store: {failure}")
        except Exception as failure:
            stop, error = StopReason.FAILED, RunError("internal", f"{type(failure).__name__} inside the harness.")
            log.exception("task failed inside the harness", task=task.id)
        finally:
            deadline.cancel()
            task.leave(parking=bool(asked))
        return WorkEnd(state, stop, error, asked, loop.time() - started + ran_before)

    async def save_rest(self, live: LiveTask, end: WorkEnd) -> None:
        """Write down what a run that ended early still has; raises nothing."""
        if end.state is None or live.task.is_lost:
            return
        try:
            await end.state.close(canceled=end.stop is StopReason.CANCELED)
        except StaleFence:
            live.task.is_lost = True
        except Exception:
            # Whatever the store does: the task ends, and the session is free again.
            log.exception("the end of the conversation could not be saved", task=live.task.id)

    async def left_behind(self, live: LiveTask, lease: Lease) -> WorkEnd:
        """How a run ended whose process died: nothing is run again, what is known of it is completed.

        The text that people saw last is its answer; calls that may have had an effect are named as such.
        """
        task_id = live.task.id
        state: RunState | None = None
        if self._records is not None:
            run_log = await self._log(live, lease)
            state = RunState(live.sink, self._caller(live), list(run_log.messages), run_log)
            if (record := await self._records.tasks.get(task_id)) is not None:
                state.answered, state.usage = [record.answer], record.usage
            await self._complete(run_log, state.answer, task_id)
        return WorkEnd(state, StopReason.INTERRUPTED, None, (), 0.0)

    async def _complete(self, run_log: RunLog, shown: str, task_id: str) -> None:
        """Add to the conversation what the dead process could not: results of its calls, and the text it was at."""
        assert self._records is not None, "without records nothing outlives a process"
        log_of_turn = _since_last_prompt(run_log.messages)
        told = {message.call_id for message in log_of_turn if isinstance(message, ToolResult)}
        in_doubt = {call.call.id for call in await self._records.journal.doubt(task_id, at=run_log.now())}
        results: list[ToolResult] = []
        steps: list[CallStep] = []
        for record in await self._records.journal.of_task(task_id):
            call = record.call
            if record.state not in ("finished", "denied", "in_doubt", "canceled"):
                steps.append(CallStep(task_id, call.id, "canceled", run_log.now(), NEVER_RAN, is_error=True))
            if call.id not in told:
                text = CUT_OFF if call.id in in_doubt or record.state == "in_doubt" else record.result or NEVER_RAN
                results.append(ToolResult(call.id, call.name, text, is_error=True))
        written = "\n\n".join(m.text for m in log_of_turn if isinstance(m, AssistantMessage) and m.text)
        partial = shown.removeprefix(written).lstrip("\n") if shown.startswith(written) else ""
        # The model is not sent a text that broke off; people may read it in the conversation.
        broken = [AssistantMessage((Text(partial),), "failed")] if partial else []
        await run_log.add([*results, *broken], *steps)

    async def _open(self, live: LiveTask, lease: Lease, parked: ParkedRun | None) -> RunState:
        """Load the conversation, and add the person's message to it unless the run goes on after a question."""
        run = live.task.run_input
        run_log = await self._log(live, lease)
        caller = self._caller(live)
        if parked is not None:
            await run_log.add((), *_decided(parked, run_log.now()))
            return state_of(parked, RunState(live.sink, caller, list(run_log.messages), run_log))
        speaker = run.origin.speaker
        if speaker and self._speaker_name is not None:
            speaker = await self._speaker_name(run.origin)
        state = RunState(live.sink, caller, list(run_log.messages), run_log)
        if not live.task.has_begun:
            await state.begin(UserMessage(run.prompt, speaker), run)
        # From here on a crash means "interrupted": the work must not begin a second time.
        await self._admission.mark_started(lease)
        return state

    async def _log(self, live: LiveTask, lease: Lease) -> RunLog:
        session = await self._sessions.load(live.task.session_key)
        return RunLog(self._sessions, session, lease.fence, self._registry, records=self._records, now=self._now)

    def _caller(self, live: LiveTask) -> Caller:
        return Caller(live.task.id, live.task.session_key, live.task.run_input.origin.requester)


def _decided(parked: ParkedRun, at: float) -> list[CallStep]:
    """What the answers mean for the calls in the journal."""
    task_id, results = parked.run.task_id, verdicts(parked)
    steps: list[CallStep] = []
    for approval in parked.approvals:
        text = results[approval.call_id]
        steps.append(CallStep(task_id, approval.call_id, "denied" if text else "approved", at, text, bool(text)))
    return steps


def _since_last_prompt(messages: Sequence[Message]) -> Sequence[Message]:
    last = max((number for number, message in enumerate(messages) if isinstance(message, UserMessage)), default=-1)
    return messages[last + 1 :]
