"""A transaction under several locks of several clients passes the fence of each."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

import distlock
from distlock import LockLost, Locks, multi_lock
from distlock.engine.hold import NameGrant
from distlock.testing.waits import engine_of
from flask_distlock import transaction
from tests.databases import on
from tests.redis_server import RedisServer, own_server

__all__ = ["own_server"]


@pytest.fixture
def shops() -> Iterator[list[Locks]]:
    """Two clients of one lock service, under prefixes of their own."""
    url = f"memory://{secrets.token_hex(4)}"
    made = [distlock.connect(url, prefix=prefix, timeout=60) for prefix in ("north", "south")]
    yield made
    for one in made:
        one.close()


def rows(engine: Engine) -> list[tuple[str, str]]:
    with engine.begin() as connection:
        found = connection.execute(
            text("SELECT namespace, name FROM distlock_fence WHERE name <> '' ORDER BY namespace, name")
        )
        return [(namespace, name) for namespace, name in found]


def test_each_lock_has_its_row_under_its_own_prefix(engine: Engine, shops: list[Locks]) -> None:
    north, south = shops
    all_three = multi_lock(south.lock("stock"), north.lock("stock", "till"))
    with Session(engine) as session, all_three as grant, transaction(grant, session):
        session.execute(text("UPDATE stock SET qty = qty - 1"))
    assert rows(engine) == [("north", "stock"), ("north", "till"), ("south", "stock")]


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_lock_services_the_lock_given_first_passes_the_fence(engine: Engine, first: int) -> None:
    """With the same prefix and name both would have the same row."""
    both = [
        distlock.connect(f"memory://{secrets.token_hex(4)}", prefix="shop", epoch=epoch) for epoch in (1, 2)
    ]
    given = [both[first], both[1 - first]]
    with Session(engine) as session:
        with multi_lock(*(one.lock("stock") for one in given)) as grant, transaction(grant, session):
            session.execute(text("UPDATE stock SET qty = qty - 1"))
        stored = session.execute(text("SELECT epoch FROM distlock_fence WHERE name = 'stock'")).scalar_one()
    assert stored == first + 1
    for one in both:
        one.close()


@on("sqlite")
def test_whose_one_lock_was_overtaken_commits_nothing(engine: Engine, own_server: RedisServer) -> None:
    north, south, other = (
        distlock.connect(own_server.url, prefix=prefix, ttl=60) for prefix in ("north", "south", "south")
    )
    early = multi_lock(north.lock("stock"), south.lock("stock")).acquire()
    assert early is not None
    own_server.tell("FLUSHALL")
    with Session(engine) as session:
        with other.lock("stock") as later, transaction(later, session):
            session.execute(text("UPDATE stock SET qty = 7"))
        with pytest.raises(LockLost, match="'stock' was overtaken"), transaction(early, session):
            session.execute(text("UPDATE stock SET qty = 0"))
        assert session.execute(text("SELECT qty FROM stock")).scalar() == 7
    for one in (north, south, other):
        one.close()


def test_sales_under_both_are_all_there(engine: Engine, shops: list[Locks]) -> None:
    north, south = shops

    def move(*locks: distlock.Lock) -> None:
        with Session(engine) as session:
            for _ in range(10):
                with multi_lock(*locks) as grant, transaction(grant, session):
                    (left,) = session.execute(text("SELECT qty FROM stock")).one()
                    session.execute(text("UPDATE stock SET qty = :left"), {"left": left - 1})

    one, other = north.lock("stock"), south.lock("stock")
    threads = [threading.Thread(target=move, args=pair) for pair in ((one, other), (other, one))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Session(engine) as session:
        assert session.execute(text("SELECT qty FROM stock")).scalar() == 20


@on("sqlite")
def test_what_is_lost_after_commit_is_no_harm(engine: Engine, shops: list[Locks]) -> None:
    north, south = shops
    with Session(engine) as session, multi_lock(north.lock("stock"), south.lock("stock")) as grant:
        with transaction(grant, session):
            session.execute(text("UPDATE stock SET qty = 3"))
        lost = grant.grants[0]
        assert isinstance(lost, NameGrant)
        engine_of(north).hold_calls.lose(lost._hold, "the test takes it away", cancel=True)
        assert grant.lost
