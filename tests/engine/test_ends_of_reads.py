"""How readers of a process share a hold: what ends when."""

from __future__ import annotations

from typing import Any

import pytest

from distlock.backends.base import READ
from distlock.errors import LockLost, NotHeld
from tests.engine.scene import Owners, Scene, asked, come_as, granted, is_call, queues, scene

__all__ = ["asked", "come_as", "scene"]

pytestmark = pytest.mark.usefixtures("come_as")


def test_a_hung_reader_is_lost_alone_and_told(scene: Scene) -> None:
    hung, living = scene.come(mode=READ, max_hold=1.0), scene.come(mode=READ, max_hold=100.0)
    lost, kept = granted(hung), granted(living)
    told: list[Any] = []
    engine = scene.all[0].engine
    engine.callbacks._on_lost = lambda grant, why: told.append((grant, why))
    assert lost._hold is kept._hold
    scene.now += 1.1
    scene.keep()
    assert told == [(lost, "it was held longer than max_hold=1 seconds")]
    assert engine.grants() == [kept]
    with pytest.raises(LockLost, match="max_hold"):
        lost.check()
    kept.check()
    living.leave()
    assert not scene.service.locked(":a")
    hung.leave()
    assert lost.lost


def test_a_hold_that_only_hung_readers_have_goes_back(scene: Scene) -> None:
    granted(scene.come(mode=READ, max_hold=1.0))
    writer = scene.come(process=1)
    scene.now += 1.1
    scene.keep()
    granted(writer)


def test_a_read_that_hung_in_a_write_gives_nothing_on(scene: Scene, come_as: Owners) -> None:
    come_as(1)
    writer, reader = scene.come(), scene.come(mode=READ, max_hold=1.0)
    granted(reader)
    come_as(None)
    next_one = scene.come()
    scene.now += 1.1
    scene.keep()
    reader.leave()
    assert not next_one.parker.open
    granted(writer).check()


def test_a_read_in_a_write_that_is_released_has_its_own_limit(scene: Scene, come_as: Owners) -> None:
    come_as(1)
    writer, reader = scene.come(ttl=3.0, max_hold=1.0), scene.come(mode=READ, ttl=3.0, max_hold=60.0)
    grant = granted(reader)
    writer.leave()
    for _ in range(8):
        scene.now += 0.9
        scene.keep()
    grant.check()


def test_so_it_has_where_the_release_was_interrupted(scene: Scene, come_as: Owners) -> None:
    come_as(1)
    writer, reader = scene.come(ttl=3.0, max_hold=1.0), scene.come(mode=READ, ttl=3.0, max_hold=60.0)
    grant = granted(reader)
    granted(writer)._abandon(KeyboardInterrupt())
    for _ in range(8):
        scene.now += 0.9
        scene.keep()
    grant.check()


def test_a_writer_that_is_released_while_it_is_downgraded_is_passed_to_nobody(scene: Scene) -> None:
    """The lock service may let readers in by then."""
    writer, next_one = scene.come(), scene.come()
    grant = granted(writer)
    steps = grant._downgrade()
    call = next(steps)
    assert call.function(*call.arguments)
    reader = scene.come(mode=READ, process=1)
    granted(reader)
    writer.leave()
    next_one.go()
    assert not next_one.done
    with pytest.raises(NotHeld, match="released"):
        steps.send(True)
    for _ in range(3):
        scene.keep()
    reader.leave()
    granted(next_one).check()


def test_a_downgrade_that_is_interrupted_leaves_nothing(scene: Scene) -> None:
    writer = scene.come()
    steps = granted(writer)._downgrade()
    call = next(steps)
    call.function(*call.arguments)
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt())
    writer.leave()
    for _ in range(3):
        scene.keep()
    assert not scene.service.locked(":a")
    assert queues(scene).by_key == {}


def test_a_close_ends_all_reads(scene: Scene) -> None:
    grants = [granted(scene.come(mode=READ)) for _ in range(2)]
    scene.all[0].engine.close()
    assert all(grant.lost for grant in grants)
    assert not scene.service.locked(":a")


def test_what_the_parent_reads_is_none_of_its_childs(scene: Scene) -> None:
    grant = granted(scene.come(mode=READ))
    scene.all[0].engine.after_fork()
    assert grant.lost
    assert queues(scene).by_key == {}


def test_an_interrupted_release_of_the_last_reader_is_done_by_the_keeper(scene: Scene) -> None:
    grant = granted(scene.come(mode=READ))
    steps = grant._release()
    assert is_call(next(steps))
    steps.close()
    scene.keep()
    assert not scene.service.locked(":a")
    assert queues(scene).by_key == {}
