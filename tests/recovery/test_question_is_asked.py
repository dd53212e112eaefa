"""Killed between the commit that parks a run and the one that tells of its question: the next process asks it."""

from pathlib import Path

from harness.events import ApprovalRequested
from harness.status import TaskStatus
from tests.recovery.kernel import SCRIPT, opened
from tests.recovery.test_every_commit import dying, taken_over


async def test_a_question_that_was_stored_and_not_put_is_put_by_the_next_process(tmp_path: Path) -> None:
    seen = 0
    async with dying() as processes:
        whole = tmp_path / "whole"
        whole.mkdir()
        _, commits, _ = await processes.run(whole, 0)
        for last in range(commits // 3, commits):
            folder = tmp_path / str(last)
            folder.mkdir()
            begun, _, _ = await processes.run(folder, last)
            if not begun:
                continue
            async with opened(folder, *SCRIPT[2:]) as kernel:
                waiting = [t for t in await kernel.stores.tasks.unfinished() if t.status is TaskStatus.WAITING_APPROVAL]
                await taken_over(kernel, begun=True)
                for task in waiting:
                    parked = await kernel.stores.parking.parked(task.id)
                    if parked is None or parked.is_decided:
                        continue
                    seen += 1
                    asked = [
                        e.approval.id for made in kernel.made for e in made.events if isinstance(e, ApprovalRequested)
                    ]
                    assert asked == [approval.id for approval in parked.approvals], f"after commit {last}"
            if seen:
                break  # one commit later there is nothing left to ask
    assert seen
