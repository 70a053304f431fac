"""Processes that stand still, or can do less than they want: nobody else waits past a time-out for them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import distlock
from distlock import clock
from distlock.backends.base import Acquired, Busy, Queued
from distlock.errors import BackendUnavailable
from distlock.testing.protocol_fixtures import Contender, ask
from distlock.testing.waits import wait_until
from tests.backend_class import backend_class
from tests.backends.file.peer import Peer

FileBackend = backend_class("file:///nowhere")

StartPeer = Callable[..., Peer]

#: Longer than any of it takes on a busy machine.
CEILING = 60.0
#: A user of whom no other process runs, so that its limit of threads is ours alone.
LONELY = 64_209


def queued(directory: Path) -> int:
    """How many hold or wait."""
    return len(list(directory.glob("v2/queue/*/*")))


def in_line(one: Contender, key: str, directory: Path, count: int) -> None:
    """Until *count* hold or wait, and the newest writes no more: stopped in there it would stop all."""
    wait_until(lambda: queued(directory) == count, f"{count} stand in line")
    # It looks under the writers' lock.
    one.backend.locked(key)


@pytest.mark.fault("F04")
def test_a_first_waiter_that_stands_still_blocks_nobody(
    peer: StartPeer, one: Contender, key: str, directory: Path
) -> None:
    mine = ask(key)
    one.held(mine)
    first, second = peer(), peer()
    stopped = first.begin("acquire", key)
    wait_until(lambda: queued(directory) == 2, "the first waiter stands in line")
    waiting = second.begin("acquire_within", "product_1", CEILING)
    in_line(one, key, directory, 3)
    first.stop()
    one.backend.release(mine)
    fence = waiting.result(CEILING)["fence"]
    assert fence is not None
    # It comes back, finds that it was sent away, and stands in line again.
    first.go_on()
    wait_until(lambda: queued(directory) == 2, "the first waiter stands in line again")
    assert not stopped.done()
    second.do("let_go")
    assert stopped.result(CEILING)["fence"] > fence


def test_a_time_out_behind_one_that_stands_still_is_kept(
    peer: StartPeer, one: Contender, key: str, directory: Path
) -> None:
    mine = ask(key)
    one.held(mine)
    first, second = peer(), peer()
    first.begin("acquire", key)
    in_line(one, key, directory, 2)
    first.stop()
    waiting = second.begin("acquire_within", "product_1", 0.3)
    assert waiting.result(CEILING)["fence"] is None
    one.backend.release(mine)
    # Also when the lock has come to it, and nobody was there to see for how long.
    assert second.do("acquire_within", "product_1", 0.2)["fence"] is None
    assert second.do("acquire_within", "product_1", CEILING)["fence"] is not None


def test_a_whole_row_of_waiters_that_stand_still_is_passed_over(
    peer: StartPeer, one: Contender, two: Contender, key: str, directory: Path
) -> None:
    mine, last = ask(key), ask(key)
    one.held(mine)
    for number in range(3):
        each = peer()
        each.begin("acquire", key)
        in_line(one, key, directory, number + 2)
        each.stop()
    two.queued(last)
    one.backend.release(mine)
    wait_until(lambda: isinstance(two.backend.request(last), Acquired), "the lock has come to the last one")


def test_who_has_taken_the_lock_is_not_sent_away(
    peer: StartPeer, one: Contender, url: str, key: str, directory: Path
) -> None:
    mine = ask(key)
    one.held(mine)
    second = peer()
    acquired = second.begin("acquire", key)
    wait_until(lambda: queued(directory) == 2, "the waiter stands in line")
    one.backend.release(mine)
    acquired.result(CEILING)
    second.stop()
    impatient = Contender(FileBackend(url, ack_window=0.001))
    try:
        late = ask(key)
        looks = [impatient.backend.request(late) for _ in range(50)]
        assert {type(answer) for answer in looks} == {Queued}
    finally:
        impatient.backend.close()
    second.go_on()
    assert second.do("renew", key)


def test_a_window_begins_when_the_lock_could_be_taken(
    one: Contender, two: Contender, url: str, key: str
) -> None:
    mine, second, third = ask(key), ask(key), ask(key)
    one.held(mine)
    two.queued(second)
    impatient = Contender(FileBackend(url, ack_window=0.001))
    try:
        assert all(isinstance(impatient.backend.request(third), Queued) for _ in range(50))
        one.backend.release(mine)
        wait_until(lambda: isinstance(impatient.backend.request(third), Acquired), "the second was sent away")
        two.queued(second)
        assert two.backend.request(ask(key, wait=False)) == Busy()
        impatient.backend.release(third)
        two.held(second)
    finally:
        impatient.backend.close()


def test_who_wants_to_leave_the_queue_and_was_first_has_the_lock_for_good(
    one: Contender, two: Contender, url: str, key: str
) -> None:
    mine, second = ask(key), ask(key)
    one.held(mine)
    two.queued(second)
    one.backend.release(mine)
    assert two.backend.cancel(second) is True
    impatient = Contender(FileBackend(url, ack_window=0.001))
    try:
        late = ask(key)
        assert all(isinstance(impatient.backend.request(late), Queued) for _ in range(20))
    finally:
        impatient.backend.close()
    assert two.backend.renew([second]) == [True]


def test_a_lock_on_its_way_to_the_next_is_never_free(
    one: Contender, peer: StartPeer, key: str, directory: Path
) -> None:
    """Also in the middle of the step in which the next one takes it."""
    each = peer()
    each.do("acquire", key)
    (line,) = (directory / "v2" / "queue").iterdir()
    for number in range(1_000):
        # So many that a look at the directory is more than one step.
        (line / f"{number:0100d}").touch()
    turns = each.begin("pass_around", key, 200)
    looks = []
    while not turns.done():
        looks.append(one.backend.locked(key))
    turns.result(CEILING)
    assert looks
    assert all(looks)


def test_no_call_outlasts_its_deadline_behind_a_writer_that_was_stopped(
    peer: StartPeer, one: Contender, url: str, key: str
) -> None:
    patient = Contender(FileBackend(url, busy_timeout=60))
    try:
        mine, second = ask(key), ask(key)
        one.held(mine)
        patient.queued(second)
        peer().do("stop_writing_halfway")
        one.backend.release(mine)
        began = clock.now()
        for call, it in [
            (patient.backend.request, second),
            (patient.backend.request, ask(key)),
            (patient.backend.cancel, second),
        ]:
            with pytest.raises(BackendUnavailable, match="was stopped in the middle"):
                call(it, clock.now() + 0.1)
        assert clock.now() - began < 30
    finally:
        patient.backend.close()


def test_a_wait_behind_a_writer_that_was_stopped_ends_on_time(
    peer: StartPeer, one: Contender, url: str, key: str
) -> None:
    locks = distlock.connect(url, prefix="shop", busy_timeout=60)
    one.held(ask(key))
    halfway = peer()
    halfway.do("stop_writing_halfway")
    began = clock.now()
    with pytest.raises(BackendUnavailable, match="was stopped in the middle"):
        locks.lock("product_1").acquire(timeout=0.3)
    assert clock.now() - began < 30
    halfway.kill()
    locks.close()


@pytest.fixture
def lonely(peer: StartPeer, directory: Path) -> Peer:
    """A process that can be denied threads, which root can't."""
    each = peer()
    if os.geteuid() == 0:
        directory.mkdir()
        os.chown(directory, 0, LONELY)
        directory.chmod(0o2770)
        each.do("become", LONELY, LONELY)
    return each


@pytest.fixture
def directory(open_directory: Path) -> Path:
    return open_directory / "locks"


def test_a_thread_that_cannot_be_started_is_told_and_started_later(
    one: Contender, lonely: Peer, key: str, directory: Path
) -> None:
    mine = ask(key)
    one.held(mine)
    lonely.do("limit_threads")
    for _ in range(3):
        kind, message = lonely.do("refused", key)
        assert kind == "BackendUnavailable"
        assert "can start no more threads" in message
        assert "ulimit -u" in message
        assert queued(directory) == 1
        assert not list(directory.glob("v2/wake/*"))
    lonely.do("unlimit_threads")
    acquired = lonely.begin("acquire", key)
    wait_until(lambda: queued(directory) == 2, "it stands in line")
    one.backend.release(mine)
    assert acquired.result(CEILING)["fence"]


def test_a_free_lock_needs_no_thread(lonely: Peer, key: str) -> None:
    lonely.do("limit_threads")
    assert lonely.do("request", key) == "Acquired"
    assert lonely.do("release", key)["released"]
