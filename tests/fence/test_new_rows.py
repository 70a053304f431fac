"""A name's first row is made in the transaction that it is for: what is rolled back leaves none."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.orm import Session

from distlock.clock import now
from distlock.errors import LockTimeout
from flask_distlock.sql.fenced_sessions import fenced
from tests.databases import on
from tests.fence.conftest import STOCK
from tests.fence.test_passing import grant, until_it_waits

LEVELS = [
    ("sqlite", "SERIALIZABLE"),
    *itertools.product(["postgresql", "mariadb"], ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]),
]
at_every_level = pytest.mark.parametrize(("database", "level"), LEVELS, indirect=["database"])


@pytest.fixture
def strict(engine: Engine, level: str) -> Iterator[Engine]:
    """*engine* at the isolation level *level*. SQLite has but one."""
    if engine.dialect.name == "sqlite":
        yield engine
        return
    strict = create_engine(engine.url, isolation_level=level, pool_size=16)
    yield strict
    strict.dispose()


def rows(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM distlock_fence")).scalar_one())


class Second:
    """Another caller, in a thread: it reads how many pieces there are, and takes one if it may."""

    def __init__(self, engine: Engine, number: int, *names: str, seconds: float = 30.0) -> None:
        self.engine, self.number, self.names, self.seconds = engine, number, names, seconds
        self.began = threading.Event()

    def buy(self) -> int:
        def left() -> float:
            self.began.set()
            return self.seconds

        held = grant(self.number, "second", *self.names)
        with Session(self.engine) as session, fenced(session, self.engine, held, left):
            qty = int(session.execute(text("SELECT qty FROM stock WHERE id = 1")).scalar_one())
            if qty:
                session.execute(text("UPDATE stock SET qty = :n WHERE id = 1"), {"n": qty - 1})
            session.commit()
            return qty

    def come(self, pool: ThreadPoolExecutor) -> Future[int]:
        """Until it waits for the first one's row."""
        bought = pool.submit(self.buy)
        assert self.began.wait(30)
        if self.engine.dialect.name != "sqlite":
            until_it_waits(self.engine)
        return bought


@at_every_level
@pytest.mark.parametrize("commits", [True, False])
def test_the_second_of_two_waits_for_the_first_ones_new_row_and_sees_what_it_did(
    engine: Engine, strict: Engine, commits: bool
) -> None:
    with ThreadPoolExecutor(1) as pool, Session(strict) as session:
        with fenced(session, strict, grant(1), lambda: 30.0):
            bought = Second(strict, 2, "product_1").come(pool)
            session.execute(text("UPDATE stock SET qty = 0"))
            if commits:
                session.commit()
            else:
                session.rollback()
        assert bought.result(60) == (0 if commits else STOCK)
    assert rows(engine) == 1


@at_every_level
def test_a_new_row_beside_one_that_is_waited_for_does_not_show_what_was_before_the_wait(
    engine: Engine, strict: Engine
) -> None:
    """``a`` is new, ``b`` is locked: what reads a floor for ``a`` first sees what ``b``'s holder changes."""
    with ThreadPoolExecutor(1) as pool, Session(strict) as session:
        with fenced(session, strict, grant(1, "first", "b"), lambda: 30.0):
            bought = Second(strict, 2, "a", "b").come(pool)
            session.execute(text("UPDATE stock SET qty = 0"))
            session.commit()
        assert bought.result(60) == 0


@at_every_level
def test_a_new_name_that_all_want_at_once_sells_no_piece_twice(engine: Engine, strict: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE stock SET qty = 5"))
    together = threading.Barrier(8, timeout=60)

    def one(_: int) -> int:
        together.wait()
        # The same number, of the same holder: nobody is overtaken.
        return Second(strict, 7, "product_1").buy()

    with ThreadPoolExecutor(8) as pool:
        found = sorted(pool.map(one, range(8)))
    assert found == [0, 0, 0, 1, 2, 3, 4, 5]


@pytest.mark.fault("F41")
@at_every_level
def test_carts_of_new_names_in_opposite_orders_all_get_through(engine: Engine, strict: Engine) -> None:
    together = threading.Barrier(8, timeout=60)

    def one(number: int) -> int:
        names = [f"product_{n}" for n in range(4)]
        together.wait()
        return Second(strict, 7, *(names if number % 2 else reversed(names))).buy()

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(one, range(8))) == list(range(STOCK - 7, STOCK + 1))


# Any writer of SQLite locks all of it, and under SERIALIZABLE each SELECT of MariaDB locks a gap.
@pytest.mark.parametrize(("database", "level"), LEVELS[1:-1], indirect=["database"])
def test_new_names_do_not_wait_for_each_other(engine: Engine, strict: Engine) -> None:
    with Session(strict) as session, fenced(session, strict, grant(1, "first", "a"), lambda: 30.0):
        for number in range(30):
            assert Second(strict, 2, f"product_{number}", seconds=5.0).buy() > 0


@at_every_level
def test_the_wait_for_a_new_row_ends_in_time(engine: Engine, strict: Engine) -> None:
    began = now()
    with (
        Session(strict) as session,
        fenced(session, strict, grant(1), lambda: 30.0),
        pytest.raises(LockTimeout, match="an earlier holder's transaction was still open"),
    ):
        Second(strict, 2, "product_1", seconds=0.2).buy()
    assert now() - began < 15
    assert rows(engine) == 0


def test_a_later_transaction_of_a_grant_makes_the_row_that_a_rollback_took_away(engine: Engine) -> None:
    held = grant(5)
    with Session(engine) as session, fenced(session, engine, held, lambda: 5.0):
        session.rollback()
    assert rows(engine) == 0
    with Session(engine) as session, fenced(session, engine, held, lambda: 5.0):
        session.commit()
    assert rows(engine) == 1


@on("mariadb")
def test_four_callers_of_a_new_name_are_no_deadlock(engine: Engine) -> None:
    """``INSERT IGNORE`` made it one: shared locks, which all want to be exclusive."""
    deadlocks: list[str] = []

    @event.listens_for(engine, "handle_error")
    def note(context: object) -> None:
        deadlocks.append(str(context.original_exception))  # type: ignore[attr-defined]

    together = threading.Barrier(4, timeout=60)

    def one(number: int) -> int:
        together.wait()
        return Second(engine, 7, f"round_{number // 4}").buy()

    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(one, range(40)))) == 40
    assert not [error for error in deadlocks if "1213" in error]
