"""The kernel as the terminal uses it: conversations in memory, files of the current folder."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.approval import Policy
from harness.assembly import assembled
from harness.engine import Engine
from harness.errors import ConfigError
from harness.gate import ApprovalGate
from harness.providers.select import provider_from
from harness.runtime import Runtime
from harness.settings import KernelSettings
from harness.stores.memory import MemoryGrantStore
from harness.tools.base import Tool, by_name
from harness.tools.builtin import default_tools
from harness.tools.builtin.fetch import fetch_tool
from harness.tools.builtin.files import file_tools
from harness.tools.builtin.shell import shell_tool
from harness.tools.workspace import Workspace


@dataclass(slots=True)
class Kernel:
    """A kernel that runs. `allowed`: tools that need no permission this time. `note`: what this machine lacks."""

    settings: KernelSettings
    runtime: Runtime
    engine: Engine
    tools: Mapping[str, Tool]
    allowed: frozenset[str]
    note: str

    def policy(self, tool: Tool) -> Policy:
        """What happens to a call of the tool for which there is no grant."""
        return "allow" if tool.name in self.allowed else tool.policy

    @property
    def model(self) -> str:
        """The name of the model that answers."""
        return self.settings.model_name or "(none)"

    async def use_model(self, name: str) -> None:
        """Let another model answer from the next turn on; ConfigError when it is not set up, then nothing changes."""
        settings = self.settings.with_model(name)
        provider = provider_from(settings)
        old, self.engine.provider = self.engine.provider, provider
        self.settings = settings
        await old.aclose()


@asynccontextmanager
async def opened(
    settings: KernelSettings, *, tools: Iterable[Tool] = (), allow: Sequence[str] = ()
) -> AsyncGenerator[Kernel]:
    """A kernel until the end of the block, with the built-in tools and these.

    Raises ConfigError for a wrong setting and for an unknown name in `allow`.
    """
    provider = provider_from(settings)
    workspace = Workspace(Path.cwd())
    shell, note = await shell_tool(workspace)
    known = by_name([*default_tools(), *file_tools(workspace), fetch_tool(), *([shell] if shell else []), *tools])
    for name in allow:
        if name not in known:
            why = f" {note}" if name == "shell" else ""
            raise ConfigError(f"--allow {name}: there is no such tool.{why} The tools are: {', '.join(known)}.")
    gate = ApprovalGate(
        MemoryGrantStore(), overrides=dict.fromkeys(allow, "allow"), timeout_s=settings.approval_timeout_s
    )
    async with assembled(provider, known, settings, gate) as (engine, runtime):
        yield Kernel(settings, runtime, engine, known, frozenset(allow), note)
