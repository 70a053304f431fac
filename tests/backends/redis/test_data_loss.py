"""Fences grow through the loss of data, also where readers and writers of one name took turns just before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from distlock.backends.base import READ
from tests.backends.redis.contender import Contender, MakeContender, ask, some_key
from tests.backends.redis.planted import plant
from tests.backends.redis.sharing import read
from tests.redis_server import RedisServer, eventually, running
from tests.stored import hold_key

#: So many times a hold ends for which others had waited.
TURNS = 30


def writers(one: Contender, two: Contender, key: str) -> int:
    """Two processes that write in turns. Returns the last number."""
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    assert one.release(first)
    number = two.hold(second).number
    assert two.release(second)
    return number


def readers(one: Contender, two: Contender, key: str) -> int:
    """A reader that waited for a writer."""
    first, second = ask(key), read(key)
    one.hold(first)
    two.queue(second)
    assert one.release(first)
    number = two.hold(second).number
    assert two.release(second)
    return number


def downgrades(one: Contender, two: Contender, key: str) -> int:
    """A writer that becomes a reader, for which another one had waited."""
    first, second = ask(key), read(key)
    number = one.hold(first).number
    two.queue(second)
    assert one.downgrade(first)
    first.mode = READ
    two.hold(second)
    assert two.release(second)
    assert one.release(first)
    return number


def short_leases(one: Contender, two: Contender, key: str) -> int:
    """Holds that end by themselves, hardly begun."""
    number = one.hold(ask(key, ttl=0.01)).number
    eventually(lambda: not one.locked(key), "the hold ends by itself")
    return number


def long_leases(one: Contender, two: Contender, key: str) -> int:
    """A ttl for which nothing is left of a hold for its whole length."""
    mine = ask(key, ttl=3600.0)
    number = one.hold(mine).number
    assert one.release(mine)
    return number


def breaks(one: Contender, two: Contender, key: str) -> int:
    """A hold that an operator ends."""
    number = one.hold(ask(key)).number
    assert two.break_hold(key, number)
    return number


Play = Callable[[Contender, Contender, str], int]
PLAYS: list[Play] = [writers, readers, downgrades, short_leases, long_leases, breaks]
plays = pytest.mark.parametrize("play", PLAYS, ids=[play.__name__ for play in PLAYS])


@pytest.fixture
def replica(own_server: RedisServer) -> Iterator[RedisServer]:
    yield from running("--replicaof", "127.0.0.1", str(own_server.port))


@pytest.mark.fault("F12")
@plays
def test_numbers_grow_through_flushall(own_server: RedisServer, contender: MakeContender, play: Play) -> None:
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)
    before = max(play(one, two, key) for _ in range(TURNS))
    own_server.client.flushall()
    assert one.hold(ask(key)).number > before


@pytest.mark.fault("F09")
@plays
def test_numbers_grow_through_an_empty_restart(
    own_server: RedisServer, contender: MakeContender, play: Play
) -> None:
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)
    before = max(play(one, two, key) for _ in range(TURNS))
    own_server.restart()
    assert own_server.client.dbsize() == 0
    assert one.hold(ask(key)).number > before


@pytest.mark.fault("F20")
@plays
def test_numbers_grow_on_a_replica_that_missed_the_last_of_them(
    own_server: RedisServer, replica: RedisServer, contender: MakeContender, play: Play
) -> None:
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)
    eventually(lambda: replica.client.info("replication")["master_link_status"] == "up", "it follows")
    play(one, two, key)
    eventually(lambda: replica.client.exists(f"{hold_key(key)}:fence"), "the counter is replicated")
    replica.tell("REPLICAOF", "NO", "ONE")
    before = max(play(one, two, key) for _ in range(TURNS))
    own_server.kill()
    after = contender(replica.url)
    # What the replica has of a hold ends by itself at some time.
    replica.client.delete(hold_key(key), f"{hold_key(key)}:holders")
    assert after.hold(ask(key)).number > before


# -- an append-only file ----------------------------------------------------------------------------


@pytest.fixture(params=["everysec", "always"])
def keeping_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server that writes its data to an append-only file."""
    yield from running("--appendonly", "yes", "--appendfsync", request.param)


@pytest.mark.fault("F10")
def test_a_killed_server_that_kept_its_file_has_lost_no_hold_and_no_place_in_the_queue(
    keeping_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, late = (contender(keeping_server.url) for _ in range(3))
    first, second = ask(key), ask(key)
    before = one.hold(first).number
    two.queue(second)
    keeping_server.restart()
    late.queue(ask(key))
    assert one.renew([first]) == [True]
    assert one.release(first)
    assert two.poll(second).number > before


def play_and_cut(server: RedisServer, one: Contender, two: Contender, key: str, play: Play) -> int:
    """Lose what a power cut takes of a file that is not synchronised yet. Returns the last number."""
    play(one, two, key)
    [file] = server.folder.glob("appendonlydir/*.incr.aof")
    kept = file.stat().st_size
    before = max(play(one, two, key) for _ in range(TURNS))
    server.kill()
    assert file.stat().st_size > kept
    os.truncate(file, kept)
    server.start()
    assert server.client.exists(f"{hold_key(key)}:fence")
    return before


@pytest.mark.fault("F10")
@plays
def test_numbers_grow_where_the_end_of_the_file_was_lost(
    keeping_server: RedisServer, contender: MakeContender, play: Play
) -> None:
    key, one, two = some_key(), contender(keeping_server.url), contender(keeping_server.url)
    before = play_and_cut(keeping_server, one, two, key, play)
    # The file may end before a release. What it has of a hold ends by itself at some time.
    keeping_server.client.delete(hold_key(key), f"{hold_key(key)}:holders")
    assert one.hold(ask(key)).number > before


@pytest.mark.fault("F10", control=True)
def test_numbers_that_ignore_the_clock_are_given_out_again_where_the_end_of_the_file_was_lost(
    keeping_server: RedisServer, contender: MakeContender, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, "NumbersIgnoreTheClock")
    key, one, two = some_key(), contender(keeping_server.url), contender(keeping_server.url)
    before = play_and_cut(keeping_server, one, two, key, writers)
    assert one.hold(ask(key)).number <= before


@pytest.mark.fault("F09", "F12", control=True)
@pytest.mark.parametrize(
    "lose", [RedisServer.restart, lambda server: server.client.flushall()], ids=["killed", "flushed"]
)
def test_numbers_that_ignore_the_clock_are_given_out_again_where_all_data_was_lost(
    own_server: RedisServer,
    contender: MakeContender,
    monkeypatch: pytest.MonkeyPatch,
    lose: Callable[[RedisServer], object],
) -> None:
    plant(monkeypatch, "NumbersIgnoreTheClock")
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)
    before = max(writers(one, two, key) for _ in range(TURNS))
    lose(own_server)
    assert one.hold(ask(key)).number <= before
