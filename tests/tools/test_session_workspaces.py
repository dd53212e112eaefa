"""A folder for each session, whatever its key, and never one for two."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from harness.tools.base import ToolContext, by_name
from harness.tools.builtin.files import SessionWorkspaces, file_tools
from tests.tools.use import silent

KEYS = st.text() | st.sampled_from(["", ".", "..", "../x", "a/b", "/etc", "a" * 10_000, "\0", "\ud800"])


def context(session: str) -> ToolContext:
    return ToolContext("task", session, "someone", silent)


@given(st.sets(KEYS, min_size=2, max_size=5))
def test_different_keys_are_different_folders_directly_below_the_root(keys: set[str]) -> None:
    root = Path("/data/workspaces")
    folders = {SessionWorkspaces(root)(context(key)).root for key in keys}
    assert len(folders) == len(keys)
    assert all(folder.parent == root and len(folder.name) == 64 for folder in folders)


async def test_sessions_do_not_see_each_others_files_and_keep_their_own(tmp_path: Path) -> None:
    tools = by_name(file_tools(SessionWorkspaces(tmp_path)))
    await tools["write_file"].call({"path": "a.txt", "content": "mine"}, context("chat/one"))
    assert await tools["list_files"].call({}, context("chat/two")) != await tools["list_files"].call(
        {}, context("chat/one")
    )
    again = by_name(file_tools(SessionWorkspaces(tmp_path)))
    assert "mine" in await again["read_file"].call({"path": "a.txt"}, context("chat/one"))
