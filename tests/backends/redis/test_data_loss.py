"""Fences grow through the loss of data, also where readers and writers of one name took turns just before."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from distlock.backends.base import READ
from tests.backends.redis.contender import Contender, MakeContender, ask, some_key
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
