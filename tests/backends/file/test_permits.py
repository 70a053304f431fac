"""Permits at one directory: never more than there are, in the order of the line, and what a death does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from distlock.backends.base import PERMIT, Acquired
from distlock.testing.protocol_fixtures import Contender, permit
from distlock.testing.waits import wait_until
from tests.backend_class import backend_class
from tests.backends.file.peer import PATIENCE, Peer

FileBackend = backend_class("file:///nowhere")

StartPeer = Callable[..., Peer]

#: Longer than any of it takes on a busy machine.
CEILING = 60.0


def waiting(one: Contender, key: str) -> int:
    assert isinstance(one.backend, FileBackend)
    return one.backend.inspect(key).waiting


def most_out(turns: list[dict[str, float]]) -> float:
    """How many were out at once, at most."""
    changes = [(turn["at"], turn["permits"]) for turn in turns]
    changes += [(turn["released"], -turn["permits"]) for turn in turns]
    out = most = 0.0
    # At one moment those that are given back come first.
    for _, change in sorted(changes):
        out += change
        most = max(most, out)
    return most


def test_no_more_are_out_than_there_are(peer: StartPeer, key: str) -> None:
    running = [peer().begin("use", key, 100, 3, 1 + number % 2) for number in range(4)]
    turns = [turn for each in running for turn in each.result(CEILING)]
    assert len(turns) == 400
    assert 1 < most_out(turns) <= 3


def test_a_killed_holder_gives_back_all_that_it_has(peer: StartPeer, one: Contender, key: str) -> None:
    doomed, second, third = peer(), peer(), peer()
    doomed.do("acquire", key, PERMIT, 5, 4)
    waits = [each.begin("acquire", key, PERMIT, 5, 2) for each in (second, third)]
    wait_until(lambda: waiting(one, key) == 2, "both wait")
    doomed.kill()
    assert all(each.result(PATIENCE) for each in waits)


def test_a_release_wakes_as_many_as_find_room(peer: StartPeer, one: Contender, key: str) -> None:
    mine = permit(key, 3, 3)
    one.held(mine)
    running = []
    for number in range(4):
        running.append(peer().begin("acquire", key, PERMIT, 3, 1))
        wait_until(lambda count=number + 1: waiting(one, key) == count, "it stands in line")
    one.backend.release(mine)
    assert all(each.result(PATIENCE) for each in running[:3])
    assert waiting(one, key) == 1
    assert not running[3].done()


def test_a_first_waiter_that_stands_still_blocks_nobody(
    peer: StartPeer, one: Contender, two: Contender, key: str
) -> None:
    mine, late = permit(key, 2, 2), permit(key, 2, 2)
    one.held(mine)
    stopped = peer()
    stopped.begin("acquire", key, PERMIT, 2, 1)
    wait_until(lambda: waiting(one, key) == 1, "it waits")
    two.queued(late)
    stopped.stop()
    one.backend.release(mine)
    wait_until(lambda: isinstance(two.backend.request(late), Acquired), "it was passed over")


def test_a_stopped_holder_keeps_its_permits(peer: StartPeer, one: Contender, key: str) -> None:
    stopped = peer()
    stopped.do("acquire", key, PERMIT, 2, 1)
    stopped.stop()
    mine, late = permit(key, 2), permit(key, 2)
    one.held(mine)
    one.queued(late)
    one.backend.release(mine)
    one.held(late)
    stopped.go_on()
    assert stopped.do("renew", key)


def test_nothing_is_left(one: Contender, two: Contender, key: str, directory: Path) -> None:
    mine, other = permit(key, 2, 2), permit(key, 2)
    one.held(mine)
    two.queued(other)
    one.backend.release(mine)
    two.held(other)
    two.backend.release(other)
    assert not list(directory.glob("v2/queue/*/*"))


def test_the_death_of_one_that_took_its_permits_first_is_heard_of(
    peer: StartPeer, one: Contender, two: Contender, key: str
) -> None:
    """It stands behind the one that waits, which goes by a lower limit."""
    mine, low = permit(key, 5, 5), permit(key, 2)
    one.held(mine)
    two.queued(low)
    ahead = peer()
    acquired = ahead.begin("acquire", key, PERMIT, 5, 2)
    wait_until(lambda: waiting(one, key) == 2, "both wait")
    one.backend.release(mine)
    assert acquired.result(PATIENCE)
    assert two.sink.wait_for_notification(key, timeout=PATIENCE)
    two.queued(low)
    two.sink.notified_keys.clear()
    ahead.kill()
    assert two.sink.wait_for_notification(key, timeout=PATIENCE)
    two.held(low)
