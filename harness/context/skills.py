"""Skills: folders of know-how that a model loads when a task calls for it, in the open format of agentskills.io.

A skill is a folder with a file SKILL.md, which begins with a name and a description in YAML. Only these two go into the
prompt; the text, and further files of the folder, are read by the tool `skill`.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.context.folder_text import read_text
from harness.context.front_matter import split
from harness.errors import ToolError
from harness.tools.base import Tool, tool
from harness.tools.builtin.files import in_thread
from harness.tools.executor import clamp
from harness.tools.paths import names_of, shown
from harness.tools.untrusted import printable

FILE_NAME: Final = "SKILL.md"
MAX_SKILLS: Final = 200
"""In one folder; what comes behind in the order of names is left out."""
MAX_CATALOGUE_CHARS: Final = 12_000
_MAX_LINE_CHARS: Final = 400
_MAX_LISTED: Final = 50
_NAME: Final = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_DESCRIPTION: Final = 1024
_HEADING: Final = """\
# Skills

Before you begin a task that one of these is about, load it with the tool `skill` and do as it says."""


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill; `folder` is where its files are."""

    name: str
    description: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Skills:
    """What was found, by name in order, and what was left out and why."""

    found: tuple[Skill, ...] = ()
    warnings: tuple[str, ...] = ()


def find_skills(folders: Sequence[Path]) -> Skills:
    """The skills in these folders. Of two with one name the earlier folder's is taken.

    Blocks. Raises nothing: what is no valid skill is left out with a warning; a folder that is missing has none.
    """
    found: dict[str, Skill] = {}
    warnings: list[str] = []
    for folder in folders:
        names, more = _folders_in(folder)
        if more:
            warnings.append(f"{printable(str(folder))}: only the first {MAX_SKILLS} folders are looked at")
        for name in names:
            try:
                skill = _skill(folder, name)
            except (ToolError, OSError) as error:
                reason = error if isinstance(error, ToolError) else type(error).__name__
                warnings.append(f"the skill {printable(str(folder / name))} is left out: {reason}")
                continue
            if skill is not None and skill.name in found:
                other = found[skill.name].folder
                warnings.append(
                    f"the skill {printable(str(skill.folder))} is left out: {printable(str(other))} goes first"
                )
            elif skill is not None:
                found[skill.name] = skill
    return Skills(tuple(found[name] for name in sorted(found)), tuple(warnings))


def catalogue(skills: Sequence[Skill]) -> str:
    """The part of the system prompt that names the skills; "" without any."""
    if not skills:
        return ""
    lines: list[str] = [_HEADING, ""]
    left = MAX_CATALOGUE_CHARS - len(_HEADING)
    for number, skill in enumerate(skills):
        description = " ".join(printable(word) for word in skill.description.split())
        line = f"- {skill.name}: {description}"
        line = line if len(line) <= _MAX_LINE_CHARS else f"{line[: _MAX_LINE_CHARS - 1].rstrip()}…"
        left -= len(line) + 1
        if left < 0:
            lines.append(f"[... {len(skills) - number:,} more skills, which there is no room to name ...]")
            break
        lines.append(line)
    return "\n".join(lines)


def skill_tool(folders: Callable[[], Sequence[Path]]) -> Tool:
    """The tool `skill`. `folders`: where the skills are, asked at each call, so that new ones are found."""

    @tool(read_only=True)
    async def skill(name: str, file: str = "") -> str:
        """Load a skill: what it says to do, or one further file of it.

        `name` is one of the skills that the system prompt lists; `file` a path below the skill's folder, as the skill
        mentions it, for example "references/api.md".
        """
        return await in_thread(lambda: _loaded(find_skills(folders()).found, name, file))

    return skill


def _folders_in(folder: Path) -> tuple[list[str], bool]:
    """Names of what may be skills, in order; and whether there are more."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    except OSError:
        return [], False
    return names[:MAX_SKILLS], len(names) > MAX_SKILLS


def _skill(folder: Path, name: str) -> Skill | None:
    """The skill in the folder of that name; None when it has no SKILL.md. ToolError when it is not a valid one."""
    root = folder / name
    try:
        text = read_text(root, root / FILE_NAME)
    except FileNotFoundError:
        return None
    if not root.resolve().is_relative_to(folder.resolve()):
        raise ToolError("it is a symbolic link that leads out of its folder")
    fields, _ = split(text)
    written, description = fields.get("name"), fields.get("description")
    if not isinstance(written, str) or not _NAME.fullmatch(written):
        raise ToolError("its `name` must be 1 to 64 lower-case letters, digits and single hyphens between them")
    if written != name:
        raise ToolError(f"its `name` is {shown(written)}, and must be the name of its folder")
    if not isinstance(description, str) or not 1 <= len(description.strip()) <= _MAX_DESCRIPTION:
        raise ToolError(f"its `description` must be a text of 1 to {_MAX_DESCRIPTION:,} characters")
    return Skill(written, description.strip(), root)


def _loaded(skills: Sequence[Skill], name: str, file: str) -> str:
    skill = next((skill for skill in skills if skill.name == name), None)
    if skill is None:
        names = ", ".join(skill.name for skill in skills) or "none"
        raise ToolError(f"There is no skill {shown(name)}. The skills are: {clamp(names, 1000)}.")
    try:
        if file:
            return clamp(read_text(skill.folder, skill.folder.joinpath(*names_of(file))))
        _, body = split(read_text(skill.folder, skill.folder / FILE_NAME))
    except FileNotFoundError:
        raise ToolError(f"The skill {name} has no file {shown(file or FILE_NAME)}.") from None
    more = _files_of(skill.folder)
    return clamp(body + ("\n\nFurther files of this skill: " + ", ".join(more) if more else ""))


def _files_of(folder: Path) -> list[str]:
    """Paths of the further files, as the tool takes them; no link is followed."""
    found: list[str] = []
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = (Path(base) / name).relative_to(folder).as_posix()
            if path != FILE_NAME and not name.startswith(".") and printable(path) == path:
                found.append(path)
            if len(found) > _MAX_LISTED:
                return [*found[:_MAX_LISTED], "..."]
    return found
