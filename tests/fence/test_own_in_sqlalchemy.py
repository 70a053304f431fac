"""``transaction(grant, session)``, on three databases."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

import distlock
from distlock import ConfigurationError, LockLost, Locks, LockTimeout, LostInside, NotHeld
from flask_distlock import transaction
from tests.databases import on
from tests.fence.conftest import STOCK
from tests.fence.dummies import dummy_locks


class Base(DeclarativeBase):
    pass


class Stock(Base):
    __tablename__ = "stock"

    id: Mapped[int] = mapped_column(primary_key=True)
    qty: Mapped[int]


@pytest.fixture
def locks() -> Iterator[Locks]:
    locks = distlock.connect(f"memory://{secrets.token_hex(4)}", prefix="shop", timeout=5)
    yield locks
    locks.close()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


def left(engine: Engine) -> int:
    with Session(engine) as session:
        return session.get_one(Stock, 1).qty


def test_it_is_committed_at_the_end_of_the_block(engine: Engine, session: Session, locks: Locks) -> None:
    with locks.lock("product_1") as grant, transaction(grant, session):
        session.get_one(Stock, 1).qty -= 1
    assert left(engine) == STOCK - 1
    assert not session.in_transaction()


def test_the_block_may_end_with_a_commit(engine: Engine, session: Session, locks: Locks) -> None:
    with locks.lock("product_1") as grant, transaction(grant, session):
        session.get_one(Stock, 1).qty -= 1
        session.commit()
    assert left(engine) == STOCK - 1
    assert not session.in_transaction()


@pytest.mark.parametrize("nested", [False, True])
@on("postgresql")  # It makes a silent ROLLBACK of COMMIT then.
def test_an_error_that_the_block_has_caught_is_told(
    engine: Engine, session: Session, locks: Locks, nested: bool
) -> None:
    def buy() -> None:
        with locks.lock("product_1") as grant, transaction(grant, session):
            session.execute(text("UPDATE stock SET qty = qty - 1"))
            with suppress(DBAPIError), session.begin_nested() if nested else nullcontext():
                session.execute(text("SELECT 1 / 0"))

    if nested:
        buy()
    else:
        with pytest.raises(ConfigurationError, match=r"has caught an error.*begin_nested\(\)"):
            buy()
    assert left(engine) == STOCK - nested
    assert not session.in_transaction()


def test_errors_roll_back(engine: Engine, session: Session, locks: Locks) -> None:
    def buy() -> None:
        with locks.lock("product_1") as grant, transaction(grant, session):
            session.get_one(Stock, 1).qty -= 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        buy()
    assert left(engine) == STOCK


@pytest.mark.parametrize("early", [False, True], ids=["at the end", "by a commit of its own"])
def test_a_lock_that_was_lost_before_commit_rolls_back(
    engine: Engine, session: Session, locks: Locks, early: bool
) -> None:
    def buy() -> None:
        with locks.lock("product_1") as grant, transaction(grant, session):
            session.get_one(Stock, 1).qty -= 1
            # Closing the client is to a grant what an ended lease is.
            locks.close()
            if early:
                session.commit()

    with pytest.raises(LockLost):
        buy()
    assert left(engine) == STOCK


def test_after_a_commit_in_the_block_there_is_no_more_transaction(
    engine: Engine, session: Session, locks: Locks
) -> None:
    def buy() -> None:
        with locks.lock("product_1") as grant, transaction(grant, session):
            session.get_one(Stock, 1).qty -= 1
            session.commit()
            session.get_one(Stock, 1)

    with pytest.raises(InvalidRequestError):
        buy()
    assert left(engine) == STOCK - 1


@pytest.mark.parametrize("nested", [False, True])
def test_a_rollback_in_the_block_is_an_error(
    engine: Engine, session: Session, locks: Locks, nested: bool
) -> None:
    with locks.lock("product_1") as grant:
        with (  # noqa: PT012
            pytest.raises(ConfigurationError, match=r"rolled back inside the block"),
            transaction(grant, session),
        ):
            with session.begin_nested() if nested else nullcontext():
                session.get_one(Stock, 1).qty -= 1
            session.rollback()
        assert not grant.committed
    assert left(engine) == STOCK


def test_a_commit_by_another_session_is_an_error(engine: Engine, locks: Locks) -> None:
    """After `remove()`, a scoped session begins transactions that have passed no fence."""
    scoped = scoped_session(sessionmaker(engine))
    with locks.lock("product_1") as grant:
        with (  # noqa: PT012
            pytest.raises(ConfigurationError, match=r"rolled back inside the block"),
            transaction(grant, scoped),
        ):
            scoped.remove()
            scoped.get_one(Stock, 1).qty -= 1
            scoped.commit()
        assert not grant.committed
    scoped.remove()


def test_what_is_overtaken_is_not_begun(engine: Engine, session: Session) -> None:
    locks = dummy_locks()
    with locks.lock("product_1") as stale, locks.lock("product_1") as later:
        with transaction(later, session):
            session.get_one(Stock, 1).qty = 7
        with pytest.raises(LockLost, match="was overtaken"), transaction(stale, session):
            pytest.fail("ran")
        assert not session.in_transaction()
    assert left(engine) == 7


def test_a_grant_that_was_released_is_refused(session: Session, locks: Locks) -> None:
    with locks.lock("product_1") as grant:
        pass
    with pytest.raises(NotHeld), transaction(grant, session):
        pytest.fail("ran")


def test_the_wait_for_an_earlier_transaction_ends_with_the_time_out(engine: Engine, session: Session) -> None:
    locks = dummy_locks(TIMEOUT=0.05)

    def later() -> None:
        with Session(engine) as other, locks.lock("product_1") as grant, transaction(grant, other):
            pytest.fail("ran")

    with (
        locks.lock("product_1") as grant,
        transaction(grant, session),
        ThreadPoolExecutor(1) as pool,
        pytest.raises(LockTimeout, match="an earlier holder's transaction was still open"),
    ):
        pool.submit(later).result()


def test_a_session_that_has_begun_is_refused_with_what_to_write(session: Session, locks: Locks) -> None:
    session.get_one(Stock, 1)
    with locks.lock("product_1") as grant:
        with (
            pytest.raises(ConfigurationError, match=r"session\.commit\(\) or session\.rollback\(\) before"),
            transaction(grant, session),
        ):
            pytest.fail("ran")
        session.rollback()
        with transaction(grant, session):
            session.get_one(Stock, 1)


def test_objects_from_before_are_read_anew(engine: Engine, locks: Locks) -> None:
    with Session(engine, expire_on_commit=False) as session:
        stock = session.get_one(Stock, 1)
        session.commit()
        with engine.begin() as other_server:
            other_server.execute(text("UPDATE stock SET qty = 3"))
        assert stock.qty == STOCK
        with locks.lock("product_1") as grant, transaction(grant, session):
            assert stock.qty == 3


def test_a_scoped_session_will_do(engine: Engine, locks: Locks) -> None:
    scoped = scoped_session(sessionmaker(engine))
    with locks.lock("product_1") as grant, transaction(grant, scoped):
        scoped.get_one(Stock, 1).qty -= 1
    scoped.remove()
    assert left(engine) == STOCK - 1


def test_a_connection_whose_transaction_others_began_is_refused(engine: Engine, locks: Locks) -> None:
    with (
        engine.connect() as connection,
        Session(connection) as session,
        locks.lock("product_1") as grant,
        pytest.raises(ConfigurationError, match="bound to a connection"),
        transaction(grant, session),
    ):
        pytest.fail("ran")


def test_an_engine_that_commits_each_statement_is_refused(
    database: str, engine: Engine, locks: Locks
) -> None:
    autocommit = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    with (
        Session(autocommit) as session,
        locks.lock("product_1") as grant,
        pytest.raises(ConfigurationError, match="isolation level AUTOCOMMIT"),
        transaction(grant, session),
    ):
        pytest.fail("ran")
    autocommit.dispose()


def test_a_plain_engine_will_do(engine: Engine, locks: Locks) -> None:
    """SQLite's driver begins transactions by itself, where nobody has told it otherwise."""
    plain = create_engine(engine.url)
    with Session(plain) as session, locks.lock("product_1") as grant, transaction(grant, session):
        session.get_one(Stock, 1).qty -= 1
    plain.dispose()
    assert left(engine) == STOCK - 1


def test_async_code_is_refused(session: Session, locks: Locks) -> None:
    async def task() -> None:
        async with locks.lock("product_1") as grant:
            with (
                pytest.raises(ConfigurationError, match=r"asyncio\.to_thread\(\)"),
                transaction(grant, session),
            ):
                pytest.fail("ran")

    asyncio.run(task())


def test_what_is_no_session_is_named(engine: Engine, locks: Locks) -> None:
    with (
        locks.lock("product_1") as grant,
        pytest.raises(ConfigurationError, match="and not a Engine"),
        transaction(grant, engine),
    ):
        pytest.fail("ran")


def test_what_was_committed_stands_if_the_lock_is_lost_then(
    engine: Engine, session: Session, locks: Locks
) -> None:
    with locks.lock("product_1") as grant:
        with transaction(grant, session):
            session.get_one(Stock, 1).qty -= 1
        locks.close()
        assert grant.lost
    assert left(engine) == STOCK - 1


def test_what_was_rolled_back_vouches_for_nothing(engine: Engine, session: Session, locks: Locks) -> None:
    with (  # noqa: PT012
        pytest.raises(LostInside),
        locks.lock("product_1") as grant,
        pytest.raises(LockLost),
        transaction(grant, session),
    ):
        session.get_one(Stock, 1).qty -= 1
        locks.close()
    assert left(engine) == STOCK
