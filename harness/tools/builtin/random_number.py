"""A random integer."""

import secrets

from harness.errors import ToolError
from harness.tools.base import tool


@tool(read_only=True)
def random_number(min: int, max: int) -> str:
    """A random integer between min and max, both included."""
    if min > max:
        raise ToolError(f"min ({min}) must not be greater than max ({max}).")
    return str(min + secrets.randbelow(max - min + 1))
