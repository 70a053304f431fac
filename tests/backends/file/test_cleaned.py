"""Cleaners, and people who clean up, delete a part of what is in the directory: it heals by itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from distlock.backends.base import Queued
from distlock.testing.protocol_fixtures import Contender, ask
from distlock.testing.waits import wait_until

#: Longer than any of it takes on a busy machine.
CEILING = 60.0


@pytest.mark.parametrize("part", ["queue", "wake", "queue/*", "state", "."])
def test_a_part_that_was_deleted_between_two_uses_is_made_again(
    one: Contender, two: Contender, key: str, directory: Path, part: str
) -> None:
    first, second = ask(key), ask(key)
    one.held(first)
    two.queued(second)
    assert one.backend.release(first)
    two.held(second)
    assert two.backend.release(second)
    for path in sorted((directory / "v2").glob(part) if "*" in part else [directory / "v2" / part]):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    third, fourth = ask(key), ask(key)
    one.held(third)
    two.queued(fourth)
    hints = len(two.sink.notified_keys)
    assert one.backend.release(third)
    wait_until(lambda: len(two.sink.notified_keys) > hints, "it is hinted")
    two.held(fourth)


@pytest.mark.parametrize("part", ["wake", "wake/*"])
def test_a_waiter_whose_fifo_was_deleted_has_another_with_its_next_look(
    one: Contender, two: Contender, key: str, directory: Path, part: str
) -> None:
    first, second = ask(key), ask(key)
    one.held(first)
    two.queued(second)
    for path in (directory / "v2").glob(part):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    # Nobody has lost anything.
    assert isinstance(two.backend.request(second), Queued)
    assert one.backend.renew([first]) == [True]
    assert one.backend.release(first)
    assert two.sink.wait_for_notification(key, CEILING)
    two.held(second)


def test_who_waits_in_a_line_that_was_deleted_stands_in_the_next_one(
    one: Contender, two: Contender, key: str, directory: Path
) -> None:
    first, second, third = ask(key), ask(key), ask(key)
    one.held(first)
    two.queued(second)
    shutil.rmtree(directory / "v2" / "queue")
    two.held(second)
    assert one.backend.renew([first]) == [False]
    one.queued(third)
    assert two.backend.release(second)
    one.held(third)


#: More digits than a contender has, fewer, other spellings of a number, and none at all.
FOREIGN = ["f" * 16, "f" * 40, "1", "0x" + "1" * 13, "-" + "1" * 14, "F" * 15, "1_" + "1" * 13, "readme"]


@pytest.mark.parametrize("form", ["{}.seed", "wake/{}", "queue/00/x~y~1~{}~z~waits"])
def test_what_we_did_not_make_is_left_alone(
    contender: Callable[[], Contender], key: str, directory: Path, form: str
) -> None:
    def pair(one: Contender) -> None:
        mine = ask(key)
        one.held(mine)
        assert one.backend.release(mine)

    made = contender()
    pair(made)
    made.backend.close()
    dead = "0" * 14 + "1"
    (directory / "v2/queue/00").mkdir(exist_ok=True)
    theirs = [directory / "v2" / form.format(name) for name in FOREIGN]
    ours = directory / "v2" / form.format(dead)
    folder = directory / "v2" / form.format("0" * 14 + "2")
    for path in (*theirs, ours):
        path.touch()
    folder.mkdir()
    one = contender()

    def swept() -> bool:
        pair(one)
        return not ours.exists()

    wait_until(swept, "what a dead contender left is deleted")
    # Its folder was met in that round, or is met in the next one.
    for _ in range(100):
        pair(one)
    assert [path for path in theirs if not path.exists()] == []
    assert folder.is_dir()
