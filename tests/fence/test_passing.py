"""The fence on three databases, with a lock that keeps nobody out."""

from __future__ import annotations

import threading
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from distlock.errors import ConfigurationError, LockTimeout
from distlock.fence.stamps import OldEpoch, Overtaken
from distlock.grants.grant import Fence, Grant
from distlock.web.settings.dummy import DummyGrant, DummyLocks
from flask_distlock.sql.fenced_sessions import fenced
from tests.databases import on
from tests.fence.conftest import STOCK


class FakeGrant(DummyGrant):
    """A grant of a lock service that lost its data, or its mind."""

    def __init__(self, fences: dict[str, Fence], holder_id: str) -> None:
        super().__init__("shop", fences)
        self.holder_ids = dict.fromkeys(fences, holder_id)


def buy(engine: Engine, locks: DummyLocks, with_fence: bool) -> bool:
    with locks.lock("product_1") as grant, Session(engine) as session:
        with fenced(session, engine, grant, lambda: 20.0) if with_fence else nullcontext():
            [(qty,)] = session.execute(text("SELECT qty FROM stock WHERE id = 1"))
            if qty <= 0:
                return False
            time.sleep(0.003)
            session.execute(text("UPDATE stock SET qty = :q WHERE id = 1"), {"q": qty - 1})
            session.commit()
        return True


def sell(engine: Engine, with_fence: bool) -> tuple[int, int, list[BaseException]]:
    locks = DummyLocks()
    errors: list[BaseException] = []

    def one(_: int) -> int:
        for _ in range(50):
            try:
                return buy(engine, locks, with_fence)
            except Overtaken as error:
                errors.append(error)
        raise AssertionError

    with ThreadPoolExecutor(8) as pool:
        sold = sum(pool.map(one, range(64)))
    with engine.connect() as connection:
        [(left,)] = connection.execute(text("SELECT qty FROM stock"))
    return sold, left, errors


def test_the_fence_alone_sells_no_piece_twice(engine: Engine) -> None:
    sold, left, _ = sell(engine, with_fence=True)
    assert (sold, left) == (STOCK, 0)


def test_without_it_the_same_run_oversells(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        # It refuses to write what was read before somebody else wrote, so that nobody gets anything.
        with pytest.raises(OperationalError, match="database is locked"):
            sell(engine, with_fence=False)
        return
    sold, _, _ = sell(engine, with_fence=False)
    assert sold > STOCK


def grant(number: int, holder_id: str = "mine", *names: str) -> FakeGrant:
    return FakeGrant(dict.fromkeys(names or ("product_1",), Fence(1, number)), holder_id)


def passes(engine: Engine, held: Grant, seconds: float = 5.0) -> None:
    with Session(engine) as session, fenced(session, engine, held, lambda: seconds):
        session.commit()


def test_a_later_grant_passes_and_an_earlier_one_is_overtaken(engine: Engine) -> None:
    passes(engine, grant(33))
    passes(engine, grant(34))
    with pytest.raises(Overtaken, match=r"'product_1' was overtaken: its fence is 1:33, and .* seen 1:34"):
        passes(engine, grant(33))


def test_the_same_grant_passes_again_and_another_with_its_number_does_not(engine: Engine) -> None:
    passes(engine, grant(33))
    passes(engine, grant(33))
    with pytest.raises(Overtaken):
        passes(engine, grant(33, "another"))


@on("postgresql", "mariadb")  # SQLite has one isolation level, and no snapshot before the lock.
def test_a_later_transaction_of_a_grant_is_seen_by_who_waits_for_it(engine: Engine) -> None:
    """Under REPEATABLE READ, whose snapshot is older than the wait: PostgreSQL says so if the row changed."""
    strict = create_engine(engine.url, isolation_level="REPEATABLE READ")
    waits = threading.Event()

    def one_more() -> int:
        def left() -> float:
            waits.set()
            return 20.0

        with Session(strict) as session, fenced(session, strict, grant(34, "later"), left):
            return int(session.execute(text("SELECT qty FROM stock")).scalar_one())

    passes(strict, grant(33))
    with ThreadPoolExecutor(1) as pool:
        with Session(strict) as session, fenced(session, strict, grant(33), lambda: 5.0):
            later = pool.submit(one_more)
            assert waits.wait(10)
            until_it_waits(engine)
            session.execute(text("UPDATE stock SET qty = qty - 1"))
            session.commit()
        assert later.result() == STOCK - 1
    strict.dispose()


@on("postgresql")
def test_a_statement_timeout_of_the_site_that_ends_the_wait_is_a_lock_timeout(engine: Engine) -> None:
    hurried = create_engine(engine.url, connect_args={"options": "-c statement_timeout=100"})
    passes(hurried, grant(33))
    with engine.connect() as earlier:
        earlier.execute(text("UPDATE distlock_fence SET holder_id = holder_id"))
        with pytest.raises(LockTimeout, match="as a statement_timeout shorter than TIMEOUT does"):
            passes(hurried, grant(34))
    hurried.dispose()


def until_it_waits(engine: Engine, waiter: Future[Any] | None = None) -> None:
    """Until somebody waits for a row. *waiter*: who should, and must not be done before."""
    waiting = {
        "postgresql": "SELECT count(*) FROM pg_locks WHERE NOT granted",
        "mysql": "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    }
    while True:
        # MariaDB looks no more often than that, and else tells what it saw last.
        time.sleep(0.11)
        assert waiter is None or not waiter.done(), "it did not wait"
        with engine.connect() as connection:
            if connection.execute(text(waiting[engine.dialect.name])).scalar_one():
                return


def test_an_era_outweighs_every_number(engine: Engine) -> None:
    passes(engine, grant(2**62))
    passes(engine, FakeGrant({"product_1": Fence(2, 1)}, "new"))
    with pytest.raises(OldEpoch):
        passes(engine, grant(2**62 + 1))


def test_all_names_pass_or_none_does(engine: Engine) -> None:
    passes(engine, grant(34, "other", "product_2"))
    with pytest.raises(Overtaken):
        passes(engine, grant(33, "mine", "product_1", "product_2"))
    passes(engine, grant(1))


def test_names_that_a_collation_takes_for_one_have_rows_of_their_own(engine: Engine) -> None:
    for number, name in enumerate(["Product_a", "product_A", "product_a ", "prodüct_a"], start=1):
        passes(engine, grant(10 - number, "mine", name))


def test_a_transaction_that_is_not_over_in_time_ends_the_wait(engine: Engine) -> None:
    passes(engine, grant(1))
    with Session(engine) as session, fenced(session, engine, grant(2), lambda: 5.0):
        with pytest.raises(LockTimeout, match="an earlier holder's transaction was still open"):
            passes(engine, grant(3), seconds=0.05)
        session.commit()
    passes(engine, grant(3))


def test_what_a_grant_has_committed_is_seen_by_the_next_whatever_the_isolation(engine: Engine) -> None:
    if engine.dialect.name == "sqlite":
        engine = engine.execution_options()
    else:
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    passes(engine, grant(1))
    entered = threading.Event()

    def second() -> int:
        with Session(engine) as session, fenced(session, engine, grant(3), lambda: 20.0):
            [(qty,)] = session.execute(text("SELECT qty FROM stock"))
            session.commit()
            return int(qty)

    with ThreadPoolExecutor(1) as pool:
        with Session(engine) as session, fenced(session, engine, grant(2), lambda: 5.0):
            session.execute(text("UPDATE stock SET qty = qty - 1"))
            waiting = pool.submit(lambda: (entered.set(), second())[1])
            assert entered.wait(5)
            session.commit()
        assert waiting.result() == STOCK - 1


def test_a_missing_table_says_how_to_make_it(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE distlock_fence"))
    with pytest.raises(ConfigurationError, match=r"is missing.* Run: flask distlock create-table") as told:
        passes(engine, grant(1))
    assert "The table distlock_fence, which keeps the fences of the locks, is missing" in str(told.value)
    # One traceback, not one for each layer of the database.
    assert "The above exception" not in "".join(traceback.format_exception(told.value))


def test_what_it_costs(engine: Engine) -> None:
    """As the page says: what is sent besides BEGIN and COMMIT."""
    passes(engine, grant(1))
    sent: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    passes(engine, grant(2))
    sent = [statement for statement in sent if statement != "BEGIN"]
    *passing, end = sent
    # COMMIT is in the message of the last one, where the driver allows that.
    assert end.endswith("; COMMIT") == (engine.dialect.name == "postgresql")
    assert len(passing) == {"sqlite": 2 + 4 + 1, "mysql": 2 + 1, "postgresql": 2}[engine.dialect.name]


def test_names_in_opposite_orders_do_not_wait_in_a_ring(engine: Engine) -> None:
    names = ["product_1", "product_2"]
    passes(engine, grant(1, "mine", *names))

    def buy(number: int) -> bool:
        try:
            passes(engine, grant(number, "mine", *(names if number % 2 else reversed(names))), seconds=20.0)
        except Overtaken:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert any(pool.map(buy, range(2, 50)))
