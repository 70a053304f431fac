"""The fence under every isolation level, with a lock that keeps nobody out."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError as DjangoError
from psycopg import errors as postgresql
from pymysql import err as mysql
from pymysql.constants import CR, ER
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from distlock.errors import LockLost
from distlock.fence.trouble import limit, says_not_committed, trouble
from tests.databases import on
from tests.fence.conftest import STOCK
from tests.fence.selling import sell, sold_by
from tests.fence.shops import Answered, FlaskShop, open_shop

DUMMY: dict[str, object] = {"BACKEND": "dummy"}

#: Errors that PyMySQL has no name for.
MYSQL_QUERY_TIMEOUT, MARIADB_CONNECTION_KILLED = 3024, 1927

LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")

faces = pytest.mark.parametrize("face", ["django", "flask"])


def left(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT qty FROM stock")).scalar_one())


@faces
@pytest.mark.parametrize(
    ("database", "isolation"),
    # SQLite has one.
    [("sqlite", None), *itertools.product(["postgresql", "mariadb"], [None, *LEVELS])],
    indirect=["database"],
)
def test_no_piece_is_sold_twice(face: str, engine: Engine, using: str, isolation: str | None) -> None:
    with open_shop(face, engine, using, DUMMY, isolation) as shop:
        sell(shop)
        assert (sold_by(shop), left(engine)) == (STOCK, 0)


@faces
def test_without_it_the_same_run_oversells(face: str, engine: Engine, using: str) -> None:
    """On SQLite, too: a read is no part of a transaction there, and readers wait for nobody."""
    with open_shop(face, engine, using, DUMMY) as shop:
        sell(shop, fence=False)
        assert sold_by(shop) > STOCK


def test_what_the_session_read_before_the_lock_is_read_anew(engine: Engine, using: str) -> None:
    """A login reads first: MySQL's snapshot, and SQLAlchemy's objects, are as old as that.

    In Flask alone: Django's transaction begins behind the lock, and what is read before is not in it.
    """
    with open_shop("flask", engine, using, DUMMY) as shop:
        assert isinstance(shop, FlaskShop)
        shop.app.before_request(lambda: [shop.read()].clear())
        sell(shop)
        assert (sold_by(shop), left(engine)) == (STOCK, 0)


Interfere = Callable[[Engine], None]


def changes_a_row_that_the_view_writes(engine: Engine) -> None:
    with engine.connect().execution_options(isolation_level="SERIALIZABLE") as other, other.begin():
        other.execute(text("UPDATE stock SET qty = 5 WHERE id = 2"))


def changes_a_row_that_the_view_has_read(engine: Engine) -> None:
    with engine.connect().execution_options(isolation_level="SERIALIZABLE") as other, other.begin():
        other.execute(text("SELECT sum(qty) FROM stock"))
        other.execute(text("UPDATE stock SET qty = 5 WHERE id = 3"))


@pytest.mark.fault("F35")
@on("postgresql")  # Others lock what they read.
@faces
@pytest.mark.parametrize(
    "interfere", [changes_a_row_that_the_view_writes, changes_a_row_that_the_view_has_read]
)
def test_a_conflict_behind_the_fence_is_the_sites_own_error(
    face: str, interfere: Interfere, engine: Engine, using: str
) -> None:
    """With what is not fenced: the transaction is rolled back, the lock released, the error as without us."""
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO stock VALUES (2, 10), (3, 10)"))
    calm: list[Any] = []

    def view() -> None:
        shop.execute("SELECT sum(qty) FROM stock")
        if not calm:
            interfere(engine)
        shop.execute("UPDATE stock SET qty = qty - 1 WHERE id = 2")

    with open_shop(face, engine, using, {"TIMEOUT": 0}, "SERIALIZABLE") as shop:
        shop.serve(view)
        with pytest.raises((DjangoError, OperationalError)) as conflict:
            shop.post()
        assert trouble(conflict.value) == "again"
        calm.append(True)
        assert shop.post() == Answered(200)
    with engine.connect() as connection:
        expected = 4 if interfere is changes_a_row_that_the_view_writes else 9
        assert connection.execute(text("SELECT qty FROM stock WHERE id = 2")).scalar_one() == expected


# -- what the drivers' errors mean -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "meaning", "setting"),
    [
        (mysql.OperationalError(ER.LOCK_WAIT_TIMEOUT), "busy", None),
        (mysql.OperationalError(ER.STATEMENT_TIMEOUT), "busy", "max_statement_time"),
        (mysql.OperationalError(MYSQL_QUERY_TIMEOUT), "busy", "max_execution_time"),
        (mysql.OperationalError(ER.CHECKREAD), "again", None),
        (mysql.OperationalError(ER.LOCK_DEADLOCK), "again", None),
        (mysql.ProgrammingError(ER.NO_SUCH_TABLE), "no table", None),
        (mysql.OperationalError(ER.BAD_FIELD_ERROR), "old table", None),
        (mysql.OperationalError(CR.CR_SERVER_LOST), "away", None),
        (mysql.DataError(ER.DATA_TOO_LONG), None, None),
        (postgresql.LockNotAvailable(), "busy", None),
        (postgresql.QueryCanceled(), "busy", "statement_timeout"),
        (postgresql.SerializationFailure(), "again", None),
        (postgresql.DeadlockDetected(), "again", None),
        (postgresql.UndefinedTable(), "no table", None),
        (postgresql.UndefinedColumn(), "old table", None),
        (postgresql.ReadOnlySqlTransaction(), "replica", None),
        (postgresql.OperationalError(), "away", None),
        (postgresql.UniqueViolation(), None, None),
    ],
    ids=repr,
)
def test_what_an_error_means(error: Exception, meaning: str | None, setting: str | None) -> None:
    assert (trouble(error), limit(error)) == (meaning, setting)


@pytest.mark.parametrize(
    ("error", "certain"),
    [
        (mysql.IntegrityError(ER.DUP_ENTRY), True),
        (mysql.DataError(ER.DATA_TOO_LONG), True),
        (mysql.OperationalError(ER.LOCK_DEADLOCK), True),
        (mysql.OperationalError(ER.HASHCHK), True),
        (mysql.OperationalError(ER.SERVER_SHUTDOWN), False),
        (mysql.OperationalError(ER.QUERY_INTERRUPTED), False),
        (mysql.OperationalError(MARIADB_CONNECTION_KILLED), False),
        (mysql.OperationalError(CR.CR_UNKNOWN_ERROR), False),
        (mysql.OperationalError(CR.CR_SERVER_LOST), False),
        (postgresql.UniqueViolation(), True),
        (postgresql.RaiseException(), True),
        (postgresql.SerializationFailure(), True),
        (postgresql.DiskFull(), True),
        (postgresql.ConnectionFailure(), False),
        (postgresql.AdminShutdown(), False),
        (postgresql.IoError(), False),
        (postgresql.InternalError_(), False),
        (postgresql.OperationalError("the connection is lost"), False),
        (ConnectionResetError(104, "Connection reset by peer"), False),
        (LockLost("overtaken"), True),
    ],
    ids=repr,
)
def test_only_a_server_that_runs_on_is_proof_that_nothing_is_committed(
    error: Exception, certain: bool
) -> None:
    assert says_not_committed(error) is certain
