"""What operators see on five servers, and do there: what a majority has counts."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
from contextlib import suppress

import pytest

import distlock
from distlock import clock
from distlock.backends.base import LockRequest
from distlock.backends.inspectable import Quorum, StatusRow
from distlock.errors import BackendUnavailable
from distlock.operate import LockState
from distlock.testing.conformance.protocol_operators import InspectableBackend, inspectable_backend
from distlock.testing.conformance.protocol_operators import request_of as asked
from distlock.testing.protocol_fixtures import Contender
from tests.backend_class import backend_class
from tests.flask_guard import page_of_lock
from tests.redis_server import eventually
from tests.stored import hold_key
from tests.topologies.redlock.contender import MakeContender
from tests.topologies.redlock.five import Five

RedisBackend = backend_class("redis://localhost")
RedlockBackend = backend_class("redlock://a,b,c")

LIFE = 600.0
#: No server is left out because the machine is busy, seconds.
PATIENCE = 30.0


@pytest.fixture
def one(five: Five, contender: MakeContender) -> Contender:
    return contender(five.url, io_timeout=PATIENCE)


@pytest.fixture
def look(five: Five, contender: MakeContender) -> InspectableBackend:
    """That of an onlooker."""
    return inspectable_backend(contender(five.url, io_timeout=PATIENCE))


def held_on_all(one: Contender, look: InspectableBackend, key: str) -> tuple[LockRequest, int]:
    mine = asked(one, key)
    number = one.held(mine).number
    eventually(lambda: look.inspect(key).quorum == Quorum(5, 5, 5), "all have granted it")
    return mine, number


def servers_of(quorum: Quorum) -> str:
    """As people read it."""
    return LockState("product_1", None, None, 0.0, (), 0, quorum=quorum).servers


def test_a_hold_counts_while_a_majority_has_it(
    five: Five, one: Contender, look: InspectableBackend, key: str
) -> None:
    held_on_all(one, look, key)
    for server in five[:2]:
        server.client.delete(hold_key(key))
    state = look.inspect(key)
    assert state.holder is not None
    assert state.quorum == Quorum(3, 5, 5)
    five[2].client.delete(hold_key(key))
    state = look.inspect(key)
    assert (state.holder, state.quorum) == (None, Quorum(2, 5, 5))


def test_what_a_minority_has_of_another_try_is_not_counted_with_it(
    five: Five, one: Contender, look: InspectableBackend, key: str
) -> None:
    mine, _ = held_on_all(one, look, key)
    for server in five[:3]:
        server.client.delete(hold_key(key))
        other = RedisBackend(server.url)
        other.request(LockRequest(key, mine.token[:16] + secrets.token_hex(16), mine.ttl, 1, False))
        other.close()
    five[0].client.delete(hold_key(key))
    state = look.inspect(key)
    assert (state.holder, state.quorum) == (None, Quorum(2, 5, 5))


def test_the_number_that_is_shown_is_that_of_the_holder(
    one: Contender, look: InspectableBackend, key: str
) -> None:
    # Each server has a number of its own; by chance that of the first to answer is the same.
    for number in range(20):
        mine = asked(one, f"{key}_{number}")
        held = one.held(mine)
        assert look.inspect(mine.key).number == held.number
        raised = one.backend.raise_fence(mine, held.number + 1000)
        assert raised is not None
        assert look.inspect(mine.key).number == raised.number
        assert one.backend.release(mine)


def test_who_looks_reads_on_how_many_servers_it_is(five: Five, key: str) -> None:
    locks = distlock.connect(five.url, ttl=LIFE, max_hold=LIFE, io_timeout=PATIENCE)

    def shown() -> str:
        command = [sys.executable, "-m", "distlock", "show", "--url", five.url, key]
        return subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout

    try:
        grant = locks.lock(key).acquire()
        assert grant is not None
        eventually(lambda: "It is held on 5 of 5 servers." in shown(), "all have granted it")
        assert f"Its fence is {grant.fence.epoch}:{grant.fence.number}." in shown()
        for remain in range(4, -1, -1):
            five[remain].client.delete(hold_key(f":{key}"))
            if remain >= 3:
                assert f"It is held on {remain} of 5 servers." in shown()
                on = f"{remain} of 5 servers"
                page = page_of_lock({"LOCATION": five.url, "OPTIONS": {"io_timeout": PATIENCE}}, key)
                assert re.search(rf"Held on</\w+>\s*<\w+>{on}<", page), page
            else:
                assert f"{key} is free." in shown()
                left = f"A hold that no majority has is left on {remain} of 5 servers."
                assert (left in shown()) == (remain > 0)
    finally:
        locks.close()


def test_what_depends_on_servers_that_are_away_may_be_held_and_can_be_broken(
    own_five: Five, contender: MakeContender, key: str
) -> None:
    one, two = (contender(own_five.url, io_timeout=PATIENCE) for _ in range(2))
    look = inspectable_backend(two)
    held_on_all(one, look, key)
    own_five[0].client.delete(hold_key(key))
    for server in own_five[3:]:
        server.kill()
    state = look.inspect(key)
    assert state.holder is not None
    assert state.quorum == Quorum(2, 3, 5)
    assert servers_of(state.quorum) == "2 of 5 servers, of which 3 answered"
    number = state.number
    assert look.break_hold(key, number)
    state = look.inspect(key)
    assert (state.holder, state.quorum) == (None, Quorum(0, 3, 5))
    own_five[2].kill()
    for call in (
        lambda: look.inspect(key),
        lambda: look.break_hold(key, number),
        lambda: list(look.announced("")),
    ):
        with pytest.raises(BackendUnavailable, match="A majority of the 5 Redlock servers can't be had"):
            call()


def cut_off(
    one: Contender | InspectableBackend, servers: int, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first *servers* are away for that *call*."""
    backend = one.backend if isinstance(one, Contender) else one
    assert isinstance(backend, RedlockBackend)

    def unheard(*said: object, **more: object) -> bool:
        raise BackendUnavailable("away")

    for server in backend._servers[:servers]:
        monkeypatch.setattr(server.backend, call, unheard)


def test_a_break_that_leaves_a_majority_to_servers_that_are_away_is_an_error(
    one: Contender, look: InspectableBackend, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, number = held_on_all(one, look, key)
    cut_off(look, 3, "break_hold", monkeypatch)
    with pytest.raises(BackendUnavailable, match=r"of the 5 Redlock servers can't.* 3 of them are away"):
        look.break_hold(key, number)


def told(look: InspectableBackend, key: str) -> list[str]:
    return [seen.row.key for seen in look.announced(key) if seen.row is not None]


def test_what_a_majority_has_heard_is_told_once(
    one: Contender, look: InspectableBackend, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(one, 2, "announce", monkeypatch)
    inspectable_backend(one).announce("web1", 1, [StatusRow(key, "", 1e9)], [], LIFE)
    assert told(look, key) == [key]
    cut_off(one, 3, "announce", monkeypatch)
    with pytest.raises(BackendUnavailable, match="away"):
        inspectable_backend(one).announce("web1", 1, [], [], LIFE)


def test_those_that_wait_are_shown_and_the_oldest_is_the_first(
    five: Five, contender: MakeContender, key: str
) -> None:
    locks = distlock.connect(five.url, io_timeout=PATIENCE)
    try:
        for number, since in enumerate((1e9 + 2, 1e9 + 1, 1e9 + 3)):
            # A name that only begins so is another one.
            rows = [
                StatusRow(f":{key}", "", 0.0, 1, "", since),
                StatusRow(f":{key}_2", "", 0.0, 1, "", since),
            ]
            inspectable_backend(contender(five.url)).announce("web1", number, rows, [], LIFE)
        state = locks.inspect(key)
        assert ([party.pid for party in state.queue], state.waiting) == ([1, 0, 2], 3)
    finally:
        locks.close()


def test_a_holder_is_asked_by_a_majority_of_the_servers(
    five: Five, contender: MakeContender, key: str
) -> None:
    one, two = (contender(five.url, io_timeout=PATIENCE) for _ in range(2))
    look = two.backend
    assert isinstance(look, RedlockBackend)
    mine, _ = held_on_all(one, look, key)
    assert look.request_release(key)
    one.backend.renew([mine])
    # As it asked: the servers know another token for each of its tries.
    assert set(one.sink.requests) == {(key, mine.token)}
    for server in five[:3]:
        server.client.delete(hold_key(key))
    assert not look.request_release(key), "what is left on two of them is no hold"


def test_who_has_no_time_to_look_takes_no_server_for_one_that_is_away(
    look: InspectableBackend, key: str
) -> None:
    assert isinstance(look, RedlockBackend)
    with suppress(BackendUnavailable):
        look.inspect(key, clock.now())
    # Behind it.
    assert not look.locked(key)
    assert [server.away() for server in look._servers] == [None] * 5
