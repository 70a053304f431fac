"""Names of clients as keys of the server, and how long these live."""

from __future__ import annotations

import pytest

from tests.backends.redis.contender import MakeContender, ask, some_key
from tests.redis_server import RedisServer
from tests.stored import hold_key

HOSTILE = ["}{", "{", "}", "{}", "1}:queue", ":queue", ":fence", "\r\nFLUSHALL\r\n", "*", "?", "[a]", "\x00"]
HOSTILE += [
    "",
    " ",
    "\U0001f600",
    "é",
    "e\u0301",
    "%7D",
    "%",
    "$6",
    "x" * 300,
    "x" * 299 + "y",
    "\\",
    "'",
    '"',
]


@pytest.mark.attack("A14")
def test_hostile_names_are_distinct_locks(redis_server: RedisServer, contender: MakeContender) -> None:
    base = some_key()
    one, two = contender(redis_server.url), contender(redis_server.url)
    requests = [ask(base + name) for name in HOSTILE]
    for mine in requests:
        one.hold(mine)
    for mine in requests:
        two.queue(ask(mine.key))
    for mine in requests:
        assert one.release(mine)


@pytest.mark.attack("A14")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_steers_neither_the_slot_nor_the_line(
    own_server: RedisServer, contender: MakeContender, name: str
) -> None:
    contender(own_server.url).hold(ask(f"shop:{name}"))
    (key,) = (key.decode() for key in own_server.client.keys("dl:2:{*}"))
    assert key.startswith("dl:2:{shop%3A")
    assert key.count("{") == key.count("}") == 1
    assert key.isascii()
    assert key.isprintable()
    assert " " not in key
    assert len(key) <= len("dl:2:{}") + 200
    if len(name) < 100:
        assert key == hold_key(f"shop:{name}")


def test_every_key_has_an_end(own_server: RedisServer, contender: MakeContender) -> None:
    one, two = contender(own_server.url), contender(own_server.url)
    for number in range(10_000):
        mine = ask(f"shop:product_{number}", ttl=30.0)
        one.hold(mine)
        if number % 3 == 0:
            two.queue(ask(mine.key))
        if number % 2 == 0:
            one.release(mine)
    keys = list(own_server.client.scan_iter(count=1000))
    assert len(keys) > 10_000
    pipeline = own_server.client.pipeline(transaction=False)
    for key in keys:
        pipeline.pttl(key)
    ends = pipeline.execute()
    # That is how the server writes "never". The longest are the counters.
    assert -1 not in ends
    assert max(ends) <= 61_000


def test_a_lock_of_redisson_under_the_same_name_is_another_key(
    own_server: RedisServer, contender: MakeContender
) -> None:
    """As docs/from/java.md says. Its `RLock` is a hash: the owner, and how often it has entered."""
    redisson = ["hot", "shop:hot"]
    for name in redisson:
        own_server.client.hset(name, "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1")
    contender(own_server.url).hold(ask("shop:hot"))
    assert hold_key("shop:hot") == "dl:2:{shop%3Ahot}"
    assert own_server.client.type(hold_key("shop:hot")) == b"string"
    ours = {key.decode() for key in own_server.client.scan_iter()} - {*redisson}
    assert all(key.startswith("dl:2:{shop%3Ahot}") for key in ours)
    assert [own_server.client.type(name) for name in redisson] == [b"hash", b"hash"]


def test_a_lock_that_nobody_wants_leaves_its_numbers_for_a_while(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key), ask(key)
    number = one.hold(first).number
    two.queue(second)
    assert two.cancel(second) is False
    assert one.release(first)
    place = hold_key(key)
    assert set(redis_server.client.keys(f"{place}*")) == {place.encode(), f"{place}:fence".encode()}
    assert redis_server.client.get(place) == b"%d %d" % (number, number + 1)
    assert 0 < redis_server.client.pttl(place) <= 30_000
    assert not two.locked(key)


def test_a_unix_socket_leads_to_the_same_locks(redis_server: RedisServer, contender: MakeContender) -> None:
    one, two = contender(redis_server.url), contender(f"unix://{redis_server.socket}")
    first = ask()
    one.hold(first)
    two.queue(ask(first.key))


def test_another_database_has_other_locks(redis_server: RedisServer, contender: MakeContender) -> None:
    one, two = contender(redis_server.url), contender(redis_server.url.removesuffix("0") + "1")
    first = ask()
    one.hold(first)
    two.hold(ask(first.key))


def test_a_queue_has_an_end_from_its_first_waiter_on(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two, three = some_key(), *(contender(redis_server.url) for _ in range(3))
    one.hold(ask(key))
    for waiter in (two, three):
        waiter.queue(ask(key))
        assert 0 < redis_server.client.pttl(f"{hold_key(key)}:queue") <= 60_000


def test_a_hand_off_that_raises_the_counter_restarts_the_lifetime_of_the_queue(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two, three = some_key(), *(contender(redis_server.url) for _ in range(3))
    first, second = ask(key), ask(key, span=1_000_000)
    one.hold(first)
    two.queue(second)
    three.queue(ask(key))
    queue = f"{hold_key(key)}:queue"
    assert redis_server.client.pexpire(queue, 30_000)
    assert one.release(first)
    assert redis_server.client.pttl(queue) > 30_000
