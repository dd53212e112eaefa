"""The tools that come with the harness."""

from harness.tools.base import Tool
from harness.tools.builtin.calculator import calculator
from harness.tools.builtin.clock import clock
from harness.tools.builtin.random_number import random_number


def default_tools() -> list[Tool]:
    """Every built-in tool that needs no permission."""
    return [calculator, random_number, clock]
