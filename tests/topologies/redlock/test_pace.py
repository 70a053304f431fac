"""How often a client of five servers asks them, and for how long it believes what it knows of them."""

from __future__ import annotations

import math

import pytest

from distlock import clock
from distlock.backends.inspectable import StatusRow
from distlock.backends.redlock import backend as redlock_backend
from distlock.backends.redlock import servers as server_of_five
from distlock.backends.redlock.backend import Backoff
from distlock.testing import conformance
from distlock.testing.conformance.protocol_operators import InspectableBackend, inspectable_backend
from distlock.testing.protocol_fixtures import Contender, ask
from tests.redis_server import eventually
from tests.stored import FORMAT
from tests.topologies.redlock.contender import MakeContender
from tests.topologies.redlock.five import Five
from tests.topologies.redlock.test_operators import LIFE, cut_off, look, one, told

__all__ = ["look", "one"]

PAUSE = 0.05


@pytest.fixture
def _pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redlock_backend, "_POLL", (PAUSE, PAUSE))


def time_of(wait: Backoff, key: str, deadline: float = math.inf) -> float:
    began = clock.now()
    wait.wait(key, deadline)
    return clock.now() - began


@pytest.mark.usefixtures("_pause")
def test_after_a_whole_turn_it_waits_as_long_as_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redlock_backend, "_TURN", 0.0)
    mine = Backoff()
    mine.granted("x")
    mine.released("x")
    assert list(mine._until) == ["x"]
    assert time_of(mine, "x") >= PAUSE
    # Once.
    assert not mine._until


@pytest.mark.usefixtures("_pause")
def test_after_less_than_a_turn_it_asks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redlock_backend, "_TURN", 1000.0)
    mine = Backoff()
    mine.granted("x")
    mine.released("x")
    mine.released("y")
    assert not mine._until


@pytest.mark.usefixtures("_pause")
def test_it_waits_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redlock_backend, "_TURN", 0.0)
    monkeypatch.setattr(redlock_backend, "_POLL", (1000.0, 1000.0))
    mine = Backoff()
    mine.granted("x")
    mine.released("x")
    assert time_of(mine, "x", clock.now() + PAUSE) < 1000.0


@pytest.mark.usefixtures("_pause")
def test_names_that_are_not_asked_for_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redlock_backend, "_TURN", 0.0)
    monkeypatch.setattr(redlock_backend, "_POLL", (0.0, 0.0))
    mine = Backoff()
    for number in range(3000):
        mine.granted(f"x{number}")
        mine.released(f"x{number}")
    assert len(mine._until) <= 1001
    assert not mine._since


@pytest.fixture
def url(five: Five) -> str:
    return five.url


def test_after_a_whole_turn_a_process_leaves_the_lock_to_others_before_it_asks_again(
    five: Five, contender: MakeContender, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause = 0.2
    monkeypatch.setattr(redlock_backend, "_TURN", 0.0)
    monkeypatch.setattr(redlock_backend, "_POLL", (pause, pause))
    one, mine, again = contender(five.url), ask(key), ask(key)
    one.held(mine)
    ended = clock.now()
    one.backend.release(mine)
    one.held(again)
    assert clock.now() >= ended + pause
    assert one.backend.release(again)


def test_those_that_came_back_are_asked_as_soon_as_they_are_needed(
    own_five: Five, contender: MakeContender, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is known of them is never too old to be believed.
    monkeypatch.setattr(server_of_five, "_FRESH", LIFE)
    one = contender(own_five.url)
    for server in own_five[3:]:
        server.kill()
    mine = ask(key)
    one.held(mine)
    for server in own_five[3:]:
        server.start()
    for server in own_five[:2]:
        server.kill()
    one.held(ask(f"{key}_other"))


def test_a_server_that_missed_something_is_told_anew(
    five: Five, one: Contender, look: InspectableBackend, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is asked again as soon as it may answer.
    monkeypatch.setattr(server_of_five, "_FRESH", 0.0)
    says = inspectable_backend(one)
    says.announce("web1", 1, [StatusRow(key, "", 1e9)], [], LIFE)
    assert told(look, key) == [key]
    with monkeypatch.context() as meanwhile:
        cut_off(one, 1, "announce", meanwhile)
        assert says.announce("web1", 1, [], [key], LIFE)
    assert told(look, key) == [key], "the first server has not heard that it is gone"
    assert not says.announce("web1", 1, [], [], LIFE)
    assert told(look, key) == []
    assert says.announce("web1", 1, [], [], LIFE)


class TestTroubles(conformance.TroubleConformance):
    #: Each asks five servers three times. The engine has forgotten all 100,000 with memory.
    names = 200
    ttl_of_names = 4.0

    @pytest.fixture(autouse=True)
    def _five(self, five: Five, monkeypatch: pytest.MonkeyPatch) -> None:
        self.five = five
        # With the first lock it has all the threads and connections that it will ever have.
        for module in (redlock_backend, server_of_five):
            monkeypatch.setattr(module, "WORKERS", 1)

    @pytest.fixture
    def options(self) -> dict[str, object]:
        # The counter of a name outlives its lock by that much.
        return {"fence_ttl": 0.05}

    def residue(self) -> int:
        def keys() -> int:
            pattern = f"{FORMAT}:{{kit%3Amany_*"
            return sum(sum(1 for _ in one.client.scan_iter(match=pattern)) for one in self.five)

        eventually(lambda: keys() == 0, "the counters are forgotten", pause=0.2)
        return 0
