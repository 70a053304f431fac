"""What several sentinels say of one primary, and which of them is believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from distlock import clock
from distlock.backends.sentinel import sentinels
from distlock.backends.sentinel.sentinels import NoPrimary, Primary, SentinelAddress, Sentinels
from loadtest.servers.processes import free_port
from tests.backends.sentinel.liar import Liar
from tests.redis_server import PATIENCE, eventually

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

    primary: Primary | None = None
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
    monkeypatch.setattr(sentinels, "_GOSSIP", 0.0)
    for _ in range(2):
        with pytest.raises(NoPrimary, match="the others have not heard of the last failover"):
            asked.find()
    monkeypatch.setattr(sentinels, "_GOSSIP", PATIENCE)
    others[0].say(7001, 1)
    with pytest.raises(NoPrimary, match="the others have not heard of the last failover"):
        asked.find()
    monkeypatch.setattr(sentinels, "_GOSSIP", 0.0)
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
