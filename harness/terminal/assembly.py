"""The kernel as the terminal uses it: conversations in memory, files of the current folder."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.admission import InProcessAdmission
from harness.approval import Policy
from harness.engine import Engine, Limits
from harness.errors import ConfigError
from harness.gate import APPROVAL_SECONDS, ApprovalGate
from harness.providers.select import provider_from
from harness.runtime import Runtime
from harness.settings import KernelSettings
from harness.stores.memory import MemoryGrantStore, MemorySessionStore
from harness.tools.base import Tool, by_name
from harness.tools.builtin import default_tools
from harness.tools.builtin.fetch import fetch_tool
from harness.tools.builtin.files import file_tools
from harness.tools.builtin.shell import shell_tool
from harness.tools.executor import ToolExecutor
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
        return model_name(self.settings)

    async def use_model(self, name: str) -> None:
        """Let another model answer from the next turn on; ConfigError when it is not set up, then nothing changes."""
        settings = with_model(self.settings, name)
        provider = provider_from(settings)
        old, self.engine.provider = self.engine.provider, provider
        self.settings = settings
        await old.aclose()


@asynccontextmanager
async def opened(
    settings: KernelSettings, *, allow: Sequence[str] = (), approval_s: float = APPROVAL_SECONDS
) -> AsyncGenerator[Kernel]:
    """A kernel until the end of the block. Raises ConfigError for a wrong setting and for an unknown name in `allow`.

    `approval_s`: seconds after which an unanswered question is a denial.
    """
    system = settings.system_prompt()
    provider = provider_from(settings)
    workspace = Workspace(Path.cwd())
    shell, note = await shell_tool(workspace)
    tools = by_name([*default_tools(), *file_tools(workspace), fetch_tool(), *([shell] if shell else [])])
    for name in allow:
        if name not in tools:
            why = f" {note}" if name == "shell" else ""
            raise ConfigError(f"--allow {name}: there is no such tool.{why} The tools are: {', '.join(tools)}.")
    gate = ApprovalGate(MemoryGrantStore(), overrides=dict.fromkeys(allow, "allow"), timeout_s=approval_s)
    executor = ToolExecutor(tools, timeout_s=settings.tool_timeout_s)
    engine = Engine(provider, executor, Limits.of(settings), system=system, gate=gate)
    runtime = Runtime(engine, MemorySessionStore(), InProcessAdmission())
    try:
        yield Kernel(settings, runtime, engine, tools, frozenset(allow), note)
    finally:
        await runtime.aclose()
        await engine.provider.aclose()


def with_model(settings: KernelSettings, name: str) -> KernelSettings:
    """The settings with another model; `scripted` is the built-in one."""
    if name == "scripted":
        return settings.model_copy(update={"model_protocol": "scripted"})
    protocol = "chat" if settings.model_protocol == "scripted" else settings.model_protocol
    return settings.model_copy(update={"model_protocol": protocol, "openai_model": name})


def model_name(settings: KernelSettings) -> str:
    """The name of the model that the settings ask for."""
    return "scripted" if settings.model_protocol == "scripted" else settings.openai_model or "(none)"
