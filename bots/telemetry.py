"""Logs: structured, one line per event, without message text and without secrets."""

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final, Literal

import structlog

_SECRETS: Final = re.compile(r"\b(xox[a-z]-|xapp-|sk-|Bearer )[A-Za-z0-9_\-.]{6,}")


def configure_logging(level: str, format: Literal["console", "json"]) -> None:
    """Set up logging of the whole process, once, to standard error."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info if format == "json" else _keep,
        redact,
    ]
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if format == "json"
        # Plain tracebacks: the default shows local variables, and those hold prompts and tokens.
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    # Libraries log through the standard module: their warnings matter, their chatter does not.
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )


def redact(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Blank out anything that looks like a token, wherever it slipped in."""
    for key, value in line.items():
        if isinstance(value, str) and _SECRETS.search(value):
            line[key] = _SECRETS.sub(r"\1***", value)
    return line


def _keep(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return line
