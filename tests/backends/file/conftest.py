from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from distlock.testing.protocol_fixtures import Contender
from tests.backend_class import backend_class
from tests.backends.file.peer import Peer

FileBackend = backend_class("file:///nowhere")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user may enter and look at, unlike `tmp_path`."""
    path = Path(tempfile.mkdtemp(prefix="distlock-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def url(directory: Path) -> str:
    return f"file://{directory}"


@pytest.fixture
def key() -> str:
    return "shop:product_1"


@pytest.fixture
def contender(url: str) -> Iterator[Callable[[], Contender]]:
    """Makes clients in this process."""
    made: list[Contender] = []

    def make() -> Contender:
        made.append(Contender(FileBackend(url)))
        return made[-1]

    yield make
    for one in made:
        one.backend.close()


@pytest.fixture
def one(contender: Callable[[], Contender]) -> Contender:
    return contender()


@pytest.fixture
def two(contender: Callable[[], Contender]) -> Contender:
    return contender()


@pytest.fixture
def three(contender: Callable[[], Contender]) -> Contender:
    return contender()


@pytest.fixture
def peer(url: str) -> Iterator[Callable[..., Peer]]:
    """Starts processes."""
    made: list[Peer] = []

    def start(*arguments: str, wrapper: tuple[str, ...] = ()) -> Peer:
        made.append(Peer(url, *arguments, wrapper=wrapper))
        return made[-1]

    yield start
    for each in made:
        each.finish()
