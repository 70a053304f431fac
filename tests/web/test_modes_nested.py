"""Readers and permits inside guards: what is another lock, and what waits for what."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

import distlock
from distlock.terms import READ
from distlock.web import guard, nested_deadlocks
from tests.web.test_modes import FACES, Site
from tests.web.test_nesting import NoTransactions

numbers = itertools.count()
PATIENCE = 10.0


@pytest.mark.parametrize("face", FACES, ids=["django", "flask"])
def test_a_block_takes_a_permit_beside_a_lock_of_its_name(face: Any) -> None:
    site = Site(face)
    grants: list[str] = []

    def pay() -> None:
        locks = site.locks()
        with locks.semaphore("gateway", limit=1) as grant:
            grants.append(grant.mode)
            assert locks.semaphore("gateway", limit=1).acquire(timeout=0) is None

    site.view("pay", pay, site.locked("gateway"))
    with site.up() as send:
        assert send("pay") == 200
    assert grants == ["permit"]


def test_readers_that_read_from_each_other_are_no_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """One waits behind a writer for what the other reads; the other gets what the first one reads."""
    # No turn in which a reader might join: it has to ask, and waits behind the writer.
    monkeypatch.setattr("distlock.engine.hold.TURN", 0.0)
    url = f"memory://modes_ring{next(numbers)}"
    client, other = distlock.connect(url, timeout=PATIENCE), distlock.connect(url, timeout=PATIENCE)
    terms = replace(client.namespace.terms, mode=READ)
    reading, go = threading.Event(), threading.Event()

    def run(name: str, body: Any) -> Any:
        return guard.run(client, [name], body, NoTransactions(), terms=terms)

    def first() -> Any:
        def body() -> Any:
            reading.set()
            assert go.wait(PATIENCE)
            return run("a", lambda: "done")

        return run("b", body)

    def until(what: Any) -> None:
        ends = time.monotonic() + PATIENCE
        while not what():
            assert time.monotonic() < ends
            time.sleep(0.01)

    with ThreadPoolExecutor(3) as pool:
        one = pool.submit(first)
        assert reading.wait(PATIENCE)
        writer = pool.submit(lambda: other.lock("b").acquire())
        until(lambda: other.inspect("b").queue)
        two = pool.submit(run, "a", lambda: run("b", lambda: "done"))
        until(lambda: nested_deadlocks._waiters)
        go.set()
        assert one.result(PATIENCE) == "done"
        grant = writer.result(PATIENCE)
        assert grant is not None
        grant.release()
        assert two.result(PATIENCE) == "done"
    client.close()
    other.close()
