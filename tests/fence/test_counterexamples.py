"""Fences that people write: each sells the last piece twice, or lets a late holder in. Ours does not.

Two holders, each in a transaction of its own, in the order that the test plays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from sqlalchemy import Connection, Engine, text

from distlock.errors import LockLost
from tests.databases import on
from tests.fence.test_passing import grant, passes

# SQLite refuses to write what was read before somebody else wrote: `test_passing` shows that.
pytestmark = on("postgresql", "mariadb")

LAST_PIECE = "UPDATE stock SET qty = 1"
READ = "SELECT qty FROM stock WHERE id = 1"


@pytest.fixture(autouse=True)
def _last_piece(engine: Engine) -> None:
    passes(engine, grant(1))
    with engine.begin() as connection:
        connection.execute(text(LAST_PIECE))


class Holder:
    """Sells in steps. It sold if all of them went through."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.qty = 0

    def read(self) -> None:
        self.qty = int(self.connection.execute(text(READ)).scalar_one())

    def fence(self, condition: str = "number < :number") -> None:
        """The one statement of the books."""
        fence = f"UPDATE distlock_fence SET number = :number WHERE {condition}"
        if self.connection.execute(text(fence), {"number": self.number}).rowcount == 0:
            raise LockLost("stale")

    def sell(self) -> bool:
        if self.qty:
            self.connection.execute(text("UPDATE stock SET qty = :qty"), {"qty": self.qty - 1})
        self.connection.commit()
        return self.qty > 0


@pytest.fixture
def early(engine: Engine) -> Iterator[Holder]:
    with engine.execution_options(isolation_level="READ COMMITTED").connect() as connection:
        yield Holder(connection, 33)


@pytest.fixture
def late(engine: Engine) -> Iterator[Holder]:
    with engine.execution_options(isolation_level="READ COMMITTED").connect() as connection:
        yield Holder(connection, 34)


def test_a_fence_behind_the_first_read_sells_the_last_piece_twice(early: Holder, late: Holder) -> None:
    early.read()
    late.read()
    early.fence()
    sold = [early.sell()]
    late.fence()
    assert [*sold, late.sell()] == [True, True]


def test_a_fence_before_it_does_not(early: Holder, late: Holder) -> None:
    early.fence()
    early.read()
    sold = [early.sell()]
    late.fence()
    late.read()
    assert [*sold, late.sell()] == [True, False]


def test_a_fence_in_a_transaction_of_its_own_sells_the_last_piece_twice(early: Holder, late: Holder) -> None:
    early.fence()
    early.connection.commit()
    early.read()
    late.fence()
    late.connection.commit()
    late.read()
    assert [early.sell(), late.sell()] == [True, True]


@contextmanager
def in_a_savepoint(holder: Holder) -> Iterator[None]:
    savepoint = holder.connection.begin_nested()
    yield
    savepoint.rollback()


def test_a_fence_in_a_savepoint_that_is_rolled_back_is_none(
    engine: Engine, early: Holder, late: Holder
) -> None:
    around: AbstractContextManager[None] = in_a_savepoint(early)
    with around:
        early.fence()
    early.read()
    if engine.dialect.name == "postgresql":
        late.fence()
        late.read()
        assert [early.sell(), late.sell()] == [True, True]
    else:
        # The row stays locked here, and the number is undone: a late writer is let in.
        assert early.sell()
        Holder(late.connection, 2).fence()


def test_equal_numbers_pass_a_fence_that_lets_them_and_ours_tells_them_apart(
    engine: Engine, early: Holder, late: Holder
) -> None:
    """A service that lost its data gives a number out twice."""
    late.number = early.number
    early.fence("number <= :number")
    early.sell()
    late.fence("number <= :number")
    late.sell()
    passes(engine, grant(35, "mine"))
    with pytest.raises(LockLost, match="was overtaken"):
        passes(engine, grant(35, "another"))
