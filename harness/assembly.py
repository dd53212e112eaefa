"""A kernel put together from the settings: a model, tools, and conversations in memory or in a database."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager

from harness.admission import InProcessAdmission
from harness.context.compactor import Compactor
from harness.context.prompt import SystemPrompt
from harness.engine import Engine
from harness.gate import ApprovalGate
from harness.limits import Limits
from harness.providers.base import ModelProvider
from harness.providers.select import profile_from, provider_from
from harness.runtime import Runtime
from harness.settings import KernelSettings
from harness.stores.base import Stores
from harness.stores.memory import MemoryGrantStore, MemorySessionStore
from harness.tools.base import Tool, by_name
from harness.tools.executor import ToolExecutor


@asynccontextmanager
async def open_runtime(
    tools: Iterable[Tool] = (),
    *,
    provider: ModelProvider | None = None,
    settings: KernelSettings | None = None,
    gate: ApprovalGate | None = None,
    system: str | SystemPrompt | None = None,
    stores: Stores | None = None,
) -> AsyncGenerator[Runtime]:
    """A runtime with these tools and no others, until the end of the block; what runs then is interrupted.

    `settings`: read from the environment when left out. `provider`: the model that the settings ask for when left out;
    closed at the end either way. `gate`: the tools' own policies when left out. `system`: the prompt, or what makes it
    for each run; that of the settings when left out. `stores`: where everything is kept (see `open_stores`); in memory
    when left out. Raises ConfigError for a wrong or missing setting, and for two tools of one name. For another
    admission build `Runtime` itself.
    """
    settings = settings or KernelSettings.load()
    known = by_name(list(tools))
    grants = stores.grants if stores is not None else MemoryGrantStore()
    gate = gate or ApprovalGate(grants, timeout_s=settings.approval_timeout_s)
    model = provider or provider_from(settings)
    async with assembled(model, known, settings, gate, system=system, stores=stores) as (_, runtime):
        yield runtime


@asynccontextmanager
async def assembled(
    provider: ModelProvider,
    tools: Mapping[str, Tool],
    settings: KernelSettings,
    gate: ApprovalGate,
    *,
    system: str | SystemPrompt | None = None,
    stores: Stores | None = None,
) -> AsyncGenerator[tuple[Engine, Runtime]]:
    """An engine and the runtime around it; closes them at the end, with whatever provider the engine has by then."""
    engine = engine_from(settings, provider, tools, gate, system=system)
    if stores is None:
        runtime = Runtime(engine, MemorySessionStore(), InProcessAdmission())
    else:
        runtime = Runtime(engine, stores.sessions, InProcessAdmission(), parking=stores.parking, records=stores)
    try:
        yield engine, runtime
    finally:
        await runtime.aclose()
        await engine.provider.aclose()


def engine_from(
    settings: KernelSettings,
    provider: ModelProvider,
    tools: Mapping[str, Tool],
    gate: ApprovalGate,
    *,
    system: str | SystemPrompt | None = None,
) -> Engine:
    """The engine that the settings describe, with the limits, prices and context window of the provider's profile."""
    profile = profile_from(settings)
    return Engine(
        provider,
        ToolExecutor(tools, timeout_s=settings.tool_timeout_s),
        Limits.of(settings, profile),
        system=system if system is not None else settings.system_prompt(),
        gate=gate,
        compactor=Compactor(profile.context_window) if profile is not None else None,
        prices=profile.prices if profile is not None else None,
    )
