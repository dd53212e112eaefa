"""The kernel as the terminal uses it: files and instructions of the current folder, conversations in memory or kept."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.approval import Policy
from harness.assembly import assembled
from harness.context.prompt import WorkspacePrompt, terminal_prompt
from harness.context.skills import skill_tool
from harness.engine import Engine
from harness.errors import ConfigError
from harness.gate import ApprovalGate
from harness.providers.select import provider_from
from harness.runtime import Runtime
from harness.settings import KernelSettings
from harness.stores.base import Stores
from harness.stores.memory import MemoryGrantStore
from harness.terminal.claims import Claims, claims_in
from harness.terminal.own import own_stores
from harness.terminal.state import stores_in
from harness.tools.base import Tool, by_name
from harness.tools.builtin import default_tools
from harness.tools.builtin.fetch import fetch_tool
from harness.tools.builtin.files import file_tools
from harness.tools.builtin.shell import shell_tool
from harness.tools.workspace import Workspace


@dataclass(slots=True)
class Kernel:
    """A kernel that runs. `allowed`: tools that need no permission this time. `note`: what this machine lacks.

    `prompt`: the instructions and skills that hold in this folder. `stores` is None where nothing is kept; `claims`:
    the conversations that are open here.
    """

    settings: KernelSettings
    runtime: Runtime
    engine: Engine
    tools: Mapping[str, Tool]
    allowed: frozenset[str]
    note: str
    prompt: WorkspacePrompt
    stores: Stores | None = None
    claims: Claims = field(default_factory=Claims)

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
    settings: KernelSettings, *, tools: Iterable[Tool] = (), allow: Sequence[str] = (), state: Path | None = None
) -> AsyncGenerator[Kernel]:
    """A kernel until the end of the block, with the built-in tools and these.

    `state`: the folder with the database of conversations and permissions (see `stores_in`); None = in memory.
    Raises ConfigError for a wrong setting and for an unknown name in `allow`, StoreError for a database that cannot be
    opened.
    """
    provider = provider_from(settings)
    folder = Path.cwd()
    prompt = terminal_prompt(settings.system_prompt(), folder, _home(folder))
    known, note = await _tools(folder, prompt, tools)
    for name in allow:
        if name not in known:
            why = f" {note}" if name == "shell" else ""
            raise ConfigError(f"--allow {name}: there is no such tool.{why} The tools are: {', '.join(known)}.")
    async with AsyncExitStack() as stack:
        stores, claims = None, Claims()
        if state is not None:
            stores = own_stores(await stack.enter_async_context(stores_in(state, settings)), folder)
            # Whoever uses the database of this folder locks in this folder; of another one's users nothing is known.
            claims = stack.enter_context(claims_in(state, is_proof=settings.database_url is None))
        gate = ApprovalGate(
            MemoryGrantStore() if stores is None else stores.grants,
            overrides=dict.fromkeys(allow, "allow"),
            timeout_s=settings.approval_timeout_s,
        )
        async with assembled(provider, known, settings, gate, system=prompt, stores=stores) as (engine, runtime):
            yield Kernel(settings, runtime, engine, known, frozenset(allow), note, prompt, stores, claims)


async def _tools(folder: Path, prompt: WorkspacePrompt, tools: Iterable[Tool]) -> tuple[Mapping[str, Tool], str]:
    """All tools by name, and what this machine lacks for one of them."""
    workspace = Workspace(folder)
    shell, note = await shell_tool(workspace)
    built_in = [*default_tools(), *file_tools(workspace), fetch_tool()]
    if shell is not None:
        built_in.append(shell)
    if any(skills.is_dir() for skills in prompt.skills):
        built_in.append(skill_tool(lambda: prompt.skills))
    return by_name([*built_in, *tools]), note


def _home(folder: Path) -> Path:
    """The person's own folder; the current one for somebody who has none."""
    try:
        return Path.home()
    except RuntimeError:
        return folder
