"""The head of a SKILL.md file: YAML between two lines of dashes. Pure."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, cast

from harness.errors import ToolError

MAX_CHARS: Final = 16_000
_BLOCK: Final = re.compile(r"---[ \t]*\n(?P<head>.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)


@lru_cache(maxsize=256)
def split(text: str) -> tuple[Mapping[str, object], str]:
    """The fields, and the text behind them. Scalars stay the text they are written as: `1.0` is no number here.

    Raises ToolError, which says what is wrong.
    """
    text = text.replace("\r\n", "\n")
    block = _BLOCK.match(text[: MAX_CHARS + 10])
    if block is None:
        raise ToolError("it does not begin with YAML between two lines of ---")
    return _fields(block["head"]), text[block.end() :].strip()


def _fields(head: str) -> Mapping[str, object]:
    # Real YAML and no subset of our own: descriptions in the wild are folded, quoted, and full of colons. Imported
    # here, so that whoever has no skills never loads it.
    import yaml

    try:
        # This loader makes text, lists and mappings and nothing else, whatever the tags say.
        fields: Any = yaml.load(head, Loader=yaml.BaseLoader)  # noqa: S506
    except yaml.YAMLError as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        where = f", line {line + 2}" if isinstance(line, int) else ""
        raise ToolError(
            f"its YAML is not valid{where}: {getattr(error, 'problem', None) or 'cannot be read'}"
        ) from None
    except (RecursionError, ValueError) as error:
        raise ToolError(f"its YAML cannot be read: {type(error).__name__}") from None
    if not isinstance(fields, dict):
        raise ToolError("its YAML holds no fields such as `name: ...`")
    return cast("Mapping[str, object]", fields)
