"""What the locks cost the server: commands, with those of the scripts, are counted and not timed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from distlock.backends.base import LockRequest
from tests.backends.redis import contender as contenders
from tests.backends.redis.contender import Contender, MakeContender, some_key
from tests.backends.redis.sharing import permit, read
from tests.redis_server import RedisServer

#: They come from elsewhere: the tests' own, and those of connections that are new.
_OTHERS = {"cmdstat_info", "cmdstat_ping", "cmdstat_config|resetstat", "cmdstat_subscribe", "cmdstat_eval"}


def ask(key: str = "") -> LockRequest:
    return contenders.ask(key, ttl=10.0)


def commands(server: RedisServer) -> int:
    told: dict[str, dict[str, int]] = server.client.info("commandstats")
    return sum(one["calls"] for name, one in told.items() if name not in _OTHERS)


def warm(one: Contender, other: Contender) -> None:
    """Connections, scripts and subscriptions are there."""
    first, second = ask(), ask()
    second.key = first.key
    one.hold(first)
    other.queue(second)
    one.release(first)
    other.hold(second)
    other.release(second)


def test_acquire_and_release_of_what_nobody_else_wants_are_six(
    own_server: RedisServer, contender: MakeContender
) -> None:
    one, two = contender(own_server.url), contender(own_server.url)
    warm(one, two)
    warm(two, one)
    key, rounds = some_key(), 200
    costs = []
    for _ in range(rounds):
        own_server.client.config_resetstat()
        one.hold(mine := ask(key))
        assert one.release(mine)
        costs.append(commands(own_server))
    # Now and then the clock has passed the numbers that are reserved; on a slow machine often.
    assert min(costs) == 6
    assert max(costs) <= 9
    own_server.client.config_resetstat()
    for _ in range(rounds):
        one.hold(mine := ask())
        assert one.release(mine)
    # Names that nobody has used for a while.
    assert commands(own_server) == 9 * rounds


@pytest.mark.parametrize(
    ("share", "alone", "beside"), [(read, (7, 7), (9, 8)), (permit, (9, 8), (11, 9))], ids=["read", "permit"]
)
def test_a_pair_of_a_reader_or_a_permit(
    own_server: RedisServer,
    contender: MakeContender,
    share: Callable[[str], LockRequest],
    alone: tuple[int, int],
    beside: tuple[int, int],
) -> None:
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)

    def pairs() -> list[tuple[int, int]]:
        costs = []
        for _ in range(40):
            mine = share(key)
            mine.ttl = 10.0
            own_server.client.config_resetstat()
            one.hold(mine)
            taken = commands(own_server)
            assert one.release(mine)
            costs.append((taken, commands(own_server) - taken))
        return costs

    # More only where the clock has passed the numbers that are reserved, as above.
    assert min(pairs()) == alone
    two.hold(share(key))
    assert min(pairs()) == beside


def test_queueing_is_four_the_hand_over_six_and_to_take_it_three(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key, crowd = some_key(), [contender(own_server.url) for _ in range(4)]
    for one, other in zip(crowd, crowd[1:] + crowd[:1], strict=True):
        warm(one, other)
    requests = [ask(key) for _ in crowd]
    crowd[0].hold(requests[0])
    for one, mine in zip(crowd[1:], requests[1:], strict=True):
        one.queue(mine)
    costs: list[tuple[int, int, int]] = []
    for turn in range(40):
        place, following = turn % 4, (turn + 1) % 4
        own_server.client.config_resetstat()
        assert crowd[place].release(requests[place])
        released = commands(own_server)
        assert crowd[following].sink.wait_for_notification(key)
        crowd[following].hold(requests[following])
        taken = commands(own_server)
        requests[place] = ask(key)
        crowd[place].queue(requests[place])
        costs.append((released, taken - released, commands(own_server) - taken))
    # More only where the clock has passed the numbers that are reserved, as above.
    assert min(costs) == (6, 3, 4)


def test_who_begins_on_the_push_needs_ten(own_server: RedisServer, contender: MakeContender) -> None:
    key, crowd = some_key(), [contender(own_server.url) for _ in range(4)]
    for one, other in zip(crowd, crowd[1:] + crowd[:1], strict=True):
        warm(one, other)
    requests = [ask(key) for _ in crowd]
    crowd[0].hold(requests[0])
    for one, mine in zip(crowd[1:], requests[1:], strict=True):
        one.queue(mine)
    costs = []
    for turn in range(40):
        place, following = turn % 4, (turn + 1) % 4
        own_server.client.config_resetstat()
        assert crowd[place].release(requests[place])
        assert crowd[following].sink.wait_for_notification(key)
        requests[place] = ask(key)
        crowd[place].queue(requests[place])
        costs.append(commands(own_server))
    # The first of them was not handed off.
    assert min(costs[1:]) == 10
