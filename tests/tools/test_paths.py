"""What a path may look like. The disk is not involved: see test_files for that."""

import os.path
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.errors import ToolError
from harness.tools.paths import alike, names_of

GOOD = {
    ".": (),
    "./": (),
    "a": ("a",),
    "a/b.txt": ("a", "b.txt"),
    "./a//b/./c": ("a", "b", "c"),
    ".hidden/..name": (".hidden", "..name"),
    "报告（１）.txt": ("报告（１）.txt",),
    "a b/ü.md": ("a b", "ü.md"),
    "/workspace": (),
    "/workspace/a/b": ("a", "b"),
    "/srv/chat/a": ("a",),
    "C.txt": ("C.txt",),
    "%2e%2e/x": ("%2e%2e", "x"),
}
REFUSED = {
    "": "empty",
    "..": "'..'",
    "../x": "'..'",
    "a/../../x": "'..'",
    "a/..": "'..'",
    "/workspace/../x": "'..'",
    "/srv/chat/../other/x": "'..'",
    "...": "'..'",
    ".. /x": "'..'",
    ". ./x": "'..'",
    "．．/x": "'..'",  # fullwidth dots
    "․․/x": "'..'",  # one dot leaders
    "‥/x": "'..'",  # two dot leader
    "…": "'..'",
    "a／b": "slash",
    "a＼b": "slash",
    "/etc/passwd": "not inside",
    "//etc/passwd": "not inside",
    "/workspace2/x": "not inside",
    "/srv/chat2/x": "not inside",
    "//workspace/x": "not inside",
    "~": "not inside",
    "~/x": "not inside",
    "C:": "not inside",
    "C:/Windows": "not inside",
    "c:x": "not inside",
    "..\\x": "backslash",
    "\\\\host\\share": "backslash",
    "a\0b": "control or invisible",
    "a\nb": "control or invisible",
    "a\x7f": "control or invisible",
    "a\u202etxt.exe": "control or invisible",  # right-to-left override
    "a\u2066b": "control or invisible",
    "a\u200bb": "control or invisible",
    "\ufeffa": "control or invisible",
    "a\u2028b": "control or invisible",
    "a\ud800": "control or invisible",
    "x" * 256: "longer than 255",
    "界" * 86: "longer than 255",
    "a/" * 2500: "longer than 4,096",
    "a/" * 33: "deeper than 32",
}
ROOT = Path("/srv/chat")


@pytest.mark.parametrize("path", GOOD)
def test_plain_paths_become_names(path: str) -> None:
    assert names_of(path, ROOT) == GOOD[path]


@pytest.mark.parametrize("path", REFUSED, ids=ascii)
def test_what_is_not_a_plain_path_is_refused_with_the_reason(path: str) -> None:
    with pytest.raises(ToolError, match=REFUSED[path]) as refused:
        names_of(path, ROOT)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


PIECES = st.sampled_from(
    ["..", ".", "/", "//", "a", "\\", "．", "‥", "／", "~", "C:", "\0", " ", "/workspace", "/srv/chat"]
)


@given(st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=8).map("".join)))
@example("/workspace/../../etc")
def test_whatever_is_accepted_stays_below_the_root(path: str) -> None:
    try:
        names = names_of(path, ROOT)
    except ToolError:
        return
    for name in names:
        assert name not in {"", ".", ".."}
        assert not set(name) & {"/", "\\", "\0"}
        assert len(name.encode()) <= 255
    # Also when every name is folded to the form in which another system would compare it.
    for form in (names, tuple(unicodedata.normalize("NFKC", name) for name in names)):
        assert os.path.normpath(os.path.join("/srv/chat", *form)) == os.path.join("/srv/chat", *form).rstrip("/")


@pytest.mark.parametrize(
    ("one", "other"), [("A.TXT", "a.txt"), ("é", "e\u0301"), ("Straße", "STRASSE"), ("ﬁle", "file"), ("Ｋ", "k")]
)
def test_names_that_differ_in_case_or_form_are_alike(one: str, other: str) -> None:
    assert alike(one) == alike(other)
    assert alike(one) != alike(other + "x")
