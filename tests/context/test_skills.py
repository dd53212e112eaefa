"""Skills: what is valid is named in the prompt and loaded on demand; nothing outside of a skill's folder is read."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.context.front_matter import split
from harness.context.skills import MAX_CATALOGUE_CHARS, MAX_SKILLS, Skill, catalogue, find_skills, skill_tool
from harness.errors import ToolError
from harness.tools.base import Tool
from tests.context.test_instructions import put
from tests.tools.use import context

GOOD = "---\nname: {name}\ndescription: {description}\n---\n\n# How\n\nDo it.\n"


def skill(folder: Path, name: str, text: str = GOOD, description: str = "Does things.") -> Path:
    return put(folder / name / "SKILL.md", text.replace("{name}", name).replace("{description}", description)).parent


async def load(tool: Tool, name: str, file: str = "") -> str:
    arguments = {"name": name} | ({"file": file} if file else {})
    return await tool.call(arguments, context())


def test_skills_are_found_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("pdf", "csv-2", "a" * 64):
        skill(tmp_path, name)
    put(tmp_path / "README.md", "not a skill")
    (tmp_path / "empty").mkdir()
    found = find_skills([tmp_path, tmp_path / "absent"])
    assert [one.name for one in found.found] == ["a" * 64, "csv-2", "pdf"]
    assert found.warnings == ()


def test_of_two_with_one_name_the_earlier_folder_wins(tmp_path: Path) -> None:
    skill(tmp_path / "mine", "pdf", description="Mine.")
    skill(tmp_path / "theirs", "pdf", description="Theirs.")
    found = find_skills([tmp_path / "mine", tmp_path / "theirs"])
    assert [one.description for one in found.found] == ["Mine."]
    assert "goes first" in found.warnings[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# No head\n", "does not begin with YAML"),
        ("---\nname: pdf\ndescription: d\n", "does not begin with YAML"),
        (GOOD.replace("{name}", "other"), "must be the name of its folder"),
        (GOOD.replace("{name}", "PDF"), "lower-case"),
        (GOOD.replace("{name}", "a--b"), "lower-case"),
        (GOOD.replace("{name}", "'x\\n'"), "lower-case"),
        ("---\ndescription: d\n---\n", "`name` must"),
        ("---\nname: [pdf]\ndescription: d\n---\n", "`name` must"),
        ("---\nname: pdf\n---\n", "`description` must"),
        ("---\nname: pdf\ndescription: ''\n---\n", "`description` must"),
        (GOOD.replace("{description}", "x" * 1025), "`description` must"),
        ("---\nname: pdf\ndescription: Use when: always\n---\n", "its YAML is not valid, line 3"),
        ("---\n- a\n---\n", "no fields"),
        ("---\n---\n", "no fields"),
        ("---\nname: " + "[" * 5_000 + "\n---\n", "YAML"),
        ("---\nname: !!python/object/apply:os.system [true]\ndescription: d\n---\n", "`name` must"),
        (b"---\nname: pdf\ndescription: \xff\n---\n", "not UTF-8"),
        ("---\nname: pdf\ndescription: " + "x" * 20_000 + "\n---\n", "does not begin with YAML"),
    ],
)
def test_a_bad_skill_is_left_out_with_one_clear_warning(tmp_path: Path, text: str | bytes, reason: str) -> None:
    skill(tmp_path, "good")
    put(
        tmp_path / "pdf" / "SKILL.md",
        text if isinstance(text, bytes) else text.replace("{name}", "pdf").replace("{description}", "d"),
    )
    found = find_skills([tmp_path])
    assert [one.name for one in found.found] == ["good"]
    (warning,) = found.warnings
    assert f"the skill {tmp_path / 'pdf'} is left out: " in warning
    assert reason in warning


def test_yaml_as_people_write_it_is_understood() -> None:
    text = (
        "---  \r\nname: pdf # the name\r\ndescription: >-\r\n  Reads: many\r\n  pages.\r\nlicense: MIT\r\n"
        "metadata:\r\n  version: 1.0\r\n  on: yes\r\n"
        'allowed-tools: "Bash(git:*) Read"\r\n---\r\nBody\r\n---\r\nmore\r\n'
    )
    fields, body = split(text)
    assert fields == {
        "name": "pdf",
        "description": "Reads: many pages.",
        "license": "MIT",
        "metadata": {"version": "1.0", "on": "yes"},
        "allowed-tools": "Bash(git:*) Read",
    }
    assert body == "Body\n---\nmore"


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="-\n:ab &*!|>[]{}'\"#%@\t\\\0", max_size=60))
def test_any_head_is_read_or_refused_with_a_reason(head: str) -> None:
    text = f"---\n{head}\n---\nBody"
    try:
        outcome = split(text)
    except ToolError as error:
        outcome = str(error)
    assert (outcome and "\n" not in outcome) if isinstance(outcome, str) else text.endswith(outcome[1])


def test_links_out_of_the_folder_are_no_skills(tmp_path: Path) -> None:
    outside = skill(tmp_path / "outside", "pdf")
    folder = tmp_path / "skills"
    folder.mkdir()
    (folder / "pdf").symlink_to(outside)
    (folder / "csv").mkdir()
    (folder / "csv" / "SKILL.md").symlink_to(outside / "SKILL.md")
    found = find_skills([folder])
    assert found.found == ()
    assert all("leads out of its folder" in warning for warning in found.warnings)
    assert len(found.warnings) == 2


def test_more_folders_than_anybody_has_are_not_read(tmp_path: Path) -> None:
    for number in range(MAX_SKILLS + 1):
        (tmp_path / f"s{number}").mkdir()
    assert "only the first" in find_skills([tmp_path]).warnings[0]


def test_the_catalogue_has_a_line_for_each_skill(tmp_path: Path) -> None:
    skills = [Skill("csv", "Reads\n tables.\u202e", tmp_path), Skill("pdf", "y" * 1024, tmp_path)]
    lines = catalogue(skills).splitlines()
    assert "`skill`" in lines[2]
    assert lines[4] == "- csv: Reads tables.\\u202e"
    assert (len(lines[5]), lines[5][-1]) == (400, "…")
    assert catalogue([]) == ""


def test_the_catalogue_has_an_end(tmp_path: Path) -> None:
    text = catalogue([Skill(f"s{number}", "y" * 1024, tmp_path) for number in range(150)])
    assert len(text) < MAX_CATALOGUE_CHARS + 200
    named = text.count("\n- s")
    assert f"{150 - named} more skills" in text


async def test_the_tool_gives_the_body_and_names_the_further_files(tmp_path: Path) -> None:
    folder = skill(tmp_path, "pdf")
    put(folder / "references" / "api.md", "The API.")
    put(folder / ".hidden", "no")
    tool = skill_tool(lambda: [tmp_path])
    assert await load(tool, "pdf") == "# How\n\nDo it.\n\nFurther files of this skill: references/api.md"
    assert await load(tool, "pdf", "references/api.md") == "The API."
    assert (tool.read_only, tool.policy, tool.spec.name) == (True, "allow", "skill")


async def test_a_skill_that_came_later_is_found(tmp_path: Path) -> None:
    tool = skill_tool(lambda: [tmp_path])
    with pytest.raises(ToolError, match="The skills are: none"):
        await load(tool, "pdf")
    skill(tmp_path, "pdf")
    assert "Do it." in await load(tool, "pdf")


@pytest.mark.parametrize(
    "file", ["../other/SKILL.md", "/etc/hostname", "a/../../x", "~/x", "link", "linked/x", "..", "."]
)
async def test_no_path_leads_out_of_the_skill(tmp_path: Path, file: str) -> None:
    secret = put(tmp_path / "outside" / "x", "Secret.")
    folder = skill(tmp_path / "skills", "pdf")
    skill(tmp_path / "skills", "other")
    (folder / "link").symlink_to(secret)
    (folder / "linked").symlink_to(secret.parent)
    with pytest.raises(ToolError):
        await load(skill_tool(lambda: [tmp_path / "skills"]), "pdf", file)


@pytest.mark.parametrize("name", ["../pdf", "", "PDF", "pdf/", "absent"])
async def test_only_a_name_is_a_name(tmp_path: Path, name: str) -> None:
    skill(tmp_path / "skills", "pdf")
    with pytest.raises(ToolError, match=r"There is no skill .*The skills are: pdf"):
        await load(skill_tool(lambda: [tmp_path / "skills"]), name)


async def test_a_file_that_is_missing_or_no_text_says_so(tmp_path: Path) -> None:
    folder = skill(tmp_path, "pdf")
    put(folder / "image.png", b"\x89PNG\0")
    tool = skill_tool(lambda: [tmp_path])
    with pytest.raises(ToolError, match=r"The skill pdf has no file 'absent\.md'"):
        await load(tool, "pdf", "absent.md")
    with pytest.raises(ToolError, match="binary"):
        await load(tool, "pdf", "image.png")


async def test_a_long_body_is_clamped(tmp_path: Path) -> None:
    skill(tmp_path, "pdf", GOOD + "x" * 100_000)
    assert len(await load(skill_tool(lambda: [tmp_path]), "pdf")) < 17_000


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(file=st.text(alphabet="./ab~\\\0S", min_size=1, max_size=12))
async def test_any_path_reads_a_file_of_the_skill_or_nothing(tmp_path: Path, file: str) -> None:
    put(tmp_path / "a", "Secret.")
    put(tmp_path / "skills" / "a", "Secret.")
    folder = skill(tmp_path / "skills", "pdf")
    put(folder / "a" / "b", "Open.")
    try:
        read = await load(skill_tool(lambda: [tmp_path / "skills"]), "pdf", file)
    except ToolError:
        read = None
    assert read in (None, "Open.")
