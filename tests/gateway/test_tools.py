"""Which tools people have in a chat, and in which folder."""

import shutil
from pathlib import Path

import pytest

from bots.access import AccessRules
from bots.gateway.tools import chat_tools
from harness.tools.base import by_name
from tests.tools.use import use

ALWAYS = {"calculator", "random_number", "clock", "fetch"}
READING = {"read_file", "list_files"}
WRITING = {"write_file", "edit_file"} | ({"shell"} if shutil.which("bwrap") else set())

OFFERS: dict[str, tuple[AccessRules, bool, set[str]]] = {
    "nobody may permit": (AccessRules(), True, ALWAYS | READING),
    "approvers": (AccessRules(approvers=frozenset({"U1"})), True, ALWAYS | READING | WRITING),
    "administrators": (AccessRules(admins=frozenset({"U1"})), True, ALWAYS | READING | WRITING),
    "requesters": (AccessRules(requester_approves=True), True, ALWAYS | READING | WRITING),
    "folders of their own": (AccessRules(approvers=frozenset({"U1"})), False, ALWAYS),
}


@pytest.mark.parametrize("case", OFFERS)
async def test_what_is_on_offer(case: str, tmp_path: Path) -> None:
    access, is_shared, expected = OFFERS[case]
    tools = by_name(await chat_tools(tmp_path, access, is_shared=is_shared))
    assert set(tools) <= expected
    # Where user namespaces are closed to us, bubblewrap is there and does not work.
    assert expected - set(tools) <= {"shell"}
    asks = {name for name, tool in tools.items() if tool.policy == "ask"}
    assert asks == set(tools) & ({"fetch"} | WRITING)
    assert not list(tmp_path.iterdir()), "folders are made at their first use"


async def test_a_file_lands_in_the_workspace_of_its_session(tmp_path: Path) -> None:
    tools = by_name(await chat_tools(tmp_path, AccessRules(requester_approves=True)))
    await use(tools["write_file"], path="a.txt", content="text")
    [file] = tmp_path.rglob("a.txt")
    assert file.parent.parent == tmp_path / "workspaces"
    assert file.read_text() == "text"
