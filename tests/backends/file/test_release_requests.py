"""A request for a lock is a file, which the process of the holder finds, and which ends with the hold."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

import distlock
from distlock.testing.protocol_fixtures import Contender, ask
from distlock.testing.waits import wait_until
from tests.backend_class import backend_class

FileBackend = backend_class("file:///nowhere")


@pytest.fixture
def key() -> str:
    return f"shop:product_{secrets.token_hex(4)}"


def files(directory: Path) -> list[Path]:
    return list(directory.glob("*/wanted/*"))


def test_a_process_that_listens_is_told_at_once(tmp_path: Path) -> None:
    mine, other = (distlock.connect(tmp_path.as_uri()) for _ in range(2))
    with other.lock("a"):
        assert mine.lock("a").acquire(timeout=0.2) is None, "it has waited, and listens since"
    with mine.lock("a") as grant:
        assert other.request_release("a")
        # Its own looks begin after a second.
        wait_until(lambda: grant.release_requested, "the holder is told")
    mine.close()
    other.close()


def test_asking_where_no_lock_was_ever_taken_makes_nothing(tmp_path: Path) -> None:
    locks = distlock.connect((tmp_path / "locks").as_uri())
    assert not locks.request_release("a")
    assert not (tmp_path / "locks").exists()
    locks.close()


def test_what_a_dead_process_has_left_is_swept(tmp_path: Path, key: str) -> None:
    one = Contender(FileBackend(tmp_path.as_uri()))
    one.held(ask(key))
    (path,) = tmp_path.glob("*/queue")
    left = path.parent / "wanted" / f"{4711:015x}~{'0' * 32}"
    left.parent.mkdir()
    left.touch()
    one.backend.close()
    two = Contender(FileBackend(tmp_path.as_uri()))
    for number in range(100):
        two.held(ask(f"{key}_{number}"))
    assert not left.exists()
    two.backend.close()


def test_the_file_goes_with_the_hold(tmp_path: Path, key: str) -> None:
    one, two = (Contender(FileBackend(tmp_path.as_uri())) for _ in range(2))
    mine, other = ask(key), ask(f"{key}_other")
    one.held(mine)
    one.held(other)
    assert two.backend.request_release(key)
    (path,) = files(tmp_path)
    assert path.stat().st_size == 0
    assert mine.token not in path.name
    one.backend.release(mine)
    one.backend.renew([other])
    assert files(tmp_path) == [path], "it may belong to a hold that is taken just now"
    os.utime(path, (0, 0))
    one.backend.renew([other])
    assert files(tmp_path) == []
    assert one.sink.requests == []
    assert two.backend.request_release(other.key)
    one.backend.close()
    assert files(tmp_path) == []
    two.backend.close()


def test_what_was_told_is_no_news(tmp_path: Path, key: str) -> None:
    """Else every look would have every waiter ask again, for as long as the holder keeps the lock."""
    one, two = (Contender(FileBackend(tmp_path.as_uri())) for _ in range(2))
    mine = ask(key)
    one.held(mine)
    assert two.backend.request_release(key)
    for doubts in (1, 2):
        one.backend.announce("web1", 1, [], [], 60.0)
        assert one.sink.missed == doubts, "until it is told"
    one.backend.renew([mine])
    assert one.sink.requests == [(key, mine.token)]
    one.backend.announce("web1", 1, [], [], 60.0)
    assert one.sink.missed == 2
    one.backend.close()
    two.backend.close()
