"""The tools on offer in chats."""

from pathlib import Path
from typing import Final

import structlog

from bots.access import AccessRules
from harness.tools.base import Tool
from harness.tools.builtin import default_tools
from harness.tools.builtin.fetch import fetch_tool
from harness.tools.builtin.files import SessionWorkspaces, file_tools
from harness.tools.builtin.shell import shell_tool

log = structlog.stdlib.get_logger(__name__)

WORKSPACES: Final = "workspaces"
"""The folder of all workspaces, below the data folder."""


async def chat_tools(data_dir: Path, access: AccessRules, *, is_shared: bool = True) -> list[Tool]:
    """The tools of the service. `is_shared`: every replica sees the same `data_dir`.

    What writes or runs is off until somebody may permit it, and files are off where replicas do not share them: a
    conversation would find other files with each message. The shell needs a sandbox that works on this machine.
    """
    tools = [*default_tools(), fetch_tool()]
    if not is_shared:
        return tools
    workspaces = SessionWorkspaces(data_dir / WORKSPACES)
    files = file_tools(workspaces)
    if not access.can_permit:
        return [*tools, *(tool for tool in files if tool.read_only)]
    shell, why_not = await shell_tool(workspaces)
    if shell is None:
        log.info("no tool `shell` on this machine", reason=why_not)
    return [*tools, *files, *([shell] if shell else [])]
