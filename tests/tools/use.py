"""Calling a tool as the executor does, without an engine around it."""

from collections.abc import Awaitable, Callable

from harness.tools.base import Tool, ToolContext


async def silent(_: str) -> None:
    return None


def context(progress: Callable[[str], Awaitable[None]] = silent) -> ToolContext:
    return ToolContext("task", "session", "someone", progress)


async def use(tool: Tool, **arguments: object) -> str:
    return await tool.call(arguments, context())
