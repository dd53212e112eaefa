"""A kernel put together for one process: a model, tools, and conversations in memory."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager

from harness.admission import InProcessAdmission
from harness.engine import Engine
from harness.gate import ApprovalGate
from harness.limits import Limits
from harness.providers.base import ModelProvider
from harness.providers.select import profile_from, provider_from
from harness.runtime import Runtime
from harness.settings import KernelSettings
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
) -> AsyncGenerator[Runtime]:
    """A runtime with these tools and no others, until the end of the block; what runs then is interrupted.

    `settings`: read from the environment when left out. `provider`: the model that the settings ask for when left out;
    closed at the end either way. `gate`: the tools' own policies when left out. Raises ConfigError for a wrong or
    missing setting, and for two tools of one name. For another store or admission build `Runtime` itself.
    """
    settings = settings or KernelSettings.load()
    known = by_name(list(tools))
    gate = gate or ApprovalGate(MemoryGrantStore(), timeout_s=settings.approval_timeout_s)
    async with assembled(provider or provider_from(settings), known, settings, gate) as (_, runtime):
        yield runtime


@asynccontextmanager
async def assembled(
    provider: ModelProvider, tools: Mapping[str, Tool], settings: KernelSettings, gate: ApprovalGate
) -> AsyncGenerator[tuple[Engine, Runtime]]:
    """An engine and the runtime around it; closes them at the end, with whatever provider the engine has by then."""
    executor = ToolExecutor(tools, timeout_s=settings.tool_timeout_s)
    limits = Limits.of(settings, profile_from(settings))
    engine = Engine(provider, executor, limits, system=settings.system_prompt(), gate=gate)
    runtime = Runtime(engine, MemorySessionStore(), InProcessAdmission())
    try:
        yield engine, runtime
    finally:
        await runtime.aclose()
        await engine.provider.aclose()
