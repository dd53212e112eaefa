"""A run is worked on only as long as this process may be sure that nobody else does."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from harness import lease as lease_module
from harness.admission import Admission, CancelOrder, InProcessAdmission, Lease, Lost, Origin, Renewed, RunInput
from harness.errors import AdmissionUnavailable
from harness.lease import keep_lease
from harness.status import StopReason, TaskStatus
from harness.task import Task

LEASE = Lease("t", "s", "token", 1)
GONE = AdmissionUnavailable("no answer")


@dataclass
class Coordinator(InProcessAdmission):
    """Answers renewals as it is told, then with the last answer for ever, and counts the questions."""

    answers: deque[Renewed | Lost | AdmissionUnavailable]
    every: float = 0.01
    seconds: float = 30.0
    asked: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    @property
    def renew_every(self) -> float | None:
        return self.every

    @property
    def lease_seconds(self) -> float:
        return self.seconds

    async def renew(self, lease: Lease) -> Renewed | Lost:
        assert lease == LEASE
        self.asked += 1
        answer = self.answers.popleft() if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, AdmissionUnavailable):
            raise answer
        return answer


@pytest.fixture
async def task() -> AsyncIterator[Task]:
    """A task whose worker waits until it is canceled."""
    task = Task(RunInput("t", "s", "go", Origin()))
    task.step(TaskStatus.RUNNING)
    worker = asyncio.create_task(asyncio.sleep(60))
    task.bind(worker)  # type: ignore[arg-type]
    task.enter()
    yield task
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def kept(coordinator: Admission, task: Task) -> None:
    """Keep the lease until the keeper gives up."""
    await asyncio.wait_for(keep_lease(coordinator, LEASE, task), 10)


async def test_a_lease_that_cannot_be_lost_needs_no_keeping(task: Task) -> None:
    await kept(InProcessAdmission(), task)
    assert task.stop_reason is None


async def test_a_lost_lease_stops_the_task_at_once(task: Task) -> None:
    coordinator = Coordinator(deque([Renewed(), Renewed(), Lost()]))
    await kept(coordinator, task)
    assert coordinator.asked == 3
    assert task.is_lost, "another replica shows the task now"
    assert task.stop_reason is StopReason.INTERRUPTED


async def test_a_short_outage_is_survived(task: Task) -> None:
    coordinator = Coordinator(deque([GONE, GONE, GONE, Renewed(), Renewed(), Lost()]))
    await kept(coordinator, task)
    assert coordinator.asked == 6
    assert task.cancel_reason == "another replica took over"


async def test_a_long_outage_stops_the_task_before_the_lease_ends(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    # A second passes at each question: of the 15 of the lease, the last 3 are for stopping.
    coordinator = Coordinator(deque([Renewed(), GONE]), seconds=15.0, every=0.001)
    monkeypatch.setattr(lease_module, "_clock", lambda: float(coordinator.asked))
    await kept(coordinator, task)
    assert coordinator.asked == 12, "neither at the first hiccup, nor after others may have started"
    assert task.stop_reason is StopReason.INTERRUPTED
    assert not task.is_lost, "nobody else is known to own it: its card is still ours to finish"


async def test_trust_counts_from_the_sending_of_the_last_good_renewal(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(lease_module, "_clock", lambda: now[0])

    class Slow(Coordinator):
        async def renew(self, lease: Lease) -> Renewed | Lost:
            # The answer to the first takes 10 of the 15 seconds; by the next, 13 have passed since it was sent.
            answer_at = {0: 10.0, 1: 13.0}[self.asked]
            try:
                return await super().renew(lease)
            finally:
                now[0] = answer_at

    coordinator = Slow(deque([Renewed(), GONE]), seconds=15.0)
    await kept(coordinator, task)
    assert coordinator.asked == 2
    assert task.stop_reason is StopReason.INTERRUPTED


async def test_a_renewal_brings_a_cancel_order_that_every_faster_way_lost(task: Task) -> None:
    order = CancelOrder("t", "slack:U1", "stop")
    coordinator = Coordinator(deque([Renewed(), Renewed(order), Renewed(order), Lost()]))
    await kept(coordinator, task)
    assert (task.stop_reason, task.cancel_reason, task.stopped_by) == (StopReason.CANCELED, "stop", "slack:U1")


async def test_an_order_for_the_task_before_is_not_ours(task: Task) -> None:
    keeper = asyncio.create_task(
        keep_lease(Coordinator(deque([Renewed(CancelOrder("another", "", "stop"))])), LEASE, task)
    )
    await asyncio.sleep(0.05)
    assert task.stop_reason is None
    keeper.cancel()
    await asyncio.gather(keeper, return_exceptions=True)
