"""A process that holds a lock for a fenced guard is killed. Another process of its host releases the lock."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import create_engine, text

import distlock
from demo_shop.ledger import database_url
from distlock.operate import break_lock
from tests.databases import Databases
from tests.fence.instance import POINTS
from tests.fence.instances import PATIENT, WAITING, two
from tests.redis_server import RedisServer, eventually
from tests.zookeeper_server import ZooKeeperServer, zookeeper_server

__all__ = ["zookeeper_server"]

#: A trigger that runs at COMMIT, and waits for a lock that the test has.
SLOW_COMMIT = (
    """
    CREATE OR REPLACE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END'
    """,
    """
    CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON product DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION wait()
    """,
)
#: How long the next buyer waits if it is not to get the lock, seconds.
IMPATIENT = 1.5


@pytest.fixture(scope="module")
def database(databases: Databases) -> str:
    return databases("postgresql", "neighbours")


@pytest.fixture(scope="module", params=["redis", "zookeeper"])
def service(request: pytest.FixtureRequest) -> str:
    """The URL of a lock service that keeps the lock of a killed process for its ttl."""
    server: RedisServer | ZooKeeperServer = request.getfixturevalue(f"{request.param}_server")
    return server.url


@pytest.mark.parametrize("point", POINTS)
def test_its_neighbour_goes_on_at_once(database: str, service: str, point: str) -> None:
    with two(database, service, fence=True, timeout=PATIENT) as (one, other, stock):
        one.tell(f"sell {point}")
        assert one.says() == f"at {point}"
        other.tell("sell")
        one.kill()
        # Its time-out is shorter than the lease.
        assert other.says() == ("answered 409" if point == "before release" else "answered 200")
        assert (len(stock.sales()), stock.left()) == (1, 0)


def test_a_neighbour_that_comes_later_finds_it(database: str, service: str) -> None:
    with two(database, service, fence=True, timeout=PATIENT) as (one, other, stock):
        one.tell("sell before the read")
        assert one.says() == "at before the read"
        one.kill()
        other.tell("sell")
        assert other.says() == "answered 200"
        assert (stock.sellers(), stock.left()) == ("flask", 0)


def test_a_child_of_the_killed_process_may_live_on(database: str, service: str) -> None:
    with two(database, service, fence=True, timeout=PATIENT) as (one, other, stock):
        stock.put(2)
        one.tell("sell")
        assert one.says() == "answered 200"
        one.tell("fork")
        child = int(one.says().removeprefix("forked "))
        try:
            # Later, the child's copy of the database connection would keep the row locked.
            one.tell("sell before the fence")
            assert one.says() == "at before the fence"
            one.kill()
            other.tell("sell")
            assert other.says() == "answered 200"
        finally:
            os.kill(child, signal.SIGKILL)


def test_without_a_fence_the_lock_lasts_for_its_ttl(database: str, service: str) -> None:
    with two(database, service, fence=False, timeout=IMPATIENT) as (one, other, _):
        one.tell("sell before the read")
        assert one.says() == "at before the read"
        one.kill()
        other.tell("sell")
        assert other.says() == "answered 423 lock_contended"


def test_a_neighbour_that_stands_still_keeps_its_lock(database: str, service: str) -> None:
    with two(database, service, fence=True, timeout=IMPATIENT) as (one, other, stock):
        one.tell("sell before the fence")
        assert one.says() == "at before the fence"
        one.stop()
        other.tell("sell")
        assert other.says() == "answered 423 lock_contended"
        one.go_on()
        one.tell("go on")
        assert one.says() == "answered 200"
        assert (stock.sellers(), stock.left()) == ("django", 0)


@contextmanager
def slow_commit(database: str) -> Iterator[Callable[[int], None]]:
    """Let a COMMIT with a sale wait for the end of the block. It gets a function that waits for COMMITs."""
    engine = create_engine(database_url(database), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in SLOW_COMMIT:
            connection.execute(text(statement))
        connection.execute(text("SELECT pg_advisory_lock(7)"))

        def waiting(sessions: int) -> None:
            eventually(
                lambda: connection.execute(text(WAITING["postgresql"])).scalar_one() >= sessions,
                f"{sessions} sessions wait",
            )

        yield waiting
    engine.dispose()


def test_a_commit_that_reaches_the_database_after_the_death_counts(
    database: str, redis_server: RedisServer
) -> None:
    with two(database, redis_server.url, fence=True, timeout=PATIENT) as (one, other, stock):
        with slow_commit(database) as waiting:
            one.tell("sell")
            waiting(1)
            one.kill()
            other.tell("sell")
            # It has the lock, and waits for the row of the fence.
            waiting(2)
        assert other.says() == "answered 409"
        assert (stock.sellers(), stock.left()) == ("django", 0)


def test_a_statement_of_a_hook_outside_of_a_transaction_keeps_the_lock(
    database: str, redis_server: RedisServer
) -> None:
    shop = two(database, redis_server.url, fence=True, timeout=IMPATIENT)
    with shop as (one, other, _), slow_commit(database) as waiting:
        one.tell("autocommit")
        waiting(1)
        one.kill()
        other.tell("sell")
        # The row of the fence was unlocked by the COMMIT before the hook.
        assert other.says() == "answered 423 lock_contended"


@pytest.mark.fault("F01", control=True)
def test_without_a_fence_such_a_commit_oversells_if_the_lock_is_released(
    database: str, redis_server: RedisServer
) -> None:
    prefix = secrets.token_hex(4)
    with two(database, redis_server.url, False, PATIENT, prefix) as (one, other, stock):
        with slow_commit(database) as waiting:
            one.tell("sell")
            waiting(1)
            one.kill()
            operator = distlock.connect(redis_server.url, prefix=prefix)
            assert break_lock(operator.namespace, operator.inspect("product_1"), by="the test")
            operator.close()
            other.tell("sell")
            # It has read what is there, and waits for the row of the product.
            waiting(2)
        assert other.says() == "answered 200"
        assert stock.sellers() == "djangoflask"
