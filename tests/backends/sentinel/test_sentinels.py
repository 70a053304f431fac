"""A new primary: which sentinels are believed, and what was released at the former one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from distlock import clock
from distlock.backends.redis.address import SentinelAddress
from distlock.backends.sentinel import backend
from distlock.backends.sentinel.backend import NamedServer, NoPrimary, Sentinels
from loadtest.servers.processes import free_port
from tests.backends.redis.contender import Contender, ask
from tests.backends.redis.sharing import permit, read
from tests.backends.sentinel.liar import Liar
from tests.redis_server import PATIENCE, RedisServer, eventually, running
from tests.stored import hold_key
from tests.topologies.sentinel.contender import SentinelContender

MakeLiar = Callable[[int, int], Liar]


@pytest.fixture
def liar() -> Iterator[MakeLiar]:
    made: list[Liar] = []

    def make(port: int, epoch: int) -> Liar:
        made.append(Liar(port, epoch))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Way:
    """What leads to a primary."""

    primary: NamedServer | None = None
    is_shut_down = False

    def shut_down(self) -> None:
        self.is_shut_down = True


class Asked:
    def __init__(self, *liars: Liar, gone: tuple[int, ...] = ()) -> None:
        hosts = ",".join(f"127.0.0.1:{port}" for port in (*gone, *(one.port for one in liars)))
        self.moves = 0
        self.sentinels = Sentinels(
            SentinelAddress(f"redis+sentinel://{hosts}/shop"), PATIENCE, "", self._moved
        )

    def _moved(self) -> None:
        self.moves += 1

    def find(self, way: Way | None = None) -> int:
        return self.sentinels.find(way or Way(), clock.now() + PATIENCE).address.port


def test_all_ways_to_a_former_primary_are_shut_down_when_there_is_another(liar: MakeLiar) -> None:
    one = liar(7001, 1)
    asked, before, after = Asked(one), Way(), Way()
    assert asked.find(before) == 7001
    assert (asked.find(), asked.moves, before.is_shut_down) == (7001, 0, False)
    one.say(7002, 2)
    assert asked.find(after) == 7002
    assert (asked.moves, before.is_shut_down, after.is_shut_down) == (1, True, False)
    asked.sentinels.close()


def test_a_sentinel_that_has_not_heard_of_the_last_failover_is_not_believed(liar: MakeLiar) -> None:
    late, right = liar(7001, 1), liar(7001, 1)
    asked = Asked(late, right)
    assert asked.find() == 7001
    right.say(7002, 2)
    late.fail()
    assert asked.find() == 7002
    late.say(7001, 1)
    right.fail()
    with pytest.raises(NoPrimary, match="the others have not heard of the last failover") as told:
        asked.find()
    assert told.value.passes
    right.say(7002, 2)
    assert asked.find() == 7002
    asked.sentinels.close()


def test_sentinels_that_all_begin_anew_are_believed(liar: MakeLiar) -> None:
    """As where an operator had them forget the primary, and watch over it again."""
    one, two = liar(7001, 5), liar(7001, 5)
    asked = Asked(one, two)
    assert asked.find() == 7001
    one.say(7002, 0)
    two.say(7002, 0)
    assert asked.find() == 7002
    asked.sentinels.close()


def test_most_sentinels_are_believed_in_the_end_where_the_one_that_told_of_a_failover_is_gone(
    liar: MakeLiar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where it alone had carried it out, or the others were set up anew."""
    told, *others = (liar(7001, 1) for _ in range(3))
    asked = Asked(told, *others)
    told.say(7002, 2)
    assert asked.find() == 7002
    told.fail()
    others[0].fail()
    monkeypatch.setattr(backend, "_GOSSIP", 0.0)
    for _ in range(2):
        with pytest.raises(NoPrimary, match="the others have not heard of the last failover"):
            asked.find()
    monkeypatch.setattr(backend, "_GOSSIP", PATIENCE)
    others[0].say(7001, 1)
    with pytest.raises(NoPrimary, match="the others have not heard of the last failover"):
        asked.find()
    monkeypatch.setattr(backend, "_GOSSIP", 0.0)
    assert asked.find() == 7001
    asked.sentinels.close()


def test_one_that_counts_the_primary_as_down_is_asked_for_no_other(liar: MakeLiar) -> None:
    """In a failover it has a new one already, while its words are about the former."""
    one = liar(7001, 1)
    asked = Asked(one)
    one.say(7001, 1, flags="master,s_down,o_down", former=7001)
    with pytest.raises(NoPrimary, match="it counts it as down"):
        asked.find()
    one.say(7002, 2, flags="master,s_down,o_down", former=7001)
    assert asked.find() == 7002
    asked.sentinels.close()


def test_a_sentinel_that_is_away_is_no_news_while_another_one_is_heard(
    liar: MakeLiar, caplog: pytest.LogCaptureFixture
) -> None:
    one = liar(7001, 1)
    asked = Asked(one, gone=(free_port(),))
    assert asked.find() == 7001
    eventually(lambda: one.is_heard, "the other one is listened to")
    asked.sentinels.close()
    assert "No failovers are heard" not in caplog.text


def test_that_no_sentinel_is_heard_is_told(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked(gone=(free_port(), free_port()))
    with pytest.raises(NoPrimary):
        asked.find()
    eventually(lambda: "No failovers are heard" in caplog.text, "it is told")
    asked.sentinels.close()


# -- releases at the former primary -----------------------------------------------------------------


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
