"""The subscription: there when it is needed, back when it broke, and what its pushes hand over."""

from __future__ import annotations

import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

import distlock
from distlock import clock
from distlock.backends.protocols import PushesHolds
from distlock.backends.redis import subscription
from distlock.backends.redis.address import RedisAddress
from distlock.backends.redis.queue_entries import QueueEntries
from distlock.locks import latch_waits
from distlock.testing.protocol_fixtures import RecordingSink
from distlock.testing.waits import wait_for_latch_waiters
from tests.backends.redis.contender import Contender, MakeContender, ask, some_key
from tests.redis_server import PATIENCE, RedisServer, eventually
from tests.stored import hold_key


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
    assert two.sink.missed == 0


def test_who_waits_can_be_handed_the_lock_from_the_first_answer_on(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    for _ in range(20):
        key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
        first, second = ask(key), ask(key)
        one.hold(first)
        two.queue(second)
        one.release(first)
        assert two.sink.wait_for_notification(key)
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
        assert two.sink.wait_for_notification(first.key)


def test_a_lost_subscription_is_doubted_and_taken_up_again(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    own_server.client.client_kill_filter(_type="pubsub", skipme=True)
    eventually(lambda: two.sink.missed == 2, "it doubted when the connection broke and when it was back")
    assert listens(own_server, two)
    two.queue(second)
    one.release(first)
    assert two.sink.wait_for_notification(key)
    two.hold(second)


def test_who_cannot_hear_asks_more_often(own_server: RedisServer, contender: MakeContender) -> None:
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)
    second = ask(key)
    one.hold(ask(key))
    assert two.queue(second).poll > 0.3
    # The server ends a subscription that is not allowed any more.
    own_server.tell("ACL", "SETUSER", "default", "resetchannels")
    eventually(lambda: two.sink.missed == 1, "it doubted")
    assert two.queue(second).poll <= 0.1


def test_the_listener_comes_back_with_the_server(own_server: RedisServer, contender: MakeContender) -> None:
    one, two = contender(own_server.url), contender(own_server.url)
    first = ask()
    one.hold(first)
    two.queue(ask(first.key))
    own_server.kill()
    eventually(lambda: two.sink.missed == 1, "it doubted when the server died")
    own_server.start()
    eventually(lambda: two.sink.missed == 2, "it doubted when the server was back")
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
    assert two.sink.missed == 0
    own_server.pause()
    eventually(lambda: two.sink.missed == 1, "it doubted when nothing came back")
    own_server.resume()
    eventually(lambda: two.sink.missed == 2, "it doubted when the server was back")


def test_a_sink_that_was_told_nothing_has_nothing_to_fear_from_close(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    one, two = contender(redis_server.url), contender(redis_server.url)
    first = ask()
    one.hold(first)
    two.queue(ask(first.key))
    two.close()
    assert two.sink.missed == 0
    assert not any(thread.name == "distlock-redis-listener" for thread in threading.enumerate())


class Interrupt(BaseException):
    pass


def interrupted_at(number: int, one: subscription.Subscription) -> bool:
    """Whether there was such a moment in the wait for the subscription: a call of C that returns."""
    moments = 0

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal moments
        if event != "c_return" or not frame.f_code.co_filename.endswith(
            ("/signal_safety.py", "/threading.py")
        ):
            return
        moments += 1
        if moments == number:
            sys.setprofile(None)
            raise Interrupt

    one.ensure_started(0.0)  # The interrupt is not for the thread's own start.
    sys.setprofile(look)
    try:
        one.ensure_started(clock.now() + PATIENCE)
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
        other = threading.Thread(
            target=one._subscription.ensure_started, args=(clock.now() + PATIENCE,), daemon=True
        )
        other.start()
        other.join(PATIENCE / 2)
        assert not other.is_alive(), f"it waits since the interrupt at moment {number}"
        if not interrupted:
            break
    assert number > 2, "is anything traced?"


# -- pushes that hand the lock over -----------------------------------------------------------------


WINDOW = 0.5


@pytest.fixture
def told() -> RecordingSink:
    return RecordingSink()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, as the test sets it."""
    now = [1000.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    return now


@pytest.fixture
def entries(told: RecordingSink, time: list[float]) -> QueueEntries:
    return QueueEntries(RedisAddress("redis://"), told, WINDOW)


def test_a_push_names_the_hold_and_the_poll_that_it_answers(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    before = clock.now()
    two.queue(second)
    one.release(first)
    assert two.sink.wait_for_notification(key)
    [(where, token, number, sent)] = two.sink.hand_offs
    assert (where, token) == (key, second.token)
    assert before <= sent <= clock.now()
    assert isinstance(two, PushesHolds)
    assert two.acknowledge([(second, number)]) == [True]
    assert redis_server.client.pttl(hold_key(key)) > 1000 * WINDOW
    assert two.hold(second).number == number


def test_the_push_that_answers_the_latest_poll_hands_the_lock_over(
    entries: QueueEntries, told: RecordingSink, time: list[float]
) -> None:
    mine = ask("shop:product 1")
    entries.poll(mine)
    time[0] += 5.0
    number, _ = entries.poll(mine)
    time[0] += WINDOW / 2 - 0.01
    entries.receive(f"{number} 42 500 shop:product 1".encode())
    assert told.hand_offs == [("shop:product 1", mine.token, 42, 1005.0)]


def test_an_older_push_that_arrives_after_a_newer_poll_is_only_a_hint(
    entries: QueueEntries, told: RecordingSink
) -> None:
    mine = ask("shop:product_1")
    older, _ = entries.poll(mine)
    entries.poll(mine)
    entries.receive(f"{older} 42 500 shop:product_1".encode())
    assert told.hand_offs == []
    assert told.notified_keys == ["shop:product_1"]


def test_a_push_that_was_under_way_for_half_of_its_window_is_only_a_hint(
    entries: QueueEntries, told: RecordingSink, time: list[float]
) -> None:
    number, _ = entries.poll(ask("shop:product_1"))
    time[0] += WINDOW / 2
    entries.receive(f"{number} 42 500 shop:product_1".encode())
    assert told.hand_offs == []
    assert told.notified_keys == ["shop:product_1"]


def test_a_push_of_a_process_with_a_shorter_window_is_only_a_hint(
    entries: QueueEntries, told: RecordingSink
) -> None:
    """The hold ends before this process would expect it."""
    number = entries.poll(ask("shop:product_1"))[0]
    entries.receive(f"{number} 42 499 shop:product_1".encode())
    assert told.hand_offs == []
    assert told.notified_keys == ["shop:product_1"]


def test_a_push_for_what_nobody_waits_for_any_more_is_only_a_hint(
    entries: QueueEntries, told: RecordingSink
) -> None:
    mine = ask("shop:product_1")
    number, _ = entries.poll(mine)
    entries.forget(mine)
    entries.receive(f"{number} 42 500 shop:product_1".encode())
    assert told.hand_offs == []
    assert told.notified_keys == ["shop:product_1"]


#: More digits than Python makes a number of.
ENDLESS = "9" * 5000


@pytest.mark.parametrize(
    "payload",
    [
        "shop:product_1",
        "1 shop:product_1",
        "1 x 500 shop:product_1",
        "1 2 shop:product_1",
        "1 2",
        f"{ENDLESS} 2 shop:product_1",
        f"1 {ENDLESS} shop:product_1",
    ],
)
def test_what_is_no_push_of_ours_is_a_hint(entries: QueueEntries, told: RecordingSink, payload: str) -> None:
    entries.poll(ask("shop:product_1"))
    entries.receive(payload.encode())
    assert told.hand_offs == []
    assert told.notified_keys == [payload]


def test_who_gives_up_late_does_not_take_its_successor_along(
    entries: QueueEntries, told: RecordingSink
) -> None:
    given_up, mine = ask("shop:product_1"), ask("shop:product_1")
    entries.poll(given_up)
    number, _ = entries.poll(mine)
    entries.forget(given_up)
    entries.receive(f"{number} 42 500 shop:product_1".encode())
    assert [token for _, token, _, _ in told.hand_offs] == [mine.token]


@pytest.mark.parametrize("passed_on", [False, True])
def test_what_was_acknowledged_or_lost_waits_no_more(
    redis_server: RedisServer, contender: MakeContender, passed_on: bool
) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    one.release(first)
    assert two.sink.wait_for_notification(key)
    [(_, _, number, _)] = two.sink.hand_offs
    if passed_on:
        redis_server.client.delete(hold_key(key))
    assert two.acknowledge([(second, number)]) == [not passed_on]
    # Else one is kept for each name for as long as the process lives.
    assert two._entries.waiting() == []


def test_what_was_given_up_while_the_server_was_away_is_not_kept_for_ever(
    entries: QueueEntries, time: list[float]
) -> None:
    mine = ask("shop:product_1")
    entries.poll(mine)
    for product in range(5000):
        entries.poll(ask(f"shop:given_up_{product}"))
        if product % 500 == 0:
            time[0] += 10.0
            entries.poll(mine)
            entries.queued(mine, b"its place")
    assert len(entries.waiting()) < 4000
    # A waiter asks again, and is not forgotten.
    assert entries.entry(mine) == b"its place"


def test_an_acknowledgement_never_grants(redis_server: RedisServer, contender: MakeContender) -> None:
    one, mine = contender(redis_server.url), ask()
    assert one.acknowledge([(mine, 1)]) == [False]
    assert not one.locked(mine.key)


def test_an_acknowledgement_is_for_one_number(redis_server: RedisServer, contender: MakeContender) -> None:
    """An ask that comes again late is granted again, after others were inside."""
    one, mine = contender(redis_server.url), ask()
    number = one.hold(mine).number
    one.release(mine)
    again = one.hold(mine).number
    assert again > number
    assert one.acknowledge([(mine, number)]) == [False]
    assert one.acknowledge([(mine, again), (ask(mine.key), again)]) == [True, False]


@pytest.mark.attack("A36")
def test_a_token_never_leaves_for_the_channel(redis_server: RedisServer, contender: MakeContender) -> None:
    """Any listener could release the lock with it."""
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    with redis_server.client.pubsub() as ears:
        ears.psubscribe("dl:*")
        ears.get_message(timeout=5.0)
        one.release(first)
        heard = ears.get_message(timeout=5.0)
    assert heard is not None
    assert second.token.encode() not in heard["data"]


def test_those_that_wait_are_woken_when_their_subscription_is_back(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latch_waits, "POLL", 10 * PATIENCE)
    locks = distlock.connect(own_server.url, prefix="test", timeout=PATIENCE)
    locks.latch("import", 1).make()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(locks.latch("import").wait)
        wait_for_latch_waiters(locks, 1)
        own_server.tell("ACL", "SETUSER", "default", "-subscribe")
        own_server.client.client_kill_filter(_type="pubsub")
        eventually(lambda: not own_server.client.pubsub_channels(), "nobody listens")
        locks.latch("import").count_down()
        assert not waiting.done()
        own_server.tell("ACL", "SETUSER", "default", "+subscribe")
        assert waiting.result(PATIENCE)
    locks.close()
