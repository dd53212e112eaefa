"""The @tool decorator and the value it makes.

    @tool
    async def weather(city: str, days: int = 1) -> str:
        \"\"\"The weather forecast of a city.\"\"\"
        ...

The description is the docstring, the schema comes from the signature.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, overload

from pydantic import BaseModel

from harness.approval import Policy
from harness.errors import ConfigError
from harness.messages import JsonObject
from harness.providers.base import ToolSpec
from harness.tools.blocking import call_in_process, check_blocking
from harness.tools.schema import arguments_model, checked, json_schema
from harness.tools.untrusted import marked


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Who calls, for a tool that wants to know: annotate a parameter with this type.

    `progress` shows a line of text while the tool runs.
    """

    task_id: str
    session_key: str
    requester: str
    progress: Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool. `read_only`: it changes nothing, so several may run at once. `timeout_s`: None = the general limit.

    `untrusted`: where its results come from when others wrote them, such as `"the file {path}"`, with the names of
    arguments in braces; the model is told so in a first line. Empty: the result is the tool's own.
    `policy`: whether a call runs (`allow`), waits for a person (`ask`), or is refused (`deny`).
    `blocking`: each call runs in a process of its own.
    """

    name: str
    description: str
    model: type[BaseModel]
    function: Callable[..., Any]
    read_only: bool = False
    timeout_s: float | None = None
    context_parameter: str = ""
    untrusted: str = ""
    policy: Policy = "allow"
    blocking: bool = False

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        return ToolSpec(self.name, self.description, json_schema(self.model))

    async def call(self, arguments: JsonObject, context: ToolContext) -> str:
        """Check the arguments, run the function, give its result as text.

        Raises ToolError for arguments that do not fit; whatever the function raises passes through, from a process of
        its own as a ToolError.
        """
        values = checked(self.model, arguments)
        if self.blocking:
            text = await call_in_process(self.function, arguments)
        else:
            if self.context_parameter:
                values[self.context_parameter] = context
            result = self.function(**values)
            if inspect.isawaitable(result):
                result = await result
            text = result if isinstance(result, str) else str(result)
        if not self.untrusted:
            return text
        return marked(self.untrusted.format_map({name: repr(value) for name, value in values.items()}), text)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str = "",
    read_only: bool = False,
    timeout_s: float | None = None,
    untrusted: str = "",
    policy: Policy = "allow",
    blocking: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    read_only: bool = False,
    timeout_s: float | None = None,
    untrusted: str = "",
    policy: Policy = "allow",
    blocking: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a `Tool` of a function with annotated parameters and a docstring.

    A plain `def` runs on the event loop and must return at once; anything that waits is an `async def`.

    What can do neither, because it computes for long or waits in a library that knows no asyncio, is a plain `def` with
    `blocking=True`. It stands at the top level of a module; each call runs in a process of its own, which imports that
    module, is killed with its children on stop and timeout, and shares no state with this process. It takes no
    `ToolContext`, its standard input is empty, and what it prints is not shown. A script that defines one starts its
    work under `if __name__ == "__main__":`. TypeError for a function that cannot be run so.
    """

    def make(function: Callable[..., Any]) -> Tool:
        description = inspect.getdoc(function)
        if not description:
            raise TypeError(f"tool {function.__name__} needs a docstring: it is all that the model knows about it")
        hints = inspect.get_annotations(function, eval_str=True)
        context = next((parameter for parameter, hint in hints.items() if hint is ToolContext), "")
        if blocking:
            check_blocking(function, has_context=bool(context))
        return Tool(
            name or function.__name__,
            description,
            arguments_model(function, frozenset({ToolContext})),
            function,
            read_only,
            timeout_s,
            context,
            untrusted,
            policy,
            blocking,
        )

    return make if function is None else make(function)


def by_name(tools: list[Tool]) -> Mapping[str, Tool]:
    """The tools by name; ConfigError when two share one."""
    found: dict[str, Tool] = {}
    for item in tools:
        if item.name in found:
            raise ConfigError(f"Two tools are called {item.name!r}; rename one with @tool(name=...).")
        found[item.name] = item
    return found
