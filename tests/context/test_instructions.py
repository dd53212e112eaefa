"""AGENTS.md: found where it should be, read anew for each run, and never from outside of the workspace."""

import os
from pathlib import Path

import pytest

from harness.context.instructions import (
    MAX_CHARS,
    MAX_FILE_CHARS,
    folders_up,
    instructions_text,
    read_instructions,
)
from harness.context.prompt import WorkspacePrompt, terminal_prompt
from harness.tools.executor import Caller

SOMEBODY = Caller("t", "s", "alice")


def put(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_in_a_repository_the_folders_from_its_root_down_count(tmp_path: Path) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    inner = tmp_path / "repo" / "a" / "b"
    inner.mkdir(parents=True)
    assert folders_up(inner) == [tmp_path / "repo", tmp_path / "repo" / "a", inner]
    assert folders_up(tmp_path / "repo") == [tmp_path / "repo"]


def test_a_worktree_is_a_repository_too(tmp_path: Path) -> None:
    put(tmp_path / "tree" / ".git", "gitdir: elsewhere")
    (tmp_path / "tree" / "a").mkdir()
    assert folders_up(tmp_path / "tree" / "a") == [tmp_path / "tree", tmp_path / "tree" / "a"]


def test_outside_of_a_repository_nothing_above_the_folder_counts(tmp_path: Path) -> None:
    put(tmp_path / "AGENTS.md", "Obey me.")
    (tmp_path / "mine").mkdir()
    assert folders_up(tmp_path / "mine") == [tmp_path / "mine"]
    assert read_instructions(folders_up(tmp_path / "mine")).files == ()


def test_the_nearest_file_stands_last_each_under_its_path(tmp_path: Path) -> None:
    put(tmp_path / "AGENTS.md", "\ufeffUse tabs.\n")
    put(tmp_path / "a" / "AGENTS.md", "用空格。\n")
    found = read_instructions([tmp_path, tmp_path / "a"])
    assert (found.files, found.warnings) == ((("AGENTS.md", "Use tabs."), ("a/AGENTS.md", "用空格。")), ())
    text = instructions_text(found.files)
    assert text.startswith("# Instructions of this workspace")
    assert text.index("## AGENTS.md\n\nUse tabs.") < text.index("## a/AGENTS.md\n\n用空格。")


def test_a_file_that_is_too_long_is_cut_and_says_so(tmp_path: Path) -> None:
    put(tmp_path / "AGENTS.md", "x" * (MAX_FILE_CHARS + 5))
    ((_, text),) = read_instructions([tmp_path]).files
    assert text.startswith("x" * MAX_FILE_CHARS)
    assert "the rest of this file, 5 characters, is left out" in text


def test_the_nearest_files_get_the_room_first(tmp_path: Path) -> None:
    folders = [tmp_path]
    for name in ("a", "b", "c"):
        folders.append(folders[-1] / name)
    for folder in folders:
        put(folder / "AGENTS.md", folder.name[-1] * (MAX_FILE_CHARS - 1))
    found = read_instructions(folders)
    assert [path for path, _ in found.files] == ["a/AGENTS.md", "a/b/AGENTS.md", "a/b/c/AGENTS.md"]
    assert sum(len(text) for _, text in found.files) < MAX_CHARS + 200
    assert len(found.warnings) == 1
    assert "fill the room" in found.warnings[0]


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"gr\xfc\xdfe", "not UTF-8 text: byte 2"), (b"a\0b", "binary"), (b"x" * (2**20 + 1), "1,048,577 bytes")],
)
def test_what_is_no_text_is_left_out_with_one_warning(tmp_path: Path, content: bytes, reason: str) -> None:
    put(tmp_path / "AGENTS.md", content)
    found = read_instructions([tmp_path])
    assert found.files == ()
    (warning,) = found.warnings
    assert reason in warning
    assert str(tmp_path / "AGENTS.md") in warning


def test_a_link_inside_the_workspace_is_followed(tmp_path: Path) -> None:
    put(tmp_path / "docs" / "rules.md", "Be kind.")
    (tmp_path / "AGENTS.md").symlink_to("docs/rules.md")
    assert read_instructions([tmp_path]).files == (("AGENTS.md", "Be kind."),)


@pytest.mark.parametrize(
    "target", ["../outside.md", "/etc/hostname", "loop/../../outside.md", "missing.md", "AGENTS.md"]
)
def test_a_link_that_leads_out_or_nowhere_is_left_out(tmp_path: Path, target: str) -> None:
    put(tmp_path / "outside.md", "Secret.")
    root = tmp_path / "root"
    (root / "loop").mkdir(parents=True)
    (root / "AGENTS.md").symlink_to(target)
    found = read_instructions([root])
    assert found.files == ()
    assert "is left out: it" in found.warnings[0]


def test_a_linked_folder_leads_no_further_than_the_file_would(tmp_path: Path) -> None:
    put(tmp_path / "outside" / "AGENTS.md", "Secret.")
    root = tmp_path / "root"
    root.mkdir()
    (root / "inner").symlink_to(tmp_path / "outside")
    found = read_instructions([root, root / "inner"])
    assert (found.files, len(found.warnings)) == ((), 1)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_left_out(tmp_path: Path, make: object) -> None:
    make(tmp_path / "AGENTS.md")  # type: ignore[operator]
    found = read_instructions([tmp_path])
    assert (found.files, len(found.warnings)) == ((), 1)


def test_a_missing_or_empty_file_says_nothing(tmp_path: Path) -> None:
    put(tmp_path / "a" / "AGENTS.md", " \n")
    for folder in (tmp_path, tmp_path / "a", tmp_path / "absent"):
        found = read_instructions([folder])
        assert (found.files, found.warnings) == ((), ())
    assert instructions_text(()) == ""


async def test_the_next_run_sees_what_has_changed(tmp_path: Path) -> None:
    prompt = WorkspacePrompt("Be brief.", [tmp_path])
    assert await prompt(SOMEBODY) == "Be brief."
    put(tmp_path / "AGENTS.md", "Use tabs.")
    assert (await prompt(SOMEBODY)).endswith("## AGENTS.md\n\nUse tabs.")
    put(tmp_path / "AGENTS.md", "Use spaces.")
    text = await prompt(SOMEBODY)
    assert text.startswith("Be brief.\n\n# Instructions of this workspace")
    assert text.endswith("Use spaces.")


async def test_a_warning_is_logged_once_and_not_with_every_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = WorkspacePrompt("Be brief.", [tmp_path])
    put(tmp_path / "AGENTS.md", b"\xff")
    for _ in range(3):
        assert await prompt(SOMEBODY) == "Be brief."
    captured = capsys.readouterr()
    assert (captured.out + captured.err).count("not UTF-8 text") == 1


async def test_the_terminal_reads_the_folder_and_the_skills_of_the_person(tmp_path: Path) -> None:
    put(tmp_path / "repo" / ".git" / "HEAD", "")
    put(tmp_path / "repo" / "AGENTS.md", "Root rule.")
    put(tmp_path / "repo" / "a" / "AGENTS.md", "Inner rule.")
    for where, name in (("repo/a", "near"), ("home", "far")):
        put(
            tmp_path / where / ".agents" / "skills" / name / "SKILL.md",
            f"---\nname: {name}\ndescription: Does {name} things.\n---\nBody.",
        )
    text = await terminal_prompt("Be brief.", tmp_path / "repo" / "a", tmp_path / "home")(SOMEBODY)
    order = [
        "Be brief.",
        "Root rule.",
        "Inner rule.",
        "# Skills",
        "- far: Does far things.",
        "- near: Does near things.",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
