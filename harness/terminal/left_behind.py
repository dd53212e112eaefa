"""Turns that a terminal has left behind: it was killed, or its machine went down, in the middle of one."""

import secrets
from collections.abc import Sequence

from harness.admission import Admitted, InProcessAdmission
from harness.engine import Engine
from harness.events import ApprovalDecided, ApprovalRequested, Event
from harness.runtime import Runtime
from harness.stores.base import Stores
from harness.stores.records import TaskRecord


async def unfinished(stores: Stores, key: str) -> Sequence[TaskRecord]:
    """The turns of a conversation that have not come to an end, the oldest first."""
    return [record for record in reversed(await stores.tasks.of_session(key)) if not record.status.is_terminal]


async def last_sign(stores: Stores, record: TaskRecord) -> float:
    """When the turn was heard of last, in Unix seconds."""
    last = await stores.traces.last_seq(record.id)
    events = await stores.traces.read(record.id, after=last - 1)
    return max([record.created_at, *(event.at for event in events)])


def open_questions(events: Sequence[Event]) -> Sequence[str]:
    """The tools for which permission was asked and never given or refused."""
    asked: dict[str, str] = {}
    for event in events:
        match event:
            case ApprovalRequested(approval=approval):
                asked[approval.id] = approval.tool
            case ApprovalDecided(approval_id=approval_id):
                asked.pop(approval_id, None)
            case _:
                pass
    return list(asked.values())


async def end_interrupted(engine: Engine, stores: Stores, record: TaskRecord) -> None:
    """End the turn of a dead process as interrupted; nothing of it is run again.

    Its calls get the results that they had, or are told apart as never run and as in doubt.
    """
    # By an admission of its own: the run is nobody's any more, and nobody waits behind it.
    admission = InProcessAdmission()
    runtime = Runtime(engine, stores.sessions, admission, records=stores)
    outcome = await admission.admit(record.run, secrets.token_hex(16))
    assert isinstance(outcome, Admitted), "a new admission is empty"
    await runtime.take_over(record.run, outcome.lease, begun=True)
    await runtime.aclose()
