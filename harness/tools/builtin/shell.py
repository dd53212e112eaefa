"""Shell commands in a sandbox. Without a sandbox that works there is no tool: nothing ever runs outside of one."""

import asyncio
from typing import Annotated, Final

from pydantic import Field

from harness.errors import ToolError
from harness.tools.base import Tool, ToolContext, tool
from harness.tools.builtin.files import WorkspaceOf, workspace_of
from harness.tools.output import Output
from harness.tools.sandbox import Sandbox, SandboxLimits
from harness.tools.sandbox_process import SandboxUnusable
from harness.tools.untrusted import marked
from harness.tools.workspace import Workspace

MAX_TIMEOUT_S: Final = 600
_MAX_COMMAND_BYTES: Final = 64 * 1024
_MARGIN_S: Final = 20.0
"""How much later than the command's own limit the executor would step in."""


async def shell_tool(
    workspace: Workspace | WorkspaceOf,
    *,
    limits: SandboxLimits | None = None,
    program: str = "bwrap",
    progress_every_s: float = 1.0,
) -> tuple[Tool | None, str]:
    """The tool `shell`, or None and one sentence why this machine has no sandbox for it (`true` is really run once)."""
    sandbox, why_not = await Sandbox.find(program=program, limits=limits)
    if sandbox is None:
        return None, why_not
    return sandboxed_shell(workspace, sandbox, progress_every_s=progress_every_s), ""


def sandboxed_shell(workspace: Workspace | WorkspaceOf, sandbox: Sandbox, *, progress_every_s: float = 1.0) -> Tool:
    """The tool `shell` on a sandbox that has been tried. `progress_every_s`: seconds between two progress events."""
    of = workspace_of(workspace)

    @tool(timeout_s=MAX_TIMEOUT_S + _MARGIN_S, policy="ask", untrusted="the output of a command")
    async def shell(
        command: str, context: ToolContext, timeout_s: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_S)] = 30
    ) -> str:
        """Run a shell command in the workspace folder, in a sandbox without network.

        The system is read-only; only the workspace and /tmp can be written, and only the workspace is kept. All of the
        command's processes end with it, also those in the background. The result is its exit code and what it printed.
        """
        if "\0" in command or len(command.encode(errors="surrogatepass")) > _MAX_COMMAND_BYTES:
            raise ToolError(f"A command is text without NUL of at most {_MAX_COMMAND_BYTES:,} bytes.")
        output = Output()
        place = of(context)
        await asyncio.to_thread(place.make)
        reporting = asyncio.get_running_loop().create_task(_report(output, context, progress_every_s))
        try:
            ended = await sandbox.run(command, place.root, timeout_s=timeout_s, sink=output.feed)
        except SandboxUnusable as error:
            raise ToolError(f"The sandbox did not start: {error}") from error
        finally:
            reporting.cancel()
        output.feed(b"", last=True)
        if ended.code is None:
            printed = marked("the output of a command", output.text) if output.total_bytes else "It printed nothing."
            raise ToolError(f"The command was stopped with all its processes: {ended.stopped}.\n{printed}")
        return f"exit code {ended.code}\n{output.text}".rstrip("\n")

    return shell


async def _report(output: Output, context: ToolContext, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        if text := output.fresh():
            await context.progress(text)
