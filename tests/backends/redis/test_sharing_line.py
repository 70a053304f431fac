"""Readers and permits in line."""

from __future__ import annotations

from distlock.backends.base import Busy
from tests.backends.redis.contender import MakeContender, ask, some_key
from tests.backends.redis.process import StartProcess
from tests.backends.redis.sharing import PAIRS, keys, permit, read
from tests.redis_server import RedisServer
from tests.stored import hold_key


def test_a_run_enters_in_parts_and_each_that_asks_lets_in_more(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(redis_server.url)
    crowd = [(contender(redis_server.url), read(key)) for _ in range(20)]
    writer, last = ask(key), (contender(redis_server.url), ask(key))
    one.hold(writer)
    for who, mine in crowd:
        who.queue(mine)
    last[0].queue(last[1])
    holders = f"{hold_key(key)}:holders"
    assert one.release(writer)
    # The first of the run, and sixteen behind it: the others wait until one of them asks.
    assert redis_server.client.zcard(holders) == 17
    assert crowd[0][0].sink.wait_for_notification(key)
    assert crowd[0][0].hold(crowd[0][1]).followed
    assert redis_server.client.zcard(holders) == 20
    for who, mine in crowd:
        assert who.sink.wait_for_notification(key)
        who.hold(mine)
    assert last[0].sink.notified_keys == []
    for who, mine in crowd:
        assert who.release(mine)
    assert last[0].sink.wait_for_notification(key)


def test_a_reader_that_was_killed_in_line_lets_the_others_pass(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two, three = some_key(), *(contender(redis_server.url) for _ in range(3))
    first, second, third = ask(key), read(key), ask(key)
    one.hold(first)
    two.queue(second)
    three.queue(third)
    # As if its process had gone: nobody listens there.
    redis_server.client.lset(
        f"{hold_key(key)}:queue",
        0,
        redis_server.client.lindex(f"{hold_key(key)}:queue", 0).replace(two.process.encode(), b"0" * 16),
    )
    assert one.release(first)
    assert three.sink.wait_for_notification(key)
    three.hold(third)


def test_a_writer_that_hangs_in_line_is_in_the_way_of_readers_for_a_while(
    redis_server: RedisServer, contender: MakeContender, start_process: StartProcess
) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    mine, other = read(key), read(key)
    one.hold(mine)
    hangs = start_process(redis_server.url, key)
    assert hangs.answer == "Queued"
    hangs.stop()
    two.queue(other)
    # As if it had been seen last in 1970.
    queue = f"{hold_key(key)}:queue"
    process, _, rest = redis_server.client.lindex(queue, 0).split(b" ", 2)
    redis_server.client.lset(queue, 0, b" ".join((process, b"0", rest)))
    assert not two.hold(other).followed


def test_a_reader_whose_lease_ends_lets_the_writer_in_at_its_next_question(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    one.hold(read(key, ttl=0.3))
    writer = ask(key)
    assert two.queue(writer).poll <= 0.35
    two.poll(writer)


def test_a_reader_that_asks_whether_it_may_go_on_keeps_the_place_of_who_waits_in_its_process(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    mine, writer, next_one = read(key), ask(key), read(key)
    one.hold(mine)
    two.queue(writer)
    one.queue(next_one)
    assert one.hold(mine).followed
    one.queue(next_one)
    assert redis_server.client.llen(f"{hold_key(key)}:queue") == 2
    assert one.release(mine)
    two.hold(writer)
    assert two.release(writer)
    assert one.sink.wait_for_notification(key)
    one.hold(next_one)
    assert keys(redis_server, key) == {"", ":holders"}


def test_who_wants_something_else_takes_the_place_of_its_process_in_line(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two, three = some_key(), *(contender(redis_server.url) for _ in range(3))
    first, given_up, reader, later = ask(key), ask(key), read(key), ask(key)
    one.hold(first)
    two.queue(given_up)
    three.queue(later)
    two.queue(reader)
    assert two.cancel(given_up) is False
    assert one.release(first)
    assert two.sink.wait_for_notification(key)
    two.hold(reader)
    three.queue(later)


def test_permits_whose_lease_has_ended_come_back_once_and_beside_others(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    holders = f"{hold_key(key)}:holders"
    hung, alive, last = permit(key, 4, 2), permit(key, 4), permit(key, 4, 3)
    for mine in (hung, alive):
        one.hold(mine)
    two.queue(last)
    redis_server.client.zadd(holders, {f"2 {hung.token}": 1})
    assert one.release(hung) is False
    two.hold(last)
    assert one.request(permit(key, 4, wait=False)) == Busy()
    assert one.release(hung) is False
    assert one.release(alive)
    one.hold(permit(key, 4))
    assert one.request(permit(key, 4, wait=False)) == Busy()


def test_a_line_of_processes_that_have_died_ends_by_itself(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    for share, outside in PAIRS.values():
        key, one = some_key(), contender(redis_server.url)
        queue, mine = f"{hold_key(key)}:queue", share(key)
        one.hold(mine)
        now = redis_server.client.time()[0] * 1000
        wanted = "2/2" if share is permit else "1"
        redis_server.client.rpush(queue, f"dead {now} {wanted} 1 token")
        redis_server.client.set(
            hold_key(key), redis_server.client.get(hold_key(key)).replace(b"-", b"+"), keepttl=True
        )
        assert one.release(mine)
        assert redis_server.client.llen(queue) == 1
        assert redis_server.client.pttl(queue) > 0
        one.poll(outside(key))


def test_who_is_next_behind_readers_asks_soon_although_it_was_far_behind_before(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    """Should none of the readers take the lock, the writer has to see it before its long rest is over."""
    key = some_key()
    one, two, three, four = (contender(redis_server.url) for _ in range(4))
    first, second, third, fourth = ask(key), read(key), read(key), ask(key)
    one.hold(first)
    queue, others = f"{hold_key(key)}:queue", [f"other {number}" for number in range(400)]
    redis_server.client.rpush(queue, *others)
    for who, mine in ((two, second), (three, third), (four, fourth)):
        assert who.queue(mine).poll > 5.0
    # They have had their turns, faster than anybody thought.
    redis_server.client.ltrim(queue, len(others), -1)
    assert one.release(first)
    assert four.sink.wait_for_notification(key)
    assert four.queue(fourth).poll <= 1.0
    assert four.sink.hand_offs == []
