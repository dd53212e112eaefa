"""The current date and time."""

from datetime import datetime
from zoneinfo import ZoneInfo

from harness.errors import ToolError
from harness.tools.base import tool


@tool(read_only=True)
def clock(timezone: str = "UTC") -> str:
    """The current date, time and weekday in a time zone, given by its IANA name such as Asia/Shanghai."""
    try:
        zone = ZoneInfo(timezone)
    except (KeyError, ValueError, OSError) as error:
        raise ToolError(f"{timezone!r} is not a time zone. Use an IANA name such as Europe/Berlin.") from error
    now = datetime.now(zone)
    return f"{now.isoformat(timespec='seconds')} ({now:%A}, {timezone})"
