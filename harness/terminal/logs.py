"""What the log may say on a person's terminal."""

import logging
import sys

import structlog
from structlog.typing import EventDict, WrappedLogger


def quiet_logs() -> None:
    """Logs are for operators: here only what matters, on standard error, without local variables."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        processors=[
            _only_faults,
            structlog.stdlib.add_log_level,
            structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
        ],
    )


def _only_faults(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """What failed is shown by the reporter already; a log line adds something only where there is a traceback."""
    if not event.get("exc_info"):
        raise structlog.DropEvent
    return event
