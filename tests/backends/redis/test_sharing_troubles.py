"""Readers and permits on a server that is full, empty or without scripts, and a thousand of them."""

from __future__ import annotations

import os

import pytest

from distlock.backends.base import READ, Acquired, Busy, LockRequest
from distlock.errors import BackendUnavailable
from tests.backends.redis.contender import LONG, MakeContender, ask, some_key
from tests.backends.redis.proxy import Proxy
from tests.backends.redis.sharing import Make, keys, permit, read, sharing
from tests.redis_server import RedisServer, eventually
from tests.stored import hold_key


@pytest.mark.fault("F13")
@sharing
def test_a_full_server_refuses_newcomers_and_nothing_else(
    own_server: RedisServer, contender: MakeContender, share: Make, outside: Make
) -> None:
    key, other, one, two = some_key(), some_key(), contender(own_server.url), contender(own_server.url)
    first, second, waiter = share(key), share(key), outside(key)
    one.hold(first)
    one.hold(second)
    two.queue(waiter)
    kept = keys(own_server, key)
    own_server.client.config_set("maxmemory", 1)
    for mine in (share(other), share(key)):
        with pytest.raises(BackendUnavailable, match="maxmemory"):
            one.request(mine)
    assert keys(own_server, other) == set()
    assert keys(own_server, key) == kept
    assert own_server.client.llen(f"{hold_key(key)}:queue") == 1
    # What is held can be renewed, asked for again, handed off, acknowledged, and released.
    assert one.renew([first, second]) == [True, True]
    one.hold(first)
    assert one.cancel(second) is True
    two.queue(waiter)
    assert one.release(first)
    assert one.release(second)
    assert two.sink.wait_for_notification(key)
    two.hold(waiter)
    assert two.release(waiter)


def test_a_full_server_lets_a_writer_read_and_a_run_enter(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two, three = some_key(), *(contender(own_server.url) for _ in range(3))
    writer, reader, last = ask(key), read(key), read(key)
    one.hold(writer)
    two.queue(reader)
    three.queue(last)
    own_server.client.config_set("maxmemory", 1)
    assert one.downgrade(writer)
    for who, mine in ((two, reader), (three, last)):
        assert who.sink.wait_for_notification(key)
        who.hold(mine)
    assert own_server.client.zcard(f"{hold_key(key)}:holders") == 3


@pytest.mark.fault("F12")
@sharing
def test_lost_data_is_told_to_those_inside_and_lets_others_in(
    own_server: RedisServer, contender: MakeContender, share: Make, outside: Make
) -> None:
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)
    mine, other = share(key), outside(key)
    one.hold(mine)
    two.queue(other)
    own_server.client.flushall()
    assert one.renew([mine]) == [False]
    two.hold(other)
    assert one.release(mine) is False
    one.queue(mine)


@sharing
def test_a_server_that_forgot_its_scripts_is_taught_again(
    own_server: RedisServer, contender: MakeContender, share: Make, outside: Make
) -> None:
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)
    mine, other = share(key), outside(key)
    for step in (
        lambda: one.hold(mine),
        lambda: two.queue(other),
        lambda: one.renew([mine]) == [True],
        lambda: one.cancel(mine),
        lambda: one.release(mine),
        lambda: two.hold(other),
    ):
        own_server.client.script_flush()
        assert step()


@sharing
def test_a_restarted_server_without_data_is_a_new_beginning(
    own_server: RedisServer, contender: MakeContender, share: Make, outside: Make
) -> None:
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)
    mine, other = share(key), outside(key)
    one.hold(mine)
    own_server.restart()
    assert one.renew([mine]) == [False]
    two.hold(other)


@sharing
def test_a_child_has_none_of_its_parents(
    redis_server: RedisServer, contender: MakeContender, share: Make, outside: Make
) -> None:
    key, one = some_key(), contender(redis_server.url)
    mine = share(key)
    one.hold(mine)

    pid = os.fork()
    if pid == 0:
        one.after_fork()
        ours = isinstance(one.request(outside(key)), Acquired)
        os._exit(1 if ours else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert one.renew([mine]) == [True]
    assert one.release(mine)


def test_a_thousand_readers(redis_server: RedisServer, contender: MakeContender) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    readers = [read(key) for _ in range(1000)]
    for mine in readers:
        one.hold(mine)
    assert two.request(ask(key, wait=False)) == Busy()
    writer = ask(key)
    two.queue(writer)
    assert one.renew(readers) == [True] * 1000
    sight = two.inspect(key)
    assert (sight.mode, sight.others, sight.waiting) == (READ, 999, 1)
    for mine in readers[:-1]:
        assert one.release(mine)
    assert two.sink.notified_keys == []
    assert one.release(readers[-1])
    assert two.sink.wait_for_notification(key)
    two.hold(writer)


def test_a_thousand_that_died_are_cleared_at_once(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(redis_server.url)
    for _ in range(1000):
        one.hold(permit(key, 1000, ttl=0.5))
    last = permit(key, 1000, 1000)
    one.queue(last)
    one.poll(last)
    assert redis_server.client.zcard(f"{hold_key(key)}:holders") == 1


@sharing
def test_a_hold_without_an_end_is_told_and_renewal_gives_it_one(
    redis_server: RedisServer, contender: MakeContender, share: Make, outside: Make
) -> None:
    key, one = some_key(), contender(redis_server.url)
    mine = share(key)
    one.hold(mine)
    for name in (hold_key(key), f"{hold_key(key)}:holders"):
        redis_server.client.persist(name)
    if share is read:
        with pytest.raises(BackendUnavailable, match="had no lifetime"):
            one.request(ask(key, wait=False))
    assert one.renew([mine]) == [True]
    for name in (hold_key(key), f"{hold_key(key)}:holders"):
        assert redis_server.client.pttl(name) > 0


@pytest.mark.parametrize("wait", [True, False], ids=["waiting", "trying"])
def test_readers_whose_hold_has_no_end_keep_a_writer_out_until_the_last_lease_ends(
    redis_server: RedisServer, contender: MakeContender, wait: bool
) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    client, place = redis_server.client, hold_key(key)
    mine, writer = read(key, ttl=2 * LONG), ask(key, wait=wait)
    shorter = [read(key) for _ in range(2)]
    for reader in (*shorter, mine):
        one.hold(reader)
    for name in (place, f"{place}:holders"):
        client.persist(name)
    with pytest.raises(BackendUnavailable, match="had no lifetime"):
        two.request(writer)
    # Not the writer's ttl, which may be over before that of the readers is.
    for name in (place, f"{place}:holders"):
        assert LONG * 1000 < client.pttl(name) <= 2 * LONG * 1000
    assert not isinstance(two.request(writer), Acquired)
    for reader in (*shorter, mine):
        assert one.release(reader)


def test_readers_that_died_under_a_hold_without_an_end_let_a_writer_in(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    client, place = redis_server.client, hold_key(key)
    one.hold(read(key))
    # The lease of the only one ended long ago.
    client.zadd(f"{place}:holders", {client.zrange(f"{place}:holders", 0, 0)[0]: 1})
    client.persist(place)
    writer = ask(key)
    with pytest.raises(BackendUnavailable, match="had no lifetime"):
        two.request(writer)
    two.hold(writer)


@pytest.mark.parametrize("holders", ["gone", "of another kind"])
def test_a_hold_of_readers_without_an_end_ends_also_where_nobody_is_known_to_read(
    redis_server: RedisServer, contender: MakeContender, holders: str
) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    client, place = redis_server.client, hold_key(key)
    one.hold(read(key))
    client.persist(place)
    client.delete(f"{place}:holders")
    if holders == "of another kind":
        client.set(f"{place}:holders", "theirs")
    with pytest.raises(BackendUnavailable, match="redis-cli -n 0 DEL"):
        two.request(ask(key))
    if holders == "gone":
        assert client.pttl(place) > LONG * 1000
    client.delete(f"{place}:holders")


def test_permits_that_are_given_back_without_waiting_all_come_back(
    proxy: Proxy, redis_server: RedisServer, contender: MakeContender
) -> None:
    """Also where the connection breaks on which the first of them was sent."""
    key, one, two = some_key(), contender(proxy.url), contender(redis_server.url)
    warm_up = permit()
    one.hold(warm_up)
    assert one.release(warm_up)
    held, unknown = [permit(key, 3) for _ in range(3)], list[LockRequest]()
    for mine in held:
        one.hold(mine)
    proxy.lose_request()
    for mine in held:
        one.post(mine, lambda ours, mine=mine: unknown.append(mine) if ours is None else None)
    eventually(one.settle, "all is answered, or known to be lost")
    for mine in unknown:
        one.release(mine)
    two.hold(permit(key, 3, 3))


def test_permits_whose_hold_was_deleted_do_not_come_back_beside_those_of_the_next(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two, three = some_key(), *(contender(redis_server.url) for _ in range(3))
    first, second, third = permit(key, permits=2), permit(key), permit(key)
    one.hold(first)
    two.queue(second)
    three.queue(third)
    # An operator deletes the hold, and not the set of its holders.
    redis_server.client.delete(hold_key(key))
    assert two.cancel(second) is False
    assert three.sink.wait_for_notification(key)
    three.hold(third)
    assert one.renew([first]) == [False]
