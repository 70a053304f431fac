"""Latches on a real server: what it keeps, what it may lose, and who may write there."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import distlock
from distlock.errors import BackendUnavailable
from distlock.testing.waits import PATIENCE, wait_for_latch_waiters
from tests.backends.redis.contender import MakeContender
from tests.backends.redis.proxy import Proxy
from tests.backends.redis.test_permissions import LEAST_RULES
from tests.redis_server import RedisServer, eventually
from tests.stored import hold_key


def some_key() -> str:
    return f"test/latch:import_{secrets.token_hex(4)}"


@pytest.fixture
def locks(own_server: RedisServer) -> Iterator[distlock.Locks]:
    locks = distlock.connect(own_server.url, prefix="test", timeout=PATIENCE)
    yield locks
    locks.close()


def test_its_keys_have_an_end_and_a_slot_of_their_own(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(own_server.url)
    one.make_latch(key, 2, 30.0, "maker")
    one.look_at_latches([key], True)
    one.count_latch_down(key, 1, "part")
    keys = {name.decode() for name in own_server.client.keys("*")}
    assert keys == {f"{hold_key(key)}:latch", f"{hold_key(key)}:watched"}
    for name in keys:
        assert 0 < own_server.client.pttl(name) <= 60_000
    one.count_latch_down(key, 1, "another")
    assert [name.decode() for name in own_server.client.keys("*")] == [f"{hold_key(key)}:latch"]


def test_data_that_is_lost_takes_it_along(own_server: RedisServer, locks: distlock.Locks) -> None:
    locks.latch("import", 1).make()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(locks.latch("import").wait)
        wait_for_latch_waiters(locks, 1)
        own_server.client.flushall()
        with pytest.raises(distlock.LatchNotFound):
            waiting.result(PATIENCE)


def test_a_life_that_its_maker_makes_again_is_another_one(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    # The answer of the first request was lost, and the latch was deleted before the second.
    key, one = some_key(), contender(redis_server.url)
    first = one.make_latch(key, 2, 30.0, "maker")
    assert one.count_latch_down(key, 1, "part", first.life)
    assert one.delete_latch(key, first.life)
    second = one.make_latch(key, 2, 30.0, "maker")
    assert one.count_latch_down(key, 1, "part", first.life) is None
    assert not one.delete_latch(key, first.life)
    (there,) = one.look_at_latches([key])
    assert there is not None
    assert (there.life, there.left) == (second.life, 2)
    assert one.delete_latch(key, second.life)


def test_who_waits_for_a_life_is_not_let_in_by_another_one_of_its_maker(
    own_server: RedisServer, locks: distlock.Locks, contender: MakeContender
) -> None:
    key, one = "test/latch:import", contender(own_server.url)
    one.make_latch(key, 1, 30.0, "maker")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(locks.latch("import").wait)
        eventually(lambda: own_server.client.exists(f"{hold_key(key)}:watched"), "it has looked")
        # Nobody is told.
        own_server.client.delete(f"{hold_key(key)}:latch")
        one.make_latch(key, 1, 30.0, "maker")
        one.count_latch_down(key, 1, "part")
        with pytest.raises(distlock.LatchNotFound):
            waiting.result(PATIENCE)


def test_a_count_whose_reply_was_lost_counts_once(
    redis_server: RedisServer, contender: MakeContender, proxy: Proxy
) -> None:
    key, one = some_key(), contender(proxy.url)
    one.make_latch(key, 3, 30.0, "maker")
    proxy.lose_reply()
    counted = one.count_latch_down(key, 1, "part")
    assert proxy.lost.is_set()
    assert counted is not None
    assert counted.left == 2


def test_a_server_that_forgot_its_scripts_is_told_again(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(own_server.url)
    one.make_latch(key, 3, 30.0, "maker")
    own_server.client.script_flush()
    counted = one.count_latch_down(key, 1, "part")
    assert counted is not None
    assert counted.left == 2


@pytest.mark.parametrize("command", [("SET", "x"), ("HSET", "a", "b"), ("HSET", "maker", "b")])
def test_what_is_not_ours_is_named(
    own_server: RedisServer, contender: MakeContender, command: tuple[str, ...]
) -> None:
    key, one = some_key(), contender(own_server.url)
    place = f"{hold_key(key)}:latch"
    own_server.tell(command[0], place, *command[1:])
    with pytest.raises(BackendUnavailable, match=f"DEL '{place}'"):
        one.make_latch(key, 1, 30.0, "maker")
    if command[1] != "a":
        with pytest.raises(BackendUnavailable, match=f"DEL '{place}'"):
            one.look_at_latches([key])


def test_one_whose_lifetime_was_taken_away_gets_it_back(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(own_server.url)
    one.make_latch(key, 1, 30.0, "maker")
    own_server.client.persist(f"{hold_key(key)}:latch")
    one.look_at_latches([key])
    assert 0 < own_server.client.pttl(f"{hold_key(key)}:latch") <= 30_000


@pytest.mark.fault("F13")
def test_a_full_server_counts_nothing_by_half(own_server: RedisServer, contender: MakeContender) -> None:
    key, one = some_key(), contender(own_server.url)
    one.make_latch(key, 1, 30.0, "maker")
    own_server.client.config_set("maxmemory", "1")
    with pytest.raises(BackendUnavailable, match="maxmemory"):
        one.count_latch_down(key, 1, "part")
    with pytest.raises(BackendUnavailable, match="maxmemory"):
        one.make_latch(some_key(), 1, 30.0, "maker")
    own_server.client.config_set("maxmemory", "0")
    counted = one.count_latch_down(key, 1, "part")
    assert counted is not None
    assert counted.left == 0


def test_a_user_with_the_documented_permissions_has_latches(
    own_server: RedisServer, contender: MakeContender
) -> None:
    own_server.tell("ACL", "SETUSER", "shop", "on", ">secret", "-@all", *LEAST_RULES)
    key, one = some_key(), contender(f"redis://shop:secret@127.0.0.1:{own_server.port}")
    one.make_latch(key, 1, 30.0, "maker")
    assert one.look_at_latches([key], True)
    one.count_latch_down(key, 1, "part")
    assert one.sink.wait_for_notification(key)
    own_server.client.persist(f"{hold_key(key)}:latch")
    assert one.look_at_latches([key], True)
    assert own_server.client.acl_log() == []
