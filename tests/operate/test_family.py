"""What an operator sees of readers, semaphores and latches."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

import distlock
from distlock.operate import break_lock
from tests.operate.test_looking import PATIENCE, clients, redis_server, until, url, zookeeper_server

__all__ = ["clients", "redis_server", "url", "zookeeper_server"]


def test_readers_permits_and_a_latch_are_listed_with_what_there_is_to_know(
    clients: Callable[[], distlock.Locks],
) -> None:
    one, two, look = clients(), clients(), clients()
    one.latch("import_7", 3).make()
    one.latch("import_7").count_down()
    with ThreadPoolExecutor(2) as pool, ExitStack() as held:
        waiting = pool.submit(two.latch("import_7").wait, PATIENCE)
        for _ in range(2):
            held.enter_context(one.read_lock("catalogue"))
        # In this thread it would read along with the first.
        reading = pool.submit(two.read_lock("catalogue").acquire).result(PATIENCE)
        assert reading is not None
        held.callback(reading.release)
        held.enter_context(one.semaphore("gateway", limit=10, permits=3))
        held.enter_context(two.semaphore("gateway", limit=10))
        until(lambda: len(list(look.list())) == 5)
        listed = {(one.kind, one.party.process): one for one in look.list()}
        of_one, of_two = (client.namespace.engine.inspection.process for client in (one, two))  # type: ignore[attr-defined]
        read = listed["lock", of_one]
        assert (read.name, read.mode, read.party.holding) == ("catalogue", "read", 2)
        assert listed["lock", of_two].party.holding == 1
        permits = listed["semaphore", of_one]
        assert (permits.name, permits.held, permits.limit, permits.party.holding) == ("gateway", True, 10, 3)
        assert listed["semaphore", of_two].party.holding == 1
        latch = listed["latch", of_two]
        assert (latch.name, latch.held, latch.total, latch.left) == ("import_7", False, 3, 2)
        assert (latch.party.waiting, latch.party.pid) == (1, os.getpid())
        assert latch.party.where.startswith("test_readers_permits_and_a_latch_are_listed")
        assert [one.name for one in look.list("imp")] == ["import_7"]
        catalogue = look.inspect("catalogue")
        assert (catalogue.mode, catalogue.inside, catalogue.others) == ("read", 3, 1)
        assert {party.process for party in catalogue.holders} == {of_one, of_two}
        assert look.inspect("import_7", "latch").queue == (latch.party,)
        one.latch("import_7").count_down(2)
        # Its process says for a while yet that it waits.
        assert [listed for listed in look.list() if listed.kind == "latch"] == []
        assert look.inspect("import_7", "latch").waiting == 0
        assert waiting.result(PATIENCE)
    until(lambda: not list(look.list()))


def test_permits_are_seen_at_once_and_are_no_lock_of_that_name(clients: Callable[[], distlock.Locks]) -> None:
    one, two, look = clients(), clients(), clients()
    assert look.inspect("gateway", "semaphore").holder is None
    with one.semaphore("gateway", limit=3, permits=2), two.semaphore("gateway", limit=3):
        state = look.inspect("gateway", "semaphore")
        assert (state.kind, state.mode, state.inside, state.limit, state.others) == (
            "semaphore",
            "permit",
            3,
            3,
            1,
        )
        assert len(state.holders) == 2
        assert look.inspect("gateway").holder is None
        assert look.inspect("gateway", "latch").left is None


def test_a_permit_that_was_seen_is_broken_and_no_other(clients: Callable[[], distlock.Locks]) -> None:
    one, two, operator = clients(), clients(), clients()
    grants = [client.semaphore("gateway", limit=2).acquire() for client in (one, two)]
    state = operator.inspect("gateway", "semaphore")
    assert break_lock(operator.namespace, state, by="ann")
    assert not break_lock(operator.namespace, state, by="ann")
    until(lambda: [grant.lost for grant in grants if grant is not None].count(True) == 1)
    assert operator.inspect("gateway", "semaphore").inside == 1


def test_a_latch_is_seen_at_once(clients: Callable[[], distlock.Locks]) -> None:
    look = clients()
    assert look.inspect("import_7", "latch").left is None
    clients().latch("import_7", 2, ttl=600).make()
    state = look.inspect("import_7", "latch")
    assert (state.kind, state.total, state.left, state.waiting) == ("latch", 2, 2, 0)
    assert 500 < state.remaining <= 600


def test_another_kind_is_refused(clients: Callable[[], distlock.Locks]) -> None:
    with pytest.raises(distlock.ConfigurationError, match="'barrier' has to be one of 'lock', 'semaphore'"):
        clients().inspect("import_7", "barrier")  # type: ignore[arg-type]
