"""How readers of a process share a hold: who joins, who asks, and what is seen of them."""

from __future__ import annotations

import math

import pytest

from distlock.backends.base import READ
from distlock.errors import ConfigurationError
from tests.engine.scene import Owners, Scene, asked, come_as, granted, queues, scene

__all__ = ["asked", "come_as", "scene"]

#: The bound of the hand-off in a process that `distlock.connect` promises, seconds.
TURN = 0.05
LATER = 1.5 * TURN
pytestmark = pytest.mark.usefixtures("come_as")


def test_a_reader_joins_without_asking_for_a_turn_and_asks_after_it(scene: Scene, asked: list[str]) -> None:
    first = scene.come(mode=READ)
    scene.now += TURN / 2
    second = scene.come(mode=READ)
    assert asked == [READ]
    assert granted(first)._hold is granted(second)._hold
    scene.now += LATER
    third = scene.come(mode=READ)
    assert asked == [READ, READ]
    assert granted(third)._hold is not granted(first)._hold
    fourth = scene.come(mode=READ)
    assert granted(fourth)._hold is granted(third)._hold
    for reader in (first, second, third, fourth):
        reader.leave()
    assert queues(scene).by_key == {}
    assert not scene.service.locked(":a")


def test_a_turn_begins_when_the_request_is_sent(scene: Scene, asked: list[str]) -> None:
    """A writer that came while the answer was under way would else wait for those who join after it."""
    first = scene.ask(mode=READ)
    answer = first.carry_out()
    scene.now += LATER
    first.hear(answer)
    scene.come(mode=READ)
    assert asked == [READ, READ]


def test_nobody_joins_where_a_writer_of_this_process_waits(scene: Scene, asked: list[str]) -> None:
    first, writer = scene.come(mode=READ), scene.come()
    second = scene.come(mode=READ)
    assert not second.done
    first.leave()
    granted(writer)
    assert not second.done
    writer.leave()
    granted(second).check()


def test_nobody_joins_where_the_lock_service_said_that_somebody_waits(scene: Scene) -> None:
    holder = scene.come(process=1)
    reader, writer = scene.come(mode=READ), scene.come(process=2)
    holder.leave()
    granted(reader)
    later = scene.come(mode=READ)
    assert not later.done
    reader.leave()
    granted(writer)
    assert not later.done


def test_readers_that_wait_come_in_together_up_to_the_first_writer(scene: Scene, asked: list[str]) -> None:
    writer = scene.come(process=1)
    run_of_readers = [scene.come(mode=READ) for _ in range(3)]
    second_writer, last = scene.come(), scene.come(mode=READ)
    writer.leave()
    run_of_readers[0].go()
    holds = {granted(reader)._hold for reader in run_of_readers}
    assert len(holds) == 1
    assert not second_writer.done
    for reader in run_of_readers:
        reader.leave()
    granted(second_writer)
    assert not last.done


def test_a_lease_of_another_length_is_asked_for(scene: Scene, asked: list[str]) -> None:
    first, second = scene.come(mode=READ), scene.come(mode=READ, ttl=7.0)
    assert granted(second)._hold is not granted(first)._hold
    assert asked == [READ, READ]


def test_nor_do_those_that_wait_come_in_with_another_length(scene: Scene) -> None:
    writer = scene.come(process=1)
    first, second = scene.come(mode=READ), scene.come(mode=READ, ttl=7.0)
    writer.leave()
    mine = granted(first)._hold
    assert granted(second)._hold is not mine


def test_a_lock_that_is_written_goes_back_where_a_reader_is_next(scene: Scene) -> None:
    """Readers of other processes may be next, too."""
    writer, near = scene.come(), scene.come(mode=READ)
    far = scene.come(mode=READ, process=1)
    writer.leave()
    granted(near)
    granted(far)


def test_the_next_waiter_asks_for_what_it_wants_itself(scene: Scene) -> None:
    """The first one leaves, and what it has asked for would be a ghost's."""
    holder = scene.come(process=1)
    reader, writer = scene.come(mode=READ, timeout=1.0), scene.come()
    scene.now += 1.1
    reader.go()
    assert reader.done
    writer.go()
    holder.leave()
    for _ in range(3):
        scene.keep()
        writer.go()
    assert writer.grant is not None
    assert writer.grant.mode == "exclusive"
    writer.leave()
    scene.keep()
    assert not scene.service.locked(":a")


def test_what_one_that_has_left_wanted_is_not_kept_by_one_that_leaves(scene: Scene) -> None:
    """It may come in that moment, and a writer has no use for a read."""
    holder = scene.come(process=1)
    reader, writer = scene.come(mode=READ, timeout=1.0), scene.come(timeout=1.0)
    scene.now += 1.1
    reader.go()
    holder.leave()
    writer.go()
    assert writer.done
    assert writer.grant is None
    for _ in range(3):
        scene.keep()
    assert not scene.service.locked(":a")
    assert queues(scene).by_key == {}


def test_a_run_of_readers_is_one_wait_and_not_many(scene: Scene) -> None:
    """Else those that would be let in together were refused, as if each had to wait for the others."""
    scene.slow(1.0)
    holder = scene.come()
    waiting = [scene.come(mode=READ, timeout=4.0) for _ in range(20)]
    assert all(not one.done for one in waiting)
    holder.leave()
    waiting[0].go()
    for reader in waiting:
        granted(reader)


def shown(scene: Scene) -> str:
    """Return the view that the process publishes as the holder of the lock."""
    scene.now += 2.0
    scene.keep()
    rows = [one.row for one in scene.all[0].backend.announced(":a") if one.row is not None]
    return rows[0].held_at


def test_the_reader_that_has_read_for_longest_is_shown(scene: Scene) -> None:
    first = scene.come(mode=READ, where="first")
    scene.now += TURN / 2
    second = scene.come(mode=READ, where="second")
    assert shown(scene) == "first"
    first.leave()
    assert shown(scene) == "second"
    second.leave()


def test_an_upgrade_is_refused_at_once(scene: Scene, come_as: Owners) -> None:
    come_as(1)
    reader = scene.come(mode=READ)
    with pytest.raises(ConfigurationError, match="downgrade"):
        scene.come()
    with pytest.raises(ConfigurationError, match="downgrade"):
        scene.come(timeout=0.0)
    reader.leave()
    granted(scene.come())


def test_after_a_downgrade_no_reader_passes_a_writer_that_waits_elsewhere(scene: Scene) -> None:
    writer, elsewhere = scene.come(), scene.come(process=1, timeout=math.inf)
    granted(writer)
    writer.downgrade()
    reader = scene.come(mode=READ)
    assert not reader.done
    writer.leave()
    granted(elsewhere)
    elsewhere.leave()
    granted(reader)
