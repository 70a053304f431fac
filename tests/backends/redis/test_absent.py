"""Waiters that are dead, hang or are far behind: when they are passed over, and how often they ask."""

from __future__ import annotations

import threading
import time

import pytest

from distlock.backends.base import Busy
from tests.backends.redis.contender import MakeContender, ask, some_key
from tests.backends.redis.planted import plant
from tests.backends.redis.process import StartProcess, crowd
from tests.redis_server import RedisServer, eventually
from tests.stored import hold_key, owner_in


@pytest.mark.fault("F02")
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
    assert three.sink.wait_for_notification(key)
    three.hold(third)


@pytest.mark.fault("F04")
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
    # A busy machine is late, but by far less than a ttl.
    assert 0.2 < time.monotonic() - began < 5.0
    again = ask(key)
    one.queue(again)
    three.release(third)
    # The second time it is not in the way any more.
    assert one.sink.wait_for_notification(key)
    one.hold(again)


@pytest.mark.fault("F04", control=True)
def test_a_hand_off_that_needs_no_answer_costs_a_whole_lease_where_the_waiter_hangs(
    redis_server: RedisServer,
    contender: MakeContender,
    start_process: StartProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, "AHandOffNeedsNoAnswer")
    key = some_key()
    one, last = contender(redis_server.url, ack_window=0.3), contender(redis_server.url)
    first, third = ask(key), ask(key)
    one.hold(first)
    hangs = start_process(redis_server.url, key)
    last.queue(third)
    hangs.stop()
    one.release(first)
    assert owner_in(redis_server.client.get(hold_key(key))) not in {None, third.token}
    assert redis_server.client.pttl(hold_key(key)) > 30_000


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


@pytest.mark.parametrize("window", [0.05, 0.1, 0.5])
def test_the_first_waiter_polls_within_its_window(
    redis_server: RedisServer, contender: MakeContender, window: float
) -> None:
    key = some_key()
    contender(redis_server.url).hold(ask(key))
    assert contender(redis_server.url, ack_window=window).queue(ask(key)).poll <= window


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
        asks_by = float(redis_server.client.lindex(queue, -1).split()[1])
        now, micros = redis_server.client.time()
        assert asks_by / 1000 - (now + micros / 1e6) > polls[-1] - 1.0
        assert redis_server.client.pttl(queue) / 1000 > 2 * polls[-1]
    assert polls == sorted(polls)
    assert 15.0 <= polls[-1] <= 20.0
    one.release(first)
    # The others are nobody: some are cleared away by each call.
    two.poll(second)


def test_the_next_in_line_asks_soon_although_it_was_far_behind_before(
    redis_server: RedisServer, contender: MakeContender, start_process: StartProcess
) -> None:
    """Should nobody take what was just handed off, somebody has to see it before the long rests are over."""
    key = some_key()
    one, two, three, four = (contender(redis_server.url, ack_window=0.3) for _ in range(4))
    first, second, third, fourth = (ask(key) for _ in range(4))
    one.hold(first)
    queue, others = f"{hold_key(key)}:queue", [f"other {number}" for number in range(5000)]
    redis_server.client.rpush(queue, *others)
    hangs = start_process(redis_server.url, key)
    assert two.queue(second).poll > 5.0
    assert three.queue(third).poll > 5.0
    assert four.queue(fourth).poll > 5.0
    # They have had their turns, faster than anybody thought.
    redis_server.client.ltrim(queue, len(others), -1)
    hangs.stop()
    one.release(first)
    assert two.sink.wait_for_notification(key)
    assert two.sink.hand_offs == []
    assert two.queue(second).poll <= 0.3 + 0.05
    two.poll(second)
    # Having asked again does not end that: the rests of those behind are as long as before.
    three.queue(third)
    two.release(second)
    assert three.sink.wait_for_notification(key)
    assert four.sink.wait_for_notification(key)
    assert four.sink.hand_offs == []


def test_who_queues_behind_a_hold_that_lasts_does_not_ask_before_a_poll_is_due(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two, three = some_key(), *(contender(redis_server.url) for _ in range(3))
    one.hold(ask(key))
    two.queue(ask(key))
    redis_server.client.delete(f"{hold_key(key)}:queue")
    assert three.queue(ask(key)).poll > 0.3
    # And who hands the lock to another one knows how long that one may take.
    redis_server.client.delete(hold_key(key))
    assert two.queue(ask(key)).poll > 0.3


@pytest.mark.fault("F04")
def test_two_neighbours_that_hang_in_a_long_and_fast_line_cost_a_window_each(
    redis_server: RedisServer, contender: MakeContender, start_process: StartProcess
) -> None:
    key, crowd = some_key(), 10
    one, mine = contender(redis_server.url, ack_window=0.3), ask(key)
    one.hold(mine)
    queue, others = f"{hold_key(key)}:queue", [f"other {number}" for number in range(5000)]
    redis_server.client.rpush(queue, *others)
    hang = [start_process(redis_server.url, key) for _ in range(2)]
    behind = [(contender(redis_server.url, ack_window=0.3), ask(key)) for _ in range(crowd)]
    for each, its in behind:
        assert each.queue(its).poll > 5.0
    # They have had their turns, faster than anybody thought.
    redis_server.client.ltrim(queue, len(others), -1)
    for process in hang:
        process.stop()
    one.release(mine)
    # The second that hangs is told to ask, in vain; and so is one that is eight places behind it.
    told, its = behind[7]
    assert told.sink.wait_for_notification(key)
    assert told.queue(its).poll <= 1.0
    tokens = [its.token.encode() for _, its in behind]

    def handed_off() -> bool:
        told.request(its)
        hold = redis_server.client.get(hold_key(key)) or b""
        return any(token in hold for token in tokens)

    eventually(handed_off, "both windows are over")


def test_a_waiter_that_stopped_asking_is_forgotten(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(redis_server.url) for _ in range(3))
    first, second, third = ask(key), ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    # As if it had been seen last in 1970; it is subscribed, so a hand-off would cost a window.
    redis_server.client.lset(f"{hold_key(key)}:queue", 0, f"{two.process} 0 1 1 {second.token}")
    three.queue(third)
    one.release(first)
    assert three.sink.wait_for_notification(key)
    three.hold(third)
    two.queue(second)


#: Processes that die at once, and seconds that they may cost. A window for each would be 50.
MANY, SOON = 100, 10.0


@pytest.mark.fault("F02")
def test_a_hundred_waiters_that_are_killed_at_once_are_passed_over(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, last = contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    before = redis_server.client.info("clients")["connected_clients"]
    with crowd(redis_server.url, key, MANY) as kill:
        queue = f"{hold_key(key)}:queue"
        eventually(lambda: redis_server.client.llen(queue) == MANY, "they are in the queue")
        last.queue(second)
        kill()
        eventually(
            lambda: redis_server.client.info("clients")["connected_clients"] <= before + 2,
            "the server knows that they are dead",
        )
    one.release(first)
    began = time.monotonic()
    last.poll(second)
    assert time.monotonic() - began < SOON


@pytest.mark.fault("F02", control=True)
def test_a_lock_that_is_handed_to_the_dead_is_held_by_one_that_was_killed(
    redis_server: RedisServer,
    contender: MakeContender,
    start_process: StartProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, "TheDeadAreHandedTheLock")
    key = some_key()
    one, last = contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    dead = start_process(redis_server.url, key)
    last.queue(second)
    dead.kill()
    eventually(
        lambda: redis_server.client.pubsub_numsub(dead.channel)[0][1] == 0, "the server knows that it is dead"
    )
    one.release(first)
    assert owner_in(redis_server.client.get(hold_key(key))) not in {None, second.token}


@pytest.mark.fault("F02")
@pytest.mark.parametrize("died", ["just now", "long ago"])
def test_a_long_queue_of_dead_waiters_is_cleared_over_several_calls(
    redis_server: RedisServer, contender: MakeContender, died: str
) -> None:
    key = some_key()
    one, two = contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    hold = hold_key(key)
    now = redis_server.client.time()[0] * 1000 if died == "just now" else 0
    for number in range(500):
        redis_server.client.rpush(f"{hold}:queue", f"dead{number} {now} 1 1 token{number}")
    two.queue(second)
    one.release(first)
    assert not two.locked(key)
    assert one.request(ask(key, wait=False)) == Busy()
    began = time.monotonic()
    two.poll(second)
    # A window for each would be minutes.
    assert time.monotonic() - began < 10.0


def test_a_queue_that_nobody_needs_to_ask_in_stays(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    """The lock goes round so fast that none of the waiters asks twice."""
    key, crowd = some_key(), [contender(redis_server.url) for _ in range(3)]
    queue, requests = f"{hold_key(key)}:queue", [ask(key) for _ in crowd]
    crowd[0].hold(requests[0])
    for one, mine in zip(crowd[1:], requests[1:], strict=True):
        one.queue(mine)
    redis_server.client.pexpire(queue, 30_000)

    def goes_round() -> bool:
        for place, one in enumerate(crowd):
            assert one.release(requests[place])
            requests[place] = ask(key)
            one.queue(requests[place])
            following = (place + 1) % 3
            assert crowd[following].sink.wait_for_notification(key)
            crowd[following].hold(requests[following])
        return bool(redis_server.client.pttl(queue) > 50_000)

    eventually(goes_round, "its lifetime begins anew")
