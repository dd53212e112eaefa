"""Makes the live form of a task, with what shows it: of a new one, or of one that another process had."""

import time
from collections.abc import Callable, Sequence

from harness.admission import RunInput
from harness.events import Event, ModelDelta, ModelEnded
from harness.live import LiveTask
from harness.reporters.base import EventSink, Reporter, SilentReporter
from harness.stores.base import Records
from harness.task import Task


class TaskFactory:
    """Makes live tasks. `reporter_for` makes what shows a task that was not started here with a reporter of its own."""

    def __init__(
        self,
        records: Records | None,
        reporter_for: Callable[[RunInput], Reporter] | None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._records = records
        self._reporter_for = reporter_for or _silent
        self._now = now

    def new(self, run: RunInput, reporter: Reporter | None = None) -> LiveTask:
        """The task of a request that has just come."""
        return self._live(Task(run, now=self._now), reporter or self._reporter_for(run))

    async def adopted(self, run: RunInput, *, begun: bool) -> LiveTask:
        """The task of a run that another process had, as it stands; its reporter has been told what happened so far.

        One that was not `begun` is as good as new, whatever the process that died had written down of it.
        """
        if self._records is None:
            return self.new(run)
        record = await self._records.tasks.get(run.task_id)
        events = await self._records.traces.read(run.task_id)
        status = record.status if record is not None and begun else None
        live = self._live(Task(run, status=status, events=events, now=self._now), self._reporter_for(run))
        live.is_known = record is not None
        await live.sink.replay(events)
        if record is not None and begun and (partial := _unfinished_text(record.answer, events)):
            # Pieces of text are not kept as events; what people saw last is.
            last = events[-1]
            await live.sink.replay([ModelDelta(run.task_id, last.seq, last.at, partial)])
        return live

    def _live(self, task: Task, reporter: Reporter) -> LiveTask:
        keep = None if self._records is None else self._records.traces.append
        return LiveTask(task, EventSink(task, reporter, keep), self._records, now=self._now)


def _unfinished_text(shown: str, events: Sequence[Event]) -> str:
    """What was shown of the model turn that has no end among the events."""
    whole = "\n\n".join(event.text for event in events if isinstance(event, ModelEnded) and event.text)
    return shown.removeprefix(whole).lstrip("\n") if events and shown.startswith(whole) else ""


def _silent(_run: RunInput) -> Reporter:
    return SilentReporter()
