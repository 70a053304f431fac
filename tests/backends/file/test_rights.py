"""Rights that are taken away while a lock is held or waited for, and given back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import distlock
from distlock.errors import BackendUnavailable, ConfigurationError
from distlock.testing.protocol_fixtures import Contender, ask
from distlock.testing.waits import wait_until
from tests.backends.file.peer import Peer

#: Longer than any of it takes on a busy machine.
CEILING = 60.0
#: A user that rights mean something to.
SOMEBODY = 64_210


@pytest.fixture
def directory(open_directory: Path) -> Path:
    """Of a group that the other process is in."""
    made = open_directory / "locks"
    made.mkdir()
    if os.geteuid() == 0:
        os.chown(made, 0, SOMEBODY)
    made.chmod(0o2770)
    return made


@pytest.fixture
def somebody(peer: Callable[..., Peer], directory: Path) -> Peer:
    each = peer()
    if os.geteuid() == 0:
        each.do("become", SOMEBODY, SOMEBODY)
    return each


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    rights = path.stat().st_mode
    path.chmod(0o550)
    try:
        yield
    finally:
        path.chmod(rights)


def line(directory: Path) -> Path:
    (found,) = (directory / "v2" / "queue").iterdir()
    return found


def test_a_lock_that_may_not_be_given_back_is_when_it_may(
    somebody: Peer, one: Contender, key: str, directory: Path
) -> None:
    assert somebody.do("acquire_within", "product_1", CEILING)["fence"]
    with read_only(line(directory)):
        # What was done under the lock is done: the end of a view is not the place for an error.
        somebody.do("let_go")
        assert len(list(line(directory).iterdir())) == 1
    wait_until(lambda: not one.backend.locked(key), "it is given back")
    assert somebody.do("acquire_within", "product_1", CEILING)["fence"]


def test_who_comes_without_rights_is_told_and_leaves_nothing(
    somebody: Peer, one: Contender, key: str, directory: Path
) -> None:
    mine = ask(key)
    one.held(mine)
    with read_only(line(directory)):
        kind, message = somebody.do("refused", key)
        assert kind == ConfigurationError.__name__
        assert "may not be written" in message


def test_a_directory_that_everybody_may_write_in_loses_its_locks_and_says_so(
    url: str, directory: Path
) -> None:
    locks = distlock.connect(url, prefix="shop")
    try:
        with pytest.raises(distlock.LockLost, match="lost inside"), locks.lock("product_1"):
            directory.chmod(0o777)
        with pytest.raises(ConfigurationError, match="may be written by everybody"):
            locks.lock("product_1").acquire()
        directory.chmod(0o2770)
        with locks.lock("product_1"):
            pass
    finally:
        locks.close()


def test_what_fails_for_who_has_something_there_is_never_a_wrong_setting(
    somebody: Peer, directory: Path, key: str
) -> None:
    somebody.do("acquire", key)
    with read_only(line(directory)):
        kind, message = somebody.do("release_refused", key)
        assert kind == BackendUnavailable.__name__
        assert "may not be written" in message
    assert somebody.do("release", key)["released"]
