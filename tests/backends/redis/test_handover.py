"""Which waiter is next, and what happens when it is not there."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

from distlock.backends.base import Busy
from distlock.backends.redis.scripts import hold_key
from tests.backends.redis.contender import MakeContender, ask, some_key
from tests.backends.redis.process import StartProcess
from tests.redis_server import RedisServer, eventually


def end_lease(server: RedisServer, key: str) -> None:
    """The time of the holder of *key* is over, and not before all others have asked."""
    assert server.client.pexpire(hold_key(key), 1)
    eventually(lambda: not server.client.exists(hold_key(key)), "the lease ended")


def test_the_lock_goes_round_in_the_order_of_the_asks(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    asks = [(contender(redis_server.url), ask(key)) for _ in range(6)]
    asks[0][0].hold(asks[0][1])
    for one, mine in asks[1:]:
        one.queue(mine)
    for (one, mine), (following, its) in pairwise(asks):
        assert one.release(mine)
        assert following.sink.wait_for_hint(key)
        following.hold(its)


def test_a_hand_over_tells_its_process_and_no_other(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(redis_server.url) for _ in range(3))
    first = ask(key)
    one.hold(first)
    two.queue(ask(key))
    three.queue(ask(key))
    one.release(first)
    assert two.sink.wait_for_hint(key)
    assert three.sink.hints == []


def test_a_hint_names_the_lock_as_the_engine_does(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key() + "}{ \u00e9 \U0001f600 * \r\n"
    one, two = contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    one.release(first)
    assert two.sink.wait_for_hint(key)


def test_a_waiter_whose_process_was_killed_is_skipped_at_once(
    redis_server: RedisServer, contender: MakeContender, start_process: StartProcess
) -> None:
    key = some_key()
    one, three = contender(redis_server.url), contender(redis_server.url)
    first, third = ask(key), ask(key)
    one.hold(first)
    dead = start_process(redis_server.url, key)
    assert dead.answer == "Queued"
    three.queue(third)
    dead.kill()
    eventually(
        lambda: redis_server.client.pubsub_numsub(dead.channel)[0][1] == 0, "the server knows that it is dead"
    )
    one.release(first)
    assert three.sink.wait_for_hint(key)
    three.hold(third)


def test_a_waiter_that_hangs_costs_one_window_once(
    redis_server: RedisServer, contender: MakeContender, start_process: StartProcess
) -> None:
    key = some_key()
    one, three = contender(redis_server.url, ack_window=0.3), contender(redis_server.url)
    first, third = ask(key), ask(key)
    one.hold(first)
    hangs = start_process(redis_server.url, key)
    three.queue(third)
    hangs.stop()
    one.release(first)
    began = time.monotonic()
    assert three.queue(third).poll <= 0.3 + 0.05
    three.poll(third)
    assert 0.2 < time.monotonic() - began < 1.0
    again = ask(key)
    one.queue(again)
    three.release(third)
    # The second time it is not in the way any more.
    assert one.sink.wait_for_hint(key)
    one.hold(again)


def test_a_killed_holder_costs_its_ttl_and_the_poll_comes_in_time(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two = contender(redis_server.url), contender(redis_server.url)
    one.hold(ask(key, ttl=0.4))
    second = ask(key)
    answer = two.queue(second)
    assert 0.0 < answer.poll <= 0.45
    # One poll, as late as we were told: the hold has ended by then.
    threading.Event().wait(answer.poll)
    two.hold(second)


def test_the_next_in_line_polls_while_a_hand_over_that_it_missed_is_worth_something(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(redis_server.url, ack_window=0.5) for _ in range(3))
    one.hold(ask(key))
    assert two.queue(ask(key)).poll <= 0.5
    assert three.queue(ask(key)).poll > 0.5


def test_the_further_behind_the_rarer_it_polls_and_the_longer_it_counts_as_alive(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two = contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    queue, polls = f"{hold_key(key)}:queue", []
    for before in (0, 100, 400, 5000):
        redis_server.client.delete(queue)
        redis_server.client.rpush(queue, *range(before), "last")
        redis_server.client.lrem(queue, 1, "last")
        polls.append(two.queue(second).poll)
        asks_by = float(redis_server.client.hget(f"{hold_key(key)}:waiters", two.process).split()[0])
        now, micros = redis_server.client.time()
        assert asks_by / 1000 - (now + micros / 1e6) > polls[-1] - 1.0
        assert redis_server.client.pttl(queue) / 1000 > 2 * polls[-1]
    assert polls == sorted(polls)
    assert 15.0 <= polls[-1] <= 20.0
    one.release(first)
    # The others have no entry: they are nobody, and some are cleared away by each call.
    two.poll(second)


def test_who_polls_a_free_lock_hands_it_to_the_one_before_him(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(redis_server.url) for _ in range(3))
    second, third = ask(key), ask(key)
    one.hold(ask(key))
    two.queue(second)
    three.queue(third)
    end_lease(redis_server, key)
    three.queue(third)
    assert two.sink.wait_for_hint(key)
    two.hold(second)


def test_who_does_not_wait_does_not_pass_who_does(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(redis_server.url) for _ in range(3))
    second = ask(key)
    one.hold(ask(key))
    two.queue(second)
    end_lease(redis_server, key)
    assert three.request(ask(key, wait=False)) == Busy()
    assert two.sink.wait_for_hint(key)
    two.hold(second)


def test_a_process_that_cannot_hear_is_passed_over_and_keeps_its_place(
    own_server: RedisServer, contender: MakeContender
) -> None:
    own_server.tell("ACL", "SETUSER", "deaf", "on", ">secret", "+@all", "~*", "&*", "-subscribe")
    key = some_key()
    one, three = contender(own_server.url), contender(own_server.url)
    two = contender(f"redis://deaf:secret@127.0.0.1:{own_server.port}")
    first, second, third = ask(key), ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    three.queue(third)
    one.release(first)
    assert three.sink.wait_for_hint(key)
    three.hold(third)
    assert own_server.client.lrange(f"{hold_key(key)}:queue", 0, -1) == [two.process.encode()]
    three.release(third)
    two.hold(second)


def test_a_waiter_that_stopped_asking_is_forgotten(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(redis_server.url) for _ in range(3))
    first, second, third = ask(key), ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    waiters = f"{hold_key(key)}:waiters"
    # As if it had been seen last in 1970; it is subscribed, so a hand-over would cost a window.
    redis_server.client.hset(waiters, two.process, f"0 1 {second.token}")
    three.queue(third)
    one.release(first)
    assert three.sink.wait_for_hint(key)
    three.hold(third)
    two.queue(second)


def test_a_long_queue_of_dead_waiters_is_cleared_over_several_calls(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two = contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    hold = hold_key(key)
    now = round(redis_server.client.time()[0] * 1000)
    for number in range(500):
        redis_server.client.rpush(f"{hold}:queue", f"dead{number}")
        redis_server.client.hset(f"{hold}:waiters", f"dead{number}", f"{now} 1 token{number}")
    two.queue(second)
    one.release(first)
    assert not two.locked(key)
    began = time.monotonic()
    two.poll(second)
    assert time.monotonic() - began < 1.0


def test_a_cancel_that_races_with_a_hand_over_is_decided_by_the_server(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    one, two = contender(redis_server.url), contender(redis_server.url)
    kept = 0
    for _ in range(200):
        key = some_key()
        first, second = ask(key), ask(key)
        one.hold(first)
        two.queue(second)
        start = threading.Barrier(2)

        def release() -> None:
            start.wait()  # noqa: B023 - it is joined before the next round
            one.release(first)  # noqa: B023

        thread = threading.Thread(target=release)
        thread.start()
        start.wait()
        ours = two.cancel(second)
        thread.join()
        # Either it is ours and nobody else's, or it is free: never in between.
        assert two.locked(key) is ours
        assert two.release(second) is ours
        kept += ours
    assert not two.locked(key), kept


def test_who_gives_up_a_free_lock_hands_it_to_the_next(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(redis_server.url) for _ in range(3))
    second, third = ask(key), ask(key)
    one.hold(ask(key))
    two.queue(second)
    three.queue(third)
    end_lease(redis_server, key)
    assert two.cancel(second) is False
    assert three.sink.wait_for_hint(key)
    three.hold(third)


def test_a_late_cancel_does_not_take_its_successor_along(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two = contender(redis_server.url), contender(redis_server.url)
    first, given_up, second = ask(key), ask(key), ask(key)
    one.hold(first)
    two.queue(given_up)
    two.queue(second)
    assert two.cancel(given_up) is False
    one.release(first)
    assert two.sink.wait_for_hint(key)
    two.hold(second)


def test_who_takes_what_he_was_handed_has_it_for_its_ttl(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two = contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key), ask(key, ttl=30.0)
    one.hold(first)
    two.queue(second)
    one.release(first)
    assert redis_server.client.pttl(hold_key(key)) <= 500
    two.hold(second)
    assert redis_server.client.pttl(hold_key(key)) > 20_000


def test_who_asks_often_has_one_place(redis_server: RedisServer, contender: MakeContender) -> None:
    key = some_key()
    one, two = contender(redis_server.url), contender(redis_server.url)
    second = ask(key)
    one.hold(ask(key))
    for _ in range(5):
        two.queue(second)
    assert redis_server.client.llen(f"{hold_key(key)}:queue") == 1
