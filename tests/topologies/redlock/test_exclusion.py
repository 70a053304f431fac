"""Two processes that reach the servers in different orders: one of them holds, or neither."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from distlock.backends.base import Acquired, Busy
from distlock.errors import BackendUnavailable
from distlock.testing.protocol_fixtures import ask
from tests.backend_class import backend_class
from tests.backends.redis.proxy import Proxy
from tests.redis_server import eventually
from tests.stored import hold_key, is_free
from tests.topologies.redlock.contender import MakeContender
from tests.topologies.redlock.five import Five, url_of

RedisBackend = backend_class("redis://localhost")
RedlockBackend = backend_class("redlock://a,b,c")


class TwoSuffice(RedlockBackend):
    """Two of five are no majority: two others may be had as well."""

    def __init__(self, url: str, **options: object) -> None:
        super().__init__(url, **options)  # type: ignore[arg-type]
        self._quorum = 2


@pytest.fixture
def ways(five: Five) -> Iterator[list[Proxy]]:
    """To each of the servers, for a process that is slower than the other one."""
    made = [Proxy(server.port) for server in five]
    yield made
    for way in made:
        way.close()


@pytest.mark.parametrize(("kind", "both"), [(RedlockBackend, False), (TwoSuffice, True)])
def test_two_processes_that_reach_different_servers_first_never_both_hold(
    kind: type[RedlockBackend], both: bool, five: Five, ways: list[Proxy], contender: MakeContender, key: str
) -> None:
    slow, quick = contender(url_of([way.port for way in ways]), kind), contender(five.url, kind)
    for way in ways[2:]:
        way.hold(replies=False, new=True)
    try:
        first = slow.backend.request(ask(key))
    except BackendUnavailable:
        first = Busy()
    second = quick.backend.request(ask(key))
    assert isinstance(second, Acquired)
    assert isinstance(first, Acquired) == both


def test_who_gets_too_few_gives_them_back_and_asks_again(
    five: Five, contender: MakeContender, key: str
) -> None:
    few, many = contender(url_of([server.port for server in five[:3]])), contender(five.url)
    mine, other = ask(key), ask(key)
    few.held(mine)
    states = [partial(server.client.get, hold_key(key)) for server in five]
    eventually(lambda: not any(is_free(state()) for state in states[:3]), "all three have granted it")
    # Two are left of five: they are taken, and given back.
    many.queued(other)
    eventually(lambda: all(is_free(state()) for state in states[3:]), "they are given back")
    assert few.backend.release(mine)
    many.until_held(other)


def test_a_lock_lives_longer_on_the_servers_than_its_holder_counts_on(
    five: Five, contender: MakeContender, key: str
) -> None:
    one, mine = contender(five.url), ask(key, ttl=1000.0)
    assert one.held(mine).ttl == mine.ttl
    lives = [server.client.pttl(hold_key(key)) / 1000 for server in five]
    assert sorted(lives)[2] > mine.ttl
    assert one.backend.release(mine)


def test_a_release_of_an_earlier_try_that_is_carried_out_late_ends_nothing(
    five: Five, contender: MakeContender, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A try that fell short is given back, perhaps late, and the next one is of the same ask."""
    one, other = contender(five.url), contender(five.url)
    mine, held = ask(key), ask(key)
    other.held(held)
    tries, (first, *_) = [], one.backend._servers
    ask_first = first.backend.request
    monkeypatch.setattr(
        first.backend, "request", lambda tried, *more: tries.append(tried) or ask_first(tried, *more)
    )
    one.queued(mine)
    earlier = tries[0]
    assert other.backend.release(held)
    one.until_held(mine)
    for server in five:
        late = RedisBackend(server.url)
        assert late.release(earlier) is False
        late.close()
    assert one.backend.renew([mine]) == [True]
    assert one.backend.release(mine)


def test_what_is_granted_when_its_ttl_is_over_is_not_held(
    five: Five, contender: MakeContender, key: str
) -> None:
    # No answer comes so soon.
    contender(five.url).queued(ask(key, ttl=1e-6))
