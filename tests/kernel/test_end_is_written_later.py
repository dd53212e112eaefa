"""The end of a task that the store did not take is written down when the store is back."""

import asyncio
from pathlib import Path

from harness.providers.script import Call
from tests.kernel.test_store_trouble import DONE, bench, lock


async def test_the_end_that_a_locked_database_did_not_take_is_written_down_later(tmp_path: Path) -> None:
    async with bench(None, tmp_path, [Call("look"), Call("write")], DONE) as b:
        with lock(tmp_path) as other:
            b.during_look = other.take
            task, _ = await b.run("Look and write.")
        async with asyncio.timeout(10):
            while await b.stores.tasks.unfinished():
                await asyncio.sleep(0.05)
        record = await b.stores.tasks.get(task.id)
        assert record is not None
        assert record.status is task.status
