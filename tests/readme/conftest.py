from __future__ import annotations

import pytest

from tests.readme.reader import Reader, copy_of_the_clone


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Has installed the README's extra, that of the other framework, and those of the lock services."""
    folder = tmp_path_factory.mktemp("reader")
    made = Reader(folder / "venv")
    made.install(copy_of_the_clone(folder / "clone"), "flask", "redis", "zookeeper")
    return made
