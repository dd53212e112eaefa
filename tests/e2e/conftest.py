"""What the end-to-end tests of one worker share."""

from collections.abc import Iterator

import pytest

from tests.e2e.standing import Standing


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Services for the tests that do not stop or break them."""
    services = Standing(tmp_path_factory.mktemp("standing"))
    yield services
    services.close()
