"""Readers at the fence, on three databases, with a lock that keeps nobody out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from distlock import multi_lock
from distlock.errors import ConfigurationError, LockLost, LockTimeout
from distlock.fence.stamps import OldEpoch, Overtaken
from distlock.fence.transaction import OvertakenReader
from distlock.grants.grant import Fence, Grant
from distlock.terms import PERMIT, READ, Mode
from distlock.web.settings.dummy import DummyGrant, DummyLocks
from flask_distlock import transaction
from tests.databases import on
from tests.fence.conftest import STOCK, write_row
from tests.fence.test_new_rows import LEVELS, at_every_level, rows, strict
from tests.fence.test_passing import FakeGrant, grant, passes, until_it_waits

__all__ = ["strict"]

#: On MariaDB all that is read under SERIALIZABLE stays locked, so that no writer comes first.
LEVELS_OF_SNAPSHOTS = [one for one in LEVELS if one != ("mariadb", "SERIALIZABLE")]


def reader(number: int, *names: str, timeout: float = 10.0, epoch: int = 1, mode: Mode = READ) -> Grant:
    fences = dict.fromkeys(names or ("product_1",), Fence(epoch, number))
    one = DummyGrant("shop", fences, mode)
    one.timeout = timeout
    return one


@contextmanager
def reading(engine: Engine, held: Grant) -> Iterator[Session]:
    with Session(engine) as session, transaction(held, session, engine):
        yield session


def qty(session: Session) -> int:
    return int(session.execute(text("SELECT qty FROM stock WHERE id = 1")).scalar_one())


def passages(engine: Engine) -> list[tuple[int, str, int]]:
    with engine.connect() as connection:
        found = connection.execute(text("SELECT number, holder_id, passed_at FROM distlock_fence"))
        return [(int(number), str(holder_id), int(at)) for number, holder_id, at in found]


def test_readers_share_the_row_and_write_nothing_into_it(engine: Engine) -> None:
    passes(engine, grant(33))
    before = passages(engine)
    # The one has the number of the writer before it, the other a larger one.
    with reading(engine, reader(33)) as first, reading(engine, reader(40)) as second:
        assert qty(first) == qty(second) == STOCK
    assert passages(engine) == before
    passes(engine, grant(34))


def test_a_reader_is_overtaken_by_a_later_writer(engine: Engine) -> None:
    passes(engine, grant(34))
    overtaken = pytest.raises(Overtaken, match=r"its fence is 1:33, and the database has seen 1:34")
    with overtaken, reading(engine, reader(33)):
        raise AssertionError("it has begun")
    with pytest.raises(OldEpoch), reading(engine, reader(99, epoch=0)):
        raise AssertionError("it has begun")


@on("postgresql", "mariadb")  # SQLite's readers have a snapshot, and nobody waits for them.
def test_a_writer_waits_for_the_readers_before_it(engine: Engine) -> None:
    passes(engine, grant(1))
    with ThreadPoolExecutor(1) as pool:
        with reading(engine, reader(1)) as one, reading(engine, reader(1)) as two:
            writer = pool.submit(passes, engine, grant(2))
            until_it_waits(engine, writer)
            assert qty(one) == qty(two) == STOCK
            assert not writer.done()
        writer.result(30)
    with reading(engine, reader(2)), pytest.raises(LockTimeout, match="was still open"):
        passes(engine, grant(3), seconds=0.05)


@on("postgresql", "mariadb")
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_reader_waits_for_an_earlier_transaction_and_sees_what_it_did(
    engine: Engine, strict: Engine
) -> None:
    passes(engine, grant(1))

    def read() -> int:
        with reading(strict, reader(2)) as session:
            return qty(session)

    with ThreadPoolExecutor(1) as pool:
        with reading(strict, lasting(2)) as session:
            session.execute(text("UPDATE stock SET qty = 7"))
            seen = pool.submit(read)
            until_it_waits(engine, seen)
        assert seen.result(30) == 7


def lasting(number: int) -> FakeGrant:
    one = grant(number)
    one.timeout = 20.0
    return one


def test_the_wait_of_a_reader_ends(engine: Engine) -> None:
    passes(engine, grant(1))
    with reading(engine, lasting(2)) as session:
        # On SQLite the write is what keeps others out, if anything does.
        session.execute(text("UPDATE stock SET qty = 7"))
        if engine.dialect.name == "sqlite":
            with reading(engine, reader(2, timeout=0.05)) as other:
                assert qty(other) == STOCK
            return
        with pytest.raises(LockTimeout, match="was still open"), reading(engine, reader(2, timeout=0.05)):
            raise AssertionError("it has begun")


# -- without a row -------------------------------------------------------------------------------


@at_every_level
def test_a_reader_makes_no_row(engine: Engine, strict: Engine) -> None:
    with reading(strict, reader(1)) as one, reading(strict, reader(1)) as two:
        assert qty(one) == qty(two) == STOCK
    assert rows(engine) == 0


@pytest.mark.parametrize(("database", "level"), LEVELS_OF_SNAPSHOTS, indirect=["database"])
def test_a_writer_that_comes_first_overtakes_a_reader_without_a_row(engine: Engine, strict: Engine) -> None:
    """Under READ COMMITTED the reader sees half of what it did; without a look nothing would tell."""
    snapshot = engine.dialect.name == "sqlite"

    def read() -> None:
        with reading(strict, reader(1)) as session:
            before = qty(session)
            write_row(engine, 2, "other", "UPDATE stock SET qty = 7")
            assert before == STOCK
            assert qty(session) in (7, STOCK)
            assert qty(session) == STOCK or not snapshot

    if snapshot:
        read()
        return
    with pytest.raises(OvertakenReader, match="wrote under it for the first time while this transaction"):
        read()


@on("postgresql", "mariadb")
def test_a_reader_that_commits_early_is_overtaken_before_its_commit(engine: Engine) -> None:
    def read() -> None:
        with reading(engine, reader(1)) as session:
            session.execute(text("UPDATE stock SET qty = 7"))
            write_row(engine, 2)
            session.commit()

    with pytest.raises(OvertakenReader):
        read()
    with Session(engine) as session:
        assert qty(session) == STOCK


@on("sqlite")
def test_what_a_reader_sees_is_of_one_moment_though_the_driver_begins_nothing_for_it(engine: Engine) -> None:
    """Python's begins a transaction with the first write, unless it was told otherwise."""
    plain = create_engine(engine.url)
    with reading(plain, reader(1)) as session:
        assert qty(session) == STOCK
        write_row(engine, 2, "other", "UPDATE stock SET qty = 7")
        assert qty(session) == STOCK
    plain.dispose()


@on("postgresql", "mariadb")
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ"])
@pytest.mark.parametrize("commits", [True, False])
def test_a_writer_that_is_about_to_commit_is_waited_for(
    engine: Engine, strict: Engine, commits: bool
) -> None:
    begun, written = threading.Event(), threading.Event()

    def read() -> int:
        with reading(strict, reader(1, timeout=30)) as session:
            before = qty(session)
            begun.set()
            assert written.wait(30)
            return before

    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(read)
        assert begun.wait(30)
        with suppress(ZeroDivisionError), reading(strict, lasting(2)) as session:
            session.execute(text("UPDATE stock SET qty = 7"))
            written.set()
            until_it_waits(engine, seen)
            assert commits or 1 / 0
        if commits:
            with pytest.raises(OvertakenReader):
                seen.result(30)
        else:
            assert seen.result(30) == STOCK


def test_a_later_transaction_of_a_reader_looks_again_too(engine: Engine) -> None:
    held = reader(1)
    with reading(engine, held) as session:
        assert qty(session) == STOCK
    with reading(engine, held) as session:
        assert qty(session) == STOCK
    write_row(engine, 2)
    with pytest.raises(LockLost), reading(engine, held):
        raise AssertionError("it has begun")


# -- where it can't be had -----------------------------------------------------------------------


@on("postgresql", "mariadb")
def test_a_replica_is_refused(engine: Engine) -> None:
    passes(engine, grant(1))
    options = {"postgresql": {"options": "-c default_transaction_read_only=on"}}
    replica = create_engine(engine.url, connect_args=options.get(engine.dialect.name, {}))
    with only_reading(engine):
        refused = pytest.raises(ConfigurationError, match="can't be fenced on a replica")
        with refused, reading(replica, reader(1)):
            raise AssertionError("it has begun")
        with refused, reading(replica, reader(1, "product_without_a_row")):
            raise AssertionError("it has begun")
    replica.dispose()


@contextmanager
def only_reading(engine: Engine) -> Iterator[None]:
    if engine.dialect.name != "mysql":
        yield
        return
    with engine.connect() as connection:
        connection.exec_driver_sql("SET GLOBAL read_only = 1")
        try:
            yield
        finally:
            connection.exec_driver_sql("SET GLOBAL read_only = 0")


@on("sqlite")
def test_a_semaphore_is_refused(engine: Engine) -> None:
    refused = pytest.raises(ConfigurationError, match="'gateway' can't be fenced: several have it at once")
    with refused, reading(engine, reader(1, "gateway", mode=PERMIT)):
        raise AssertionError("it has begun")
    dummies = DummyLocks("shop")
    lock, semaphore = dummies.lock("product_1"), dummies.lock("gateway")
    semaphore.terms.mode = PERMIT
    with multi_lock(lock, semaphore) as both, refused, reading(engine, both):
        raise AssertionError("it has begun")
