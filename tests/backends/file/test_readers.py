"""Readers at one directory: together, in their place in the line, and what a death or a stop of one does."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from distlock.backends.base import READ, Acquired
from distlock.testing.protocol_fixtures import Contender, ask, read
from distlock.testing.waits import wait_until
from tests.backend_class import backend_class
from tests.backends.file.peer import PATIENCE, Peer

FileBackend = backend_class("file:///nowhere")

StartPeer = Callable[..., Peer]

#: Longer than any of it takes on a busy machine.
CEILING = 60.0


def backend(contender: Contender) -> FileBackend:
    assert isinstance(contender.backend, FileBackend)
    return contender.backend


def waiting(one: Contender, key: str) -> int:
    """It is seen under the lock of the writers: none of these writes any more."""
    return backend(one).inspect(key).waiting


def test_readers_of_several_processes_see_no_half_of_a_write(
    peer: StartPeer, key: str, tmp_path: Path
) -> None:
    first, second, stop = tmp_path / "first", tmp_path / "second", tmp_path / "stop"
    first.write_text("0")
    second.write_text("0")
    readers, writers = [peer(), peer()], [peer(), peer()]
    reading = [each.begin("read_both", key, str(first), str(second), str(stop)) for each in readers]
    writing = [each.begin("write_both", key, 100, str(first), str(second)) for each in writers]
    for each in writing:
        each.result(CEILING)
    stop.touch()
    results = [each.result(CEILING) for each in reading]
    assert [result["torn"] for result in results] == [[], []]
    assert all(result["count"] for result in results)
    assert first.read_text() == second.read_text() == "200"


def test_nobody_writes_beside_a_reader_while_others_are_killed(
    peer: StartPeer, key: str, tmp_path: Path
) -> None:
    latest, stop = tmp_path / "latest", tmp_path / "stop"
    latest.write_bytes(bytes(8))

    def start(what: str) -> tuple[Peer, str, Future[Any]]:
        each = peer()
        return each, what, each.begin(what, key, str(latest), str(stop))

    running = [start(what) for what in ("overtaken", "disturbed", "overtaken", "disturbed")]
    for number in range(4):
        victim, what, _ = running.pop(0)
        for _ in range(5 + number):
            seen = latest.read_bytes()
            wait_until(lambda seen=seen: latest.read_bytes() != seen, "somebody writes")
        victim.kill()
        running.append(start(what))
    stop.touch()
    assert [each.result(CEILING) for _, _, each in running] == [[], [], [], []]


def test_a_killed_reader_frees_its_share_at_once(peer: StartPeer, one: Contender, key: str) -> None:
    doomed, writer = peer(), peer()
    mine = read(key)
    one.held(mine)
    doomed.do("acquire", key, READ)
    acquired = writer.begin("acquire", key)
    wait_until(lambda: one.held(mine).followed, "the writer waits")
    doomed.kill()
    with pytest.raises(TimeoutError):
        acquired.result(0.1)
    one.backend.release(mine)
    assert acquired.result(PATIENCE)["fence"]


def test_the_death_of_the_last_reader_is_heard_of(peer: StartPeer, key: str, one: Contender) -> None:
    doomed, writer = [peer(), peer()], peer()
    for each in doomed:
        each.do("acquire", key, READ)
    acquired = writer.begin("acquire", key)
    wait_until(lambda: waiting(one, key) == 1, "the writer waits")
    for each in doomed:
        each.kill()
    assert acquired.result(PATIENCE)["fence"]


def test_the_death_of_a_waiting_writer_lets_the_readers_behind_it_in(
    peer: StartPeer, one: Contender, key: str
) -> None:
    mine = read(key)
    one.held(mine)
    doomed, late = peer(), peer()
    doomed.begin("acquire", key)
    wait_until(lambda: one.held(mine).followed, "the writer waits")
    acquired = late.begin("acquire", key, READ)
    wait_until(lambda: waiting(one, key) == 2, "a reader waits behind it")
    doomed.kill()
    assert acquired.result(PATIENCE)["fence"]


def test_a_writer_that_gives_up_lets_the_readers_behind_it_in(
    peer: StartPeer, one: Contender, two: Contender, key: str
) -> None:
    mine, writer = read(key), ask(key)
    one.held(mine)
    two.queued(writer)
    acquired = peer().begin("acquire", key, READ)
    wait_until(lambda: waiting(one, key) == 2, "a reader waits behind it")
    assert not two.backend.cancel(writer)
    assert acquired.result(PATIENCE)["fence"]


def test_a_release_wakes_a_whole_run_of_readers_and_no_more(
    peer: StartPeer, one: Contender, two: Contender, key: str
) -> None:
    mine = ask(key)
    one.held(mine)
    running = []
    for number in range(4):
        mode = ["read", "read", "exclusive", "read"][number]
        running.append(peer().begin("acquire", key, mode))
        wait_until(lambda count=number + 1: waiting(two, key) == count, "it stands in line")
    one.backend.release(mine)
    for acquired in running[:2]:
        assert acquired.result(PATIENCE)["followed"]
    assert waiting(two, key) == 2
    assert not any(acquired.done() for acquired in running[2:])


def test_a_stopped_reader_keeps_its_share(peer: StartPeer, one: Contender, url: str, key: str) -> None:
    stopped = peer()
    stopped.do("acquire", key, READ)
    stopped.stop()
    impatient = Contender(FileBackend(url, ack_window=0.001))
    try:
        mine = ask(key)
        looks = [type(impatient.backend.request(mine)).__name__ for _ in range(50)]
        assert set(looks) == {"Queued"}
        # Others read beside it once the writer has gone.
        assert not impatient.backend.cancel(mine)
        one.held(read(key))
    finally:
        impatient.backend.close()
    stopped.go_on()
    assert stopped.do("renew", key)


def test_readers_that_stand_still_when_their_turn_comes_are_passed_over(
    peer: StartPeer, one: Contender, two: Contender, key: str
) -> None:
    mine, writer = ask(key), ask(key)
    one.held(mine)
    for number in range(3):
        each = peer()
        each.begin("acquire", key, READ)
        wait_until(lambda count=number + 1: waiting(one, key) == count, "it stands in line")
        each.stop()
    two.queued(writer)
    one.backend.release(mine)
    wait_until(lambda: isinstance(two.backend.request(writer), Acquired), "the lock has come to the writer")


def test_a_downgrade_lets_readers_in_and_no_writer(
    peer: StartPeer, one: Contender, two: Contender, key: str
) -> None:
    mine, writer = ask(key, span=10), ask(key)
    number = one.held(mine).number
    first = peer().begin("acquire", key, READ)
    wait_until(lambda: waiting(one, key) == 1, "a reader waits")
    two.queued(writer)
    assert backend(one).downgrade(mine)
    assert first.result(PATIENCE)["fence"] > number + 9
    two.queued(writer)
    assert backend(one).downgrade(mine), "again: it has been turned already"
    assert one.backend.renew([mine]) == [True]
    mine.mode = READ
    assert (held := one.held(mine)).number == number + 9
    assert held.followed
    assert one.backend.release(mine)
    two.queued(writer)


def test_the_death_of_who_has_downgraded_is_heard_of(peer: StartPeer, one: Contender, key: str) -> None:
    doomed, writer = peer(), peer()
    doomed.do("acquire", key)
    acquired = writer.begin("acquire", key)
    wait_until(lambda: waiting(one, key) == 1, "the writer waits")
    assert doomed.do("downgrade", key)
    doomed.kill()
    assert acquired.result(PATIENCE)["fence"]


def test_a_broken_hold_is_not_turned_into_a_readers(one: Contender, two: Contender, key: str) -> None:
    mine, second = ask(key), ask(key)
    number = one.held(mine).number
    two.queued(second)
    assert backend(two).break_hold(key, number)
    assert not backend(one).downgrade(mine)
    two.held(second)


def test_numbers_of_readers_and_writers_grow_over_a_lift(
    one: Contender, two: Contender, three: Contender, key: str
) -> None:
    """All that stand in line are lifted, wherever the new number lies."""
    mine, second, third = ask(key, span=10), read(key), ask(key)
    held = one.held(mine)
    two.queued(second)
    three.queued(third)
    # Above our ticket, and below those that wait.
    lifted = one.backend.raise_fence(mine, held.number + 1)
    assert lifted is not None
    one.backend.release(mine)
    between = two.held(second)
    two.backend.release(second)
    assert lifted.number + 9 < between.number < three.held(third).number


def test_a_process_of_an_older_version_takes_a_reader_for_a_writer(
    one: Contender, two: Contender, three: Contender, key: str, directory: Path
) -> None:
    """It goes by six parts, of which it knows the first three and the state."""
    one.held(read(key))
    two.queued(mine := ask(key))
    three.queued(read(key))
    two.backend.cancel(mine)
    names = [path.name for path in directory.glob("v2/queue/*/*")]
    assert len(names) == 2
    for name in names:
        assert re.fullmatch(r"[^~]+~[0-9a-f]{32}~[0-9]{16}~[0-9a-f]{15}~[^~]+~(waits|holds)", name)
