"""A real process killed inside a tool, after the effect and before anybody was told of it.

Nobody can know what such a call has done, so it is never made again, and the model and the people are told just that.
"""

from pathlib import Path

import pytest

from harness.events import RunEnded
from harness.history import prepare_history
from harness.messages import ToolResult
from harness.providers.script import Say, Script
from harness.runtime import Started
from harness.status import TaskStatus
from harness.tools.executor import CUT_OFF
from tests.recovery.kernel import FATAL, SESSION, marks, opened
from tests.recovery.test_every_commit import Dying, at_rest, dying, flaws, taken_over

NEXT: Script = [Say("Here I am again.")]


async def die_after(mark: str, folder: Path, processes: Dying) -> None:
    (folder / FATAL).write_text(mark)
    begun, _, killed = await processes.run(folder, 0)
    assert (begun, killed) == (True, True)


@pytest.mark.parametrize(
    ("mark", "tool", "done"),
    [("one", "write", ["one"]), ("two", "sign", ["one", "two"])],
    ids=["allowed by policy", "allowed by a person"],
)
async def test_a_kill_between_the_effect_and_its_record_leaves_it_in_doubt_and_it_happens_once(
    tmp_path: Path, mark: str, tool: str, done: list[str]
) -> None:
    async with dying() as processes:
        await die_after(mark, tmp_path, processes)
    async with opened(tmp_path, NEXT) as kernel:
        await taken_over(kernel, begun=True)
        await at_rest(kernel)
        assert marks(tmp_path) == done, "it happened, and once"
        (task,) = await kernel.stores.tasks.of_session(SESSION)
        assert task.status is TaskStatus.INTERRUPTED
        journal = await kernel.stores.journal.of_task(task.id)
        assert {call.call.name: call.state for call in journal}[tool] == "in_doubt"
        [shown] = kernel.made
        assert any(isinstance(event, RunEnded) for event in shown.events)

        outcome = await kernel.runtime.run(SESSION, "What about it?")
        assert isinstance(outcome, Started)
        asked = kernel.provider.requests[-1].messages
        told = [message for message in asked if isinstance(message, ToolResult) and message.name == tool]
        assert [result.content for result in told] == [CUT_OFF]
        assert flaws(prepare_history(asked)) == []
        assert marks(tmp_path) == done
