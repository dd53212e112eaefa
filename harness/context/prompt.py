"""The system prompt of a run: who the assistant is, then what the workspace says, then which skills there are."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from harness.context.instructions import folders_up, instructions_text, read_instructions
from harness.context.skills import catalogue, find_skills
from harness.tools.executor import Caller

log = structlog.stdlib.get_logger(__name__)

SystemPrompt = Callable[[Caller], Awaitable[str]]
"""Makes the system prompt of one run when it begins to work, also after a question."""
SKILLS_FOLDER: Final = Path(".agents", "skills")


@dataclass(frozen=True, slots=True)
class WorkspacePrompt:
    """A `SystemPrompt` that reads its files anew for each run.

    `base`: what goes first. `instructions`: the folders whose AGENTS.md holds, the root first, the nearest last.
    `skills`: folders of skills, the first one's goes before another's of the same name. Each warning is logged once.
    """

    base: str
    instructions: Sequence[Path] = ()
    skills: Sequence[Path] = ()
    _warned: set[str] = field(default_factory=set[str], init=False, repr=False, compare=False)

    async def __call__(self, _caller: Caller) -> str:
        """The prompt, the same for every caller."""
        text, warnings = await asyncio.to_thread(self._read)
        for warning in warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                log.warning(warning)
        return text

    def _read(self) -> tuple[str, Sequence[str]]:
        instructions, skills = read_instructions(self.instructions), find_skills(self.skills)
        parts = [self.base, instructions_text(instructions.files), catalogue(skills.found)]
        return "\n\n".join(part for part in parts if part), (*instructions.warnings, *skills.warnings)


def terminal_prompt(base: str, folder: Path, home: Path) -> WorkspacePrompt:
    """The prompt for work in a folder: with its instructions and skills, and with the skills of the person."""
    return WorkspacePrompt(
        base, folders_up(folder), tuple(dict.fromkeys((folder / SKILLS_FOLDER, home / SKILLS_FOLDER)))
    )
