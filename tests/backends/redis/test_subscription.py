"""The subscription: there when it is needed, there again when it broke, gone when we are."""

from __future__ import annotations

import itertools
import sys
import threading
from types import FrameType
from typing import Any

import pytest

from distlock import clock
from distlock.backends.redis import subscription
from tests.backends.redis.contender import Contender, MakeContender, ask, some_key
from tests.redis_server import PATIENCE, RedisServer, eventually


def listens(server: RedisServer, one: Contender) -> bool:
    channel = f"dl:2:ch:{one.process}"
    return bool(server.client.pubsub_numsub(channel)[0][1] == 1)


def test_only_who_has_to_wait_listens(redis_server: RedisServer, contender: MakeContender) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    one.hold(ask(key))
    two.request(ask(key, wait=False))
    assert not listens(redis_server, one)
    assert not listens(redis_server, two)
    two.queue(ask(key))
    assert listens(redis_server, two)
    assert two.sink.doubts == 0


def test_who_waits_can_be_handed_the_lock_from_the_first_answer_on(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    for _ in range(20):
        key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
        first, second = ask(key), ask(key)
        one.hold(first)
        two.queue(second)
        one.release(first)
        assert two.sink.wait_for_hint(key)
        two.hold(second)
        two.release(second)


def test_all_locks_of_a_process_share_one_listener(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    one, two = contender(redis_server.url), contender(redis_server.url)
    held = [ask() for _ in range(10)]
    waiting = [ask(first.key) for first in held]
    before = set(threading.enumerate())
    for first, second in zip(held, waiting, strict=True):
        one.hold(first)
        two.queue(second)
    assert len(set(threading.enumerate()) - before) == 1
    for first in held:
        one.release(first)
        assert two.sink.wait_for_hint(first.key)


def test_a_lost_subscription_is_doubted_and_taken_up_again(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    own_server.client.client_kill_filter(_type="pubsub", skipme=True)
    eventually(lambda: two.sink.doubts == 2, "it doubted when the connection broke and when it was back")
    assert listens(own_server, two)
    two.queue(second)
    one.release(first)
    assert two.sink.wait_for_hint(key)
    two.hold(second)


def test_who_cannot_hear_asks_more_often(own_server: RedisServer, contender: MakeContender) -> None:
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)
    second = ask(key)
    one.hold(ask(key))
    assert two.queue(second).poll > 0.3
    # The server ends a subscription that is not allowed any more.
    own_server.tell("ACL", "SETUSER", "default", "resetchannels")
    eventually(lambda: two.sink.doubts == 1, "it doubted")
    assert two.queue(second).poll <= 0.1


def test_the_listener_comes_back_with_the_server(own_server: RedisServer, contender: MakeContender) -> None:
    one, two = contender(own_server.url), contender(own_server.url)
    first = ask()
    one.hold(first)
    two.queue(ask(first.key))
    own_server.kill()
    eventually(lambda: two.sink.doubts == 1, "it doubted when the server died")
    own_server.start()
    eventually(lambda: two.sink.doubts == 2, "it doubted when the server was back")
    assert listens(own_server, two)


def test_a_server_that_fell_silent_is_noticed(
    own_server: RedisServer, contender: MakeContender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "QUIET", 0.1)
    one, two = contender(own_server.url), contender(own_server.url, io_timeout=1.0)
    first = ask()
    one.hold(first)
    two.queue(ask(first.key))
    # Answered questions are no reason to doubt. That nothing happens can only be seen by waiting.
    threading.Event().wait(0.5)
    assert two.sink.doubts == 0
    own_server.pause()
    eventually(lambda: two.sink.doubts == 1, "it doubted when nothing came back")
    own_server.resume()
    eventually(lambda: two.sink.doubts == 2, "it doubted when the server was back")


def test_a_sink_that_was_told_nothing_has_nothing_to_fear_from_close(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    one, two = contender(redis_server.url), contender(redis_server.url)
    first = ask()
    one.hold(first)
    two.queue(ask(first.key))
    two.close()
    assert two.sink.doubts == 0
    assert not any(thread.name == "distlock-redis-listener" for thread in threading.enumerate())


class Interrupt(BaseException):
    pass


def interrupted_at(number: int, one: subscription.Subscription) -> bool:
    """Whether there was such a moment in the wait for the subscription: a call of C that returns."""
    moments = 0

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal moments
        if event != "c_return" or not frame.f_code.co_filename.endswith(("/flag.py", "/threading.py")):
            return
        moments += 1
        if moments == number:
            sys.setprofile(None)
            raise Interrupt

    one.start(0.0)  # The interrupt is not for the thread's own start.
    sys.setprofile(look)
    try:
        one.start(clock.now() + PATIENCE)
    except Interrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def test_whoever_is_interrupted_while_it_waits_for_the_subscription_stops_nobody(
    own_server: RedisServer, contender: MakeContender
) -> None:
    for number in itertools.count(1):
        one = contender(own_server.url)
        assert one._subscription is not None
        own_server.pause()
        threading.Timer(0.2, own_server.resume).start()
        interrupted = interrupted_at(number, one._subscription)
        other = threading.Thread(target=one._subscription.start, args=(clock.now() + PATIENCE,), daemon=True)
        other.start()
        other.join(PATIENCE / 2)
        assert not other.is_alive(), f"it waits since the interrupt at moment {number}"
        if not interrupted:
            break
    assert number > 2, "is anything traced?"
