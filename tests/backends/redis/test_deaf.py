"""Waiters without a subscription: no push reaches them, and they keep their places."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.backends.redis.contender import Contender, MakeContender, ask, some_key
from tests.backends.redis.sharing import read
from tests.redis_server import RedisServer, eventually
from tests.stored import FORMAT, hold_key

MakeDeaf = Callable[[], Contender]


@pytest.fixture
def deaf(own_server: RedisServer, contender: MakeContender) -> MakeDeaf:
    """Makes one that may not subscribe."""
    own_server.tell("ACL", "SETUSER", "deaf", "on", ">secret", "+@all", "~*", "&*", "-subscribe")
    return lambda: contender(f"redis://deaf:secret@127.0.0.1:{own_server.port}")


def test_a_process_that_cannot_hear_is_passed_over_and_keeps_its_place(
    own_server: RedisServer, contender: MakeContender, deaf: MakeDeaf
) -> None:
    key = some_key()
    one, three = contender(own_server.url), contender(own_server.url)
    two = deaf()
    first, second, third = ask(key), ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    three.queue(third)
    one.release(first)
    assert three.sink.wait_for_notification(key)
    three.hold(third)
    (waits,) = own_server.client.lrange(f"{hold_key(key)}:queue", 0, -1)
    assert waits.split()[0] == two.process.encode()
    three.release(third)
    two.hold(second)


def test_those_that_cannot_hear_keep_their_order(
    own_server: RedisServer, contender: MakeContender, deaf: MakeDeaf
) -> None:
    key, one, last = some_key(), contender(own_server.url), contender(own_server.url)
    first, third = ask(key), ask(key)
    one.hold(first)
    others = [deaf() for _ in range(3)]
    for two in others:
        two.queue(ask(key))
    last.queue(third)
    one.release(first)
    assert last.sink.wait_for_notification(key)
    last.hold(third)
    queue = f"{hold_key(key)}:queue"
    waiting = [entry.split()[0].decode() for entry in own_server.client.lrange(queue, 0, -1)]
    assert waiting == [two.process for two in others]
    assert own_server.client.pttl(queue) > 0
    assert last.release(third)
    assert not last.locked(key)


def test_who_passes_those_that_cannot_hear_hands_over_to_them_when_they_can(
    own_server: RedisServer, contender: MakeContender, deaf: MakeDeaf
) -> None:
    key, one, three = some_key(), contender(own_server.url), contender(own_server.url)
    two = deaf()
    first, second, third = ask(key), ask(key), ask(key, wait=False)
    one.hold(first)
    two.queue(second)
    one.release(first)
    three.hold(third)
    own_server.tell("ACL", "SETUSER", "deaf", "+subscribe")
    channel = f"{FORMAT}:ch:{two.process}"
    eventually(lambda: own_server.client.pubsub_numsub(channel)[0][1], "it hears")
    assert three.release(third)
    assert two.sink.wait_for_notification(key)
    two.hold(second)


def test_readers_who_pass_those_that_cannot_hear_read_together(
    own_server: RedisServer, contender: MakeContender, deaf: MakeDeaf
) -> None:
    key, one, three, four = some_key(), *(contender(own_server.url) for _ in range(3))
    two = deaf()
    first = ask(key)
    one.hold(first)
    two.queue(ask(key))
    one.release(first)
    reader = read(key, wait=False)
    three.hold(reader)
    own_server.client.delete(f"{hold_key(key)}:queue")
    four.hold(read(key, wait=False))
    assert three.renew([reader]) == [True]
