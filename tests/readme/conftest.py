from __future__ import annotations

import pytest

from tests.readme.reader import Reader, copy_of_the_clone


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """Has installed the README's extras, and that of the one lock service which they leave out."""
    folder = tmp_path_factory.mktemp("reader")
    made = Reader(folder / "venv")
    made.install(copy_of_the_clone(folder / "clone"), "zookeeper")
    return made
