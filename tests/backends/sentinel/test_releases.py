"""What was released at a former primary is released at the one that takes its place."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from distlock.backends.sentinel import backend
from tests.backends.redis.contender import Contender, ask
from tests.backends.redis.sharing import permit, read
from tests.backends.sentinel.liar import Liar
from tests.redis_keys import hold_key
from tests.redis_server import PATIENCE, RedisServer, eventually, running
from tests.topologies.sentinel.contender import SentinelContender

#: A lifetime that ends after any wait of a test, seconds.
NEVER = 10 * PATIENCE


@pytest.fixture(scope="module")
def former() -> Iterator[RedisServer]:
    yield from running()


@pytest.fixture(scope="module")
def successor() -> Iterator[RedisServer]:
    yield from running()


@pytest.fixture
def sentinel(former: RedisServer) -> Iterator[Liar]:
    one = Liar(former.port, 1)
    yield one
    one.close()


@pytest.fixture
def one(sentinel: Liar) -> Iterator[SentinelContender]:
    made = SentinelContender(f"redis+sentinel://127.0.0.1:{sentinel.port}/shop", io_timeout=PATIENCE)
    yield made
    made.close()


@pytest.fixture
def after(successor: RedisServer) -> Iterator[Contender]:
    """It looks at the new primary."""
    made = Contender(successor.url, io_timeout=PATIENCE)
    yield made
    made.close()


def replicate(key: str, former: RedisServer, successor: RedisServer) -> None:
    """The last that *successor* hears of *former*: the hold of *key*."""
    for place in former.client.keys(f"{hold_key(key)}*"):
        kept = former.client.dump(place)
        successor.client.restore(place, former.client.pttl(place), kept)


def test_all_that_was_released_is_released_there_in_parts_and_nothing_else(
    one: SentinelContender,
    after: Contender,
    sentinel: Liar,
    former: RedisServer,
    successor: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, "_LATE_GRANTS", 0.0)
    monkeypatch.setattr(backend, "_BATCH", 2)
    released = [*(ask(ttl=NEVER) for _ in range(3)), read(ttl=NEVER), permit(ttl=NEVER)]
    kept, passed_on = ask(), ask()
    for mine in (*released, kept):
        one.hold(mine)
        replicate(mine.key, former, successor)
    one.hold(passed_on)
    for mine in (*released, passed_on):
        assert one.release(mine)
    theirs = ask(passed_on.key)
    after.hold(theirs)
    sentinel.say(successor.port, 2)
    one._sentinels.missed_notifications()
    eventually(lambda: not any(after.locked(mine.key) for mine in released), "they are released")
    assert one.renew([kept]) == [True]
    assert after.renew([theirs]) == [True]


def test_those_are_kept_apart_for_a_moment_that_were_let_in_at_the_former_one(
    one: SentinelContender,
    after: Contender,
    sentinel: Liar,
    former: RedisServer,
    successor: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A moment that does not end, but for a close.
    monkeypatch.setattr(backend, "_LATE_GRANTS", threading.TIMEOUT_MAX)
    mine = ask(ttl=NEVER)
    one.hold(mine)
    replicate(mine.key, former, successor)
    assert one.release(mine)
    sentinel.say(successor.port, 2)
    one._sentinels.missed_notifications()
    assert one.locked(mine.key)
    assert after.locked(mine.key)
    one.close()
    eventually(lambda: not repeating(), "the thread has ended")
    assert after.locked(mine.key)


def repeating() -> bool:
    return any(thread.name == "distlock-redis-releasing" for thread in threading.enumerate())
