"""A complete agent harness: provider, engine, tools, approval, runtime, stores, terminal.

The kernel knows no chat platform, no web framework and no Redis; the `bots` package builds on it.

Everything that a program builds on stands here: `from harness import open_runtime, tool`. Each name is imported when it
is first used, so `import harness` costs nothing, and a program that never asks a real model never loads its client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

__version__ = "0.1.0"

if TYPE_CHECKING:
    from harness.admission import InProcessAdmission, Origin, RunInput
    from harness.approval import Approval, Decision, Grant, Policy
    from harness.assembly import open_runtime
    from harness.engine import Engine
    from harness.errors import (
        AdmissionUnavailable,
        Closed,
        ConfigError,
        ErrorKind,
        HarnessError,
        InvalidTransition,
        LimitExceeded,
        ProviderError,
        StaleFence,
        StoreError,
        ToolError,
        VersionConflict,
    )
    from harness.events import (
        ApprovalDecided,
        ApprovalRequested,
        Event,
        MessageRetracted,
        ModelDelta,
        ModelEnded,
        ModelReasoning,
        ModelRetrying,
        ModelStarted,
        RunEnded,
        RunError,
        RunStarted,
        StepTaken,
        TaskStateChanged,
        ToolEnded,
        ToolProgressed,
        ToolStarted,
        UsageReported,
        to_json,
    )
    from harness.gate import ApprovalGate
    from harness.limits import Limits
    from harness.messages import (
        AssistantMessage,
        Message,
        Reasoning,
        SummaryMessage,
        Text,
        ToolCall,
        ToolResult,
        Usage,
        UserMessage,
    )
    from harness.providers.anthropic import AnthropicProvider
    from harness.providers.base import (
        Completed,
        ModelProvider,
        ModelRequest,
        ReasoningDelta,
        StreamingProvider,
        StreamItem,
        TextDelta,
        ToolCallDelta,
        ToolSpec,
        UsageReport,
    )
    from harness.providers.openai_chat import OpenAIChatProvider
    from harness.providers.openai_responses import OpenAIResponsesProvider
    from harness.providers.scripted import ScriptedProvider, calls, says
    from harness.providers.select import provider_from
    from harness.repl import terminal_chat
    from harness.reporters.base import CanDetach, CanRetract, Reporter, SilentReporter
    from harness.reporters.callback import CallbackReporter
    from harness.reporters.jsonl import JsonLinesReporter
    from harness.reporters.recording import RecordingReporter
    from harness.reporters.terminal import TerminalReporter
    from harness.reporters.timeline import TimelineReporter
    from harness.runtime import Queued, Refused, Runtime, Started, StartOutcome
    from harness.settings import KernelSettings
    from harness.status import StopReason, TaskStatus
    from harness.stores.base import GrantStore, ParkingStore, Session, SessionStore
    from harness.stores.memory import MemoryGrantStore, MemoryParkingStore, MemorySessionStore
    from harness.stores.sql import open_stores
    from harness.task import Task
    from harness.terminal.question import TerminalAsker
    from harness.terminal.turn import Asker, Turns
    from harness.tools.base import Tool, ToolContext, by_name, tool
    from harness.tools.builtin import default_tools
    from harness.tools.builtin.fetch import fetch_tool
    from harness.tools.builtin.files import file_tools
    from harness.tools.builtin.shell import shell_tool
    from harness.tools.executor import Caller, ToolExecutor
    from harness.tools.workspace import Workspace

_HOMES: Final = {
    "harness.admission": ("InProcessAdmission", "Origin", "RunInput"),
    "harness.approval": ("Approval", "Decision", "Grant", "Policy"),
    "harness.assembly": ("open_runtime",),
    "harness.engine": ("Engine",),
    "harness.errors": (
        "AdmissionUnavailable",
        "Closed",
        "ConfigError",
        "ErrorKind",
        "HarnessError",
        "InvalidTransition",
        "LimitExceeded",
        "ProviderError",
        "StaleFence",
        "StoreError",
        "ToolError",
        "VersionConflict",
    ),
    "harness.events": (
        "ApprovalDecided",
        "ApprovalRequested",
        "Event",
        "MessageRetracted",
        "ModelDelta",
        "ModelEnded",
        "ModelReasoning",
        "ModelRetrying",
        "ModelStarted",
        "RunEnded",
        "RunError",
        "RunStarted",
        "StepTaken",
        "TaskStateChanged",
        "ToolEnded",
        "ToolProgressed",
        "ToolStarted",
        "UsageReported",
        "to_json",
    ),
    "harness.gate": ("ApprovalGate",),
    "harness.limits": ("Limits",),
    "harness.messages": (
        "AssistantMessage",
        "Message",
        "Reasoning",
        "SummaryMessage",
        "Text",
        "ToolCall",
        "ToolResult",
        "Usage",
        "UserMessage",
    ),
    "harness.providers.anthropic": ("AnthropicProvider",),
    "harness.providers.base": (
        "Completed",
        "ModelProvider",
        "ModelRequest",
        "ReasoningDelta",
        "StreamItem",
        "StreamingProvider",
        "TextDelta",
        "ToolCallDelta",
        "ToolSpec",
        "UsageReport",
    ),
    "harness.providers.openai_chat": ("OpenAIChatProvider",),
    "harness.providers.openai_responses": ("OpenAIResponsesProvider",),
    "harness.providers.scripted": ("ScriptedProvider", "calls", "says"),
    "harness.providers.select": ("provider_from",),
    "harness.repl": ("terminal_chat",),
    "harness.reporters.base": ("CanDetach", "CanRetract", "Reporter", "SilentReporter"),
    "harness.reporters.callback": ("CallbackReporter",),
    "harness.reporters.jsonl": ("JsonLinesReporter",),
    "harness.reporters.recording": ("RecordingReporter",),
    "harness.reporters.terminal": ("TerminalReporter",),
    "harness.reporters.timeline": ("TimelineReporter",),
    "harness.runtime": ("Queued", "Refused", "Runtime", "StartOutcome", "Started"),
    "harness.settings": ("KernelSettings",),
    "harness.status": ("StopReason", "TaskStatus"),
    "harness.stores.base": ("GrantStore", "ParkingStore", "Session", "SessionStore"),
    "harness.stores.memory": ("MemoryGrantStore", "MemoryParkingStore", "MemorySessionStore"),
    "harness.stores.sql": ("open_stores",),
    "harness.task": ("Task",),
    "harness.terminal.question": ("TerminalAsker",),
    "harness.terminal.turn": ("Asker", "Turns"),
    "harness.tools.base": ("Tool", "ToolContext", "by_name", "tool"),
    "harness.tools.builtin": ("default_tools",),
    "harness.tools.builtin.fetch": ("fetch_tool",),
    "harness.tools.builtin.files": ("file_tools",),
    "harness.tools.builtin.shell": ("shell_tool",),
    "harness.tools.executor": ("Caller", "ToolExecutor"),
    "harness.tools.workspace": ("Workspace",),
}
"""Where each name is defined."""
_HOME_OF: Final = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AdmissionUnavailable",
    "AnthropicProvider",
    "Approval",
    "ApprovalDecided",
    "ApprovalGate",
    "ApprovalRequested",
    "Asker",
    "AssistantMessage",
    "CallbackReporter",
    "Caller",
    "CanDetach",
    "CanRetract",
    "Closed",
    "Completed",
    "ConfigError",
    "Decision",
    "Engine",
    "ErrorKind",
    "Event",
    "Grant",
    "GrantStore",
    "HarnessError",
    "InProcessAdmission",
    "InvalidTransition",
    "JsonLinesReporter",
    "KernelSettings",
    "LimitExceeded",
    "Limits",
    "MemoryGrantStore",
    "MemoryParkingStore",
    "MemorySessionStore",
    "Message",
    "MessageRetracted",
    "ModelDelta",
    "ModelEnded",
    "ModelProvider",
    "ModelReasoning",
    "ModelRequest",
    "ModelRetrying",
    "ModelStarted",
    "OpenAIChatProvider",
    "OpenAIResponsesProvider",
    "Origin",
    "ParkingStore",
    "Policy",
    "ProviderError",
    "Queued",
    "Reasoning",
    "ReasoningDelta",
    "RecordingReporter",
    "Refused",
    "Reporter",
    "RunEnded",
    "RunError",
    "RunInput",
    "RunStarted",
    "Runtime",
    "ScriptedProvider",
    "Session",
    "SessionStore",
    "SilentReporter",
    "StaleFence",
    "StartOutcome",
    "Started",
    "StepTaken",
    "StopReason",
    "StoreError",
    "StreamItem",
    "StreamingProvider",
    "SummaryMessage",
    "Task",
    "TaskStateChanged",
    "TaskStatus",
    "TerminalAsker",
    "TerminalReporter",
    "Text",
    "TextDelta",
    "TimelineReporter",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolContext",
    "ToolEnded",
    "ToolError",
    "ToolExecutor",
    "ToolProgressed",
    "ToolResult",
    "ToolSpec",
    "ToolStarted",
    "Turns",
    "Usage",
    "UsageReport",
    "UsageReported",
    "UserMessage",
    "VersionConflict",
    "Workspace",
    "__version__",
    "by_name",
    "calls",
    "default_tools",
    "fetch_tool",
    "file_tools",
    "open_runtime",
    "open_stores",
    "provider_from",
    "says",
    "shell_tool",
    "terminal_chat",
    "to_json",
    "tool",
]


if not TYPE_CHECKING:  # for a type checker only the names above exist, so that it finds a misspelt one

    def __getattr__(name: str) -> object:
        if (module := _HOME_OF.get(name)) is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(module), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
