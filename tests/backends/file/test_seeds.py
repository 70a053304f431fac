"""A free lock is cheap: entries are names of one file, and folders that nobody came to are not read."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distlock.backends.file import queues
from distlock.backends.file.entries import spot_of
from distlock.backends.file.trusted_directories import Tree
from distlock.testing.protocol_fixtures import Contender, ask
from distlock.testing.waits import wait_until
from tests.backends.file.peer import Peer

StartPeer = Callable[..., Peer]


def pair(one: Contender, key: str) -> None:
    mine = ask(key)
    one.held(mine)
    assert one.backend.release(mine)


def shard(key: str) -> int:
    return spot_of(key).shard


def inodes(directory: Path) -> set[int]:
    return {path.stat().st_ino for path in directory.glob("v2/queue/*/*")}


def seeds(directory: Path) -> list[Path]:
    return list(directory.glob("v2/*.seed"))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that are read."""
    folders: list[str] = []
    names = Tree.names

    def noted(tree: Tree, name: str, parent: int) -> list[str]:
        folders.append(name)
        return names(tree, name, parent)

    monkeypatch.setattr(Tree, "names", noted)
    return folders


def test_a_lock_that_nobody_else_came_to_is_taken_and_released_without_reading_a_folder(
    one: Contender, key: str, read: list[str]
) -> None:
    pair(one, key)
    pair(one, key)
    read.clear()
    pair(one, key)
    assert read == []


def test_who_came_since_is_seen(one: Contender, key: str, peer: StartPeer) -> None:
    pair(one, key)
    pair(one, key)
    other = peer()
    other.do("acquire", key)
    mine = ask(key)
    one.queued(mine)
    other.do("release", key)
    one.held(mine)


def test_who_came_and_went_since_is_no_harm(one: Contender, two: Contender, key: str) -> None:
    for _ in range(3):
        pair(one, key)
        pair(two, key)


def test_who_came_meanwhile_is_told_of_the_release(one: Contender, two: Contender, key: str) -> None:
    pair(one, key)
    mine, other = ask(key), ask(key)
    one.held(mine)
    two.queued(other)
    one.backend.release(mine)
    assert two.sink.wait_for_notification(key, timeout=30)
    two.held(other)


def test_who_waits_for_another_name_of_the_shard_is_not_passed_over(
    one: Contender, two: Contender, key: str
) -> None:
    neighbour = next(each for each in (f"shop:{n}" for n in itertools.count()) if shard(each) == shard(key))
    pair(one, key)
    mine, other, late = ask(key), ask(neighbour), ask(neighbour)
    one.held(mine)
    two.held(other)
    one.backend.release(mine)
    one.queued(late)
    two.backend.release(other)
    one.held(late)


def test_entries_are_names_of_one_file_for_each_client(
    one: Contender, two: Contender, directory: Path
) -> None:
    pair(one, "shop:product_1")
    for number in range(1, 4):
        one.held(ask(f"shop:product_{number}"))
        two.queued(ask(f"shop:product_{number}"))
    assert len(seeds(directory)) == 2
    # The first to come to a folder makes it, and a file of its own.
    assert len(inodes(directory)) <= 5
    one.backend.close()
    two.backend.close()
    assert seeds(directory) == []


def test_the_seed_of_a_crashed_process_is_swept(peer: StartPeer, one: Contender, directory: Path) -> None:
    crashed = peer()
    crashed.do("acquire", "shop:product_1")
    assert len(seeds(directory)) == 1
    crashed.kill()

    def swept() -> bool:
        pair(one, "shop:basket")
        return len(seeds(directory)) == 1

    wait_until(swept, "one seed is left, of the one that lives")


def test_a_seed_that_was_deleted_is_made_again(one: Contender, key: str, directory: Path) -> None:
    pair(one, key)
    for path in seeds(directory):
        path.unlink()
    pair(one, key)
    pair(one, key)
    assert len(seeds(directory)) == 1


def test_an_old_seed_is_replaced_and_what_it_has_made_stays(
    one: Contender, two: Contender, key: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cleaners delete what is old, and a lock that is held is not."""
    monkeypatch.setattr(queues, "_LIFETIME", -1.0)
    pair(one, key)
    mine = ask(key)
    one.held(mine)
    pair(one, "shop:basket")
    assert len(seeds(directory)) == 1
    assert inodes(directory) != {seeds(directory)[0].stat().st_ino}
    two.queued(ask(key))
    assert one.backend.release(mine)


@pytest.mark.parametrize("code", [errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_without_hard_links_each_entry_is_a_file(
    one: Contender, two: Contender, key: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    pair(one, key)
    mine, other = ask(key), ask(key)
    one.held(mine)
    two.queued(other)
    one.backend.release(mine)
    two.held(other)
