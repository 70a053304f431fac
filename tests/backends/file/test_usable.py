"""The check of a directory says what its first use would say, and leaves it as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from distlock.errors import LockError
from distlock.testing.protocol_fixtures import Contender, ask
from tests.backend_class import backend_class
from tests.backends.file.stranger import NOBODY, Stranger

FileBackend = backend_class("file:///nowhere")
#: The folder of everything, as docs/reference/backends/file.md lists it.
FORMAT = "v2"

Arrange = Callable[[Path, Stranger], object]


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> Stranger:
    return Stranger(monkeypatch)


@pytest.fixture
def directory(open_directory: Path) -> Path:
    return open_directory / "lib" / "locks"


@pytest.fixture
def used(one: Contender, directory: Path, key: str) -> Path:
    """A directory that was used before."""
    mine = ask(key)
    one.held(mine)
    one.backend.release(mine)
    one.backend.close()
    return directory


@contextmanager
def by_another_user() -> Iterator[None]:
    """Somebody who owns nothing, where we can be that. Root may write everywhere."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def said(call: Callable[[], object]) -> str:
    with pytest.raises(LockError) as caught:
        call()
    return f"{type(caught.value).__name__}: {caught.value}"


def seen(path: Path) -> dict[Path, tuple[int, int, int]]:
    """All that is there, with what any use would change."""
    return {one: (s.st_ino, s.st_mode, s.st_mtime_ns) for one in path.rglob("*") for s in [one.lstat()]}


def points_to_itself(path: Path, _: Stranger) -> None:
    path.parent.mkdir()
    path.symlink_to(path.name)


def is_a_file(path: Path, _: Stranger) -> None:
    path.parent.mkdir()
    path.touch()


NEW: dict[str, Arrange] = {
    "is missing": lambda path, _: None,
    "is empty": lambda path, _: path.mkdir(parents=True),
    "is a file": is_a_file,
    "points to itself": points_to_itself,
    "is everybody's": lambda path, _: (path.mkdir(parents=True), path.chmod(0o777)),
    "is sticky": lambda path, _: (path.mkdir(parents=True), path.chmod(0o1777)),
    "is below everybody's": lambda path, _: (path.parent.mkdir(), path.parent.chmod(0o777)),
    "is somebody else's": lambda path, stranger: (path.mkdir(parents=True), stranger.own(path)),
}
USED: dict[str, Arrange] = {
    "is fine": lambda path, _: None,
    "is for a group": lambda path, _: path.chmod(0o2770),
    "has somebody else's state": lambda path, stranger: stranger.own(path / FORMAT / "state"),
    "has everybody's state": lambda path, _: (path / FORMAT / "state").chmod(0o666),
    "has a link for a state": lambda path, _: (
        (path / FORMAT / "state").unlink(),
        (path / FORMAT / "state").symlink_to("/etc/hostname"),
    ),
    "has everybody's queue": lambda path, _: (path / FORMAT / "queue").chmod(0o777),
    "has somebody else's FIFOs": lambda path, stranger: stranger.own(path / FORMAT / "wake"),
}
FINE = ("is missing", "is empty", "is sticky", "is fine", "is for a group")


def agree(url: str, directory: Path, key: str, name: str) -> None:
    before = seen(directory.parents[1])
    if name in FINE:
        FileBackend.refuse_unusable(url)
    else:
        found = said(lambda: FileBackend.refuse_unusable(url))
    assert seen(directory.parents[1]) == before
    backend = FileBackend(url)
    if name in FINE:
        backend.request(ask(key))
        backend.close()
    elif "link" not in name:
        assert found == said(lambda: backend.request(ask(key)))


@pytest.mark.parametrize("name", NEW)
def test_a_new_directory_is_told_as_by_its_first_use(
    directory: Path, url: str, key: str, stranger: Stranger, name: str
) -> None:
    NEW[name](directory, stranger)
    agree(url, directory, key, name)


@pytest.mark.parametrize("name", USED)
def test_a_used_directory_is_told_as_by_its_next_use(
    used: Path, url: str, key: str, stranger: Stranger, name: str
) -> None:
    USED[name](used, stranger)
    agree(url, used, key, name)


@pytest.mark.parametrize("level", [".", "..", "../.."])
def test_a_directory_that_this_user_can_not_make_is_told(directory: Path, url: str, level: str) -> None:
    above = Path(os.path.normpath(directory / level))
    above.mkdir(parents=True, exist_ok=True)
    above.chmod(0o555)
    before = seen(directory.parents[1])
    with by_another_user():
        found = said(lambda: FileBackend.refuse_unusable(url))
        assert found == said(lambda: FileBackend(url).request(ask("shop:product_1")))
    assert "may not be written by this user" in found
    assert seen(directory.parents[1]) == before


@pytest.mark.parametrize("level", [FORMAT, f"{FORMAT}/queue", f"{FORMAT}/wake", f"{FORMAT}/state"])
def test_what_another_user_has_made_inside_is_told(used: Path, url: str, level: str) -> None:
    """As after one ``sudo manage.py``."""
    for path in (used, *used.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o666 & ~0o002)
    (used / level).chmod(0o555 if (used / level).is_dir() else 0o444)
    with by_another_user():
        found = said(lambda: FileBackend.refuse_unusable(url))
    assert "may not be written by this user" in found
    assert "install -d" in found


def test_a_read_only_file_system_is_told(directory: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's word is changed on its way to us: to mount one, one has to be root."""
    status = os.statvfs(directory.parents[1])
    fields = list(status)
    fields[8] |= os.ST_RDONLY
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result(fields))
    assert f"{directory.parent} is on a read-only file system" in said(
        lambda: FileBackend.refuse_unusable(url)
    )


def test_it_leaves_the_locks_of_this_process_alone(
    one: Contender, two: Contender, url: str, key: str
) -> None:
    """To close a descriptor of a file gives up all record locks of the process on it."""
    one.held(ask(key))
    before = len(os.listdir("/proc/self/fd"))
    FileBackend.refuse_unusable(url)
    assert len(os.listdir("/proc/self/fd")) <= before
    two.queued(ask(key))
