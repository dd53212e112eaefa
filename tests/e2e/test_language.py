"""LANGUAGE is also a variable of the desktop's own."""

import pytest

from bots.settings import Settings


@pytest.mark.parametrize(
    ("value", "language"),
    [("zh", "zh"), ("en", "en"), ("ZH_CN.UTF-8", "zh"), ("en_US:en", "en"), ("de:en", None), ("", None)],
)
def test_what_desktops_put_there_is_understood_or_left_alone(
    monkeypatch: pytest.MonkeyPatch, value: str, language: str | None
) -> None:
    monkeypatch.setenv("LANGUAGE", value)
    assert Settings(_env_file=None).language == language  # type: ignore[call-arg]
