"""The process of one blocking call: a script that reads one request, calls one function, and writes one answer.

Request and answer are one line of JSON each. The answer is `{"result": text}`, `{"refused": text}` (a ToolError), or
`{"failed": text, "traceback": text}`. Then it waits to be killed.
"""

import asyncio
import fcntl
import importlib
import importlib.util
import io
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

_MAIN: Final = "__mp_main__"
"""What `multiprocessing` calls the started script in its processes too: libraries know the name."""
_FAILURE_CHARS: Final = 16_000
_GUARD: Final = 'The script that defines it must start its work under `if __name__ == "__main__":`.'


def main() -> None:
    """Serve the one request."""
    channel = int(sys.argv[1])
    os.set_inheritable(channel, False)  # noqa: FBT003 - takes no keyword
    request: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    _die_with_parent()
    _quiet_streams()
    sys.path[:] = request["path"]
    sys.argv = request["argv"]
    answer = json.dumps(_answer(request)).encode() + b"\n"
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with open(channel, "wb") as file:
        file.write(answer)
    # The end is the parent's to make: it kills the group while this process still holds its number.
    while True:
        signal.pause()


def _die_with_parent() -> None:
    """Have the kernel kill this group when the parent dies, also in a loop that never comes back to the interpreter.

    The parent holds the other end of standard input as long as it lives. The function itself reads from an empty file.
    """
    lifeline = os.dup(0)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)  # elsewhere SIGIO, which ends a process as well
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:
        os._exit(1)  # it died before the kernel was asked to watch
    with open(os.devnull, "rb") as empty:
        os.dup2(empty.fileno(), 0)


def _quiet_streams() -> None:
    """Whatever is printed arrives, also when the process crashes right afterwards, and printing never fails."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _answer(request: dict[str, Any]) -> dict[str, str]:
    try:
        function = _load(request["module"], request["file"], request["name"])
    except BaseException as error:
        hint = f" {_GUARD}" if isinstance(error, RuntimeError | SystemExit) else ""
        return _failed(f"The tool's module could not be loaded: {_said(error)}.{hint}")
    from harness.errors import ToolError
    from harness.tools.executor import clamp
    from harness.tools.schema import arguments_model, checked

    try:
        # Here once more, because values such as enums or models cannot be sent.
        result = function(**checked(arguments_model(function), request["arguments"]))
        return {"result": clamp(result if isinstance(result, str) else str(result))}
    except ToolError as error:
        return {"refused": clamp(str(error))}
    except BaseException as error:
        return _failed(f"The tool failed: {_said(error)}")


def _load(module: str, file: str, name: str) -> Callable[..., Any]:
    found: Any = getattr(asyncio.run(_module(module, file)), name)
    return getattr(found, "function", found)


async def _module(module: str, file: str) -> object:
    # In a running loop on purpose: a script without its guard would start its whole work here a second time, and
    # `asyncio.run` refuses to.
    if not file:
        return importlib.import_module(module)
    spec = importlib.util.spec_from_file_location(_MAIN, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    loaded = importlib.util.module_from_spec(spec)
    loaded.__spec__ = None  # as in a script: `multiprocessing` goes by it when the function uses that
    sys.modules["__main__"] = sys.modules[_MAIN] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def _said(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _failed(text: str) -> dict[str, str]:
    return {"failed": text[:_FAILURE_CHARS], "traceback": traceback.format_exc()[-_FAILURE_CHARS:]}


if __name__ == "__main__":
    main()
