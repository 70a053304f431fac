"""A wait is ended in the very moment in which its lock comes: the lock stays with nobody."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import distlock
from distlock.testing.protocol_fixtures import Contender, ask
from distlock.testing.waits import PATIENCE, wait_until
from tests.backend_class import backend_class
from tests.topologies.postgresql.asking import Connect, asked, status, stopped, waiting

PostgreSQLBackend = backend_class("postgresql://user@localhost/shop")


@pytest.fixture
def server(server: str) -> str:
    """Stopped while it looks for deadlocks, a session would keep the table of locks from everybody."""
    return f"{server}?options=-cdeadlock_timeout%3D1h"


def sessions(server: str, name: str, where: str) -> list[tuple[object, ...]]:
    """Those that stand at the lock *name*; not what other tests have left."""
    return asked(
        server,
        "SELECT pid FROM pg_locks JOIN distlock_name ON objid = id::oid "
        f"WHERE locktype = 'advisory' AND name LIKE '%{name}' AND {where}",
    )


@contextmanager
def standing_still(server: str, name: str) -> Iterator[int]:
    """The session that waits, which is given the lock, and told to stop, while it can't hear either."""
    # A session that asks for a lock keeps the table of locks from everybody until it sleeps.
    asleep = "NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE wait_event = 'advisory')"
    wait_until(lambda: len(sessions(server, name, asleep)) == 1, "it waits")
    [(session,)] = sessions(server, name, asleep)
    assert isinstance(session, int)
    with stopped(session):
        yield session


def is_told_to_stop(session: int) -> bool:
    return bool(int(status(session)["ShdPnd"], 16) & 1 << signal.SIGINT - 1)


def test_by_its_own_process(server: str, pool: ThreadPoolExecutor) -> None:
    one, two = (Contender(PostgreSQLBackend(server, io_timeout=PATIENCE)) for _ in range(2))
    first, second, third = (ask("called_off") for _ in range(3))
    one.held(first)
    two.queued(second)
    with standing_still(server, "called_off") as session:
        ends = pool.submit(two.backend.cancel, second)
        wait_until(lambda: is_told_to_stop(session), "it is called off")
        one.backend.release(first)
        wait_until(lambda: sessions(server, "called_off", "granted") == [(session,)], "the lock has come")
    # It was ours for a moment, and is handed on by who asked.
    if ends.result(PATIENCE):
        two.backend.release(second)
    one.held(third)
    for each in (one, two):
        each.backend.close()


def test_by_an_operator(server: str, connect: Connect, pool: ThreadPoolExecutor) -> None:
    locks, other = connect(server), connect(server)
    grant = locks.lock("cancelled").acquire()
    assert grant is not None
    waits = pool.submit(other.lock("cancelled").acquire)
    with standing_still(server, "cancelled") as session:
        grant.release()
        wait_until(lambda: sessions(server, "cancelled", "granted") == [(session,)], "the lock has come")
        asked(server, f"SELECT pg_cancel_backend({session})")
    with pytest.raises(distlock.BackendUnavailable, match="canceling statement"):
        waits.result(PATIENCE)
    with locks.lock("another"):
        # In the session that has ended, if it had been kept: it would not be idle, and keep both.
        waits = pool.submit(other.lock("another").acquire)
        wait_until(lambda: waiting(server, "%another") == 1, "the other one waits again")
        with locks.lock("cancelled"):
            pass
    assert waits.result(PATIENCE)
