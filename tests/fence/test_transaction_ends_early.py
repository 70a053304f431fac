"""Code under the lock ends the fenced transaction: what comes after it has passed no fence, and is told.

The lock service excludes nobody, so that the fence alone keeps buyers apart.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections, transaction
from sqlalchemy import Connection, Engine, event, text

import flask_distlock
from tests.databases import on
from tests.fence.conftest import STOCK
from tests.fence.shops import Answered, DjangoShop, FlaskShop, Shop, open_shop

UNKNOWN = Answered(500, "lock_outcome_unknown")

#: What commits on MariaDB before it does what it says.
IMPLICIT = [
    "ANALYZE TABLE other",
    "TRUNCATE TABLE other",
    "CREATE TABLE IF NOT EXISTS other (id INTEGER)",
    "/* a comment */ ALTER TABLE other COMMENT = 'x'",
    "FLUSH TABLES",
    "SET PASSWORD = PASSWORD('')",
    "CHECK TABLE other",
    "OPTIMIZE TABLE other",
    "REPAIR TABLE other",
    "CALL ends()",
    "COMMIT",
    "COMMIT AND CHAIN",
    "ROLLBACK",
    "START TRANSACTION",
]


@pytest.fixture(params=["django", "flask"])
def shop(request: pytest.FixtureRequest, engine: Engine, using: str) -> Iterator[Any]:
    with open_shop(request.param, engine, using, {"BACKEND": "dummy", "TIMEOUT": 20}) as shop:
        yield shop


def stock(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT qty FROM stock")).scalar_one())


def driver_of(shop: Any) -> Any:
    """The driver's connection, in the view."""
    if isinstance(shop, DjangoShop):
        return connections[shop.using].connection
    return shop.db.session.connection().connection.dbapi_connection


def by_driver(shop: Any, end: str) -> None:
    getattr(driver_of(shop), end)()


def by_cursor(shop: Any, *statements: str) -> None:
    """Past the framework."""
    cursor = driver_of(shop).cursor()
    for statement in statements:
        cursor.execute(statement)
    cursor.close()


def by_sql(shop: Shop, *statements: str) -> None:
    for statement in statements:
        shop.execute(statement)


ENDS: dict[str, Callable[[Any], object]] = {
    "commit()": lambda shop: by_driver(shop, "commit"),
    "rollback()": lambda shop: by_driver(shop, "rollback"),
    "COMMIT; BEGIN": lambda shop: by_sql(shop, "COMMIT", "BEGIN"),
    "ROLLBACK; BEGIN": lambda shop: by_sql(shop, "ROLLBACK", "BEGIN"),
    "cursor: COMMIT; BEGIN": lambda shop: by_cursor(shop, "COMMIT", "BEGIN"),
    "with a savepoint": lambda shop: by_sql(shop, "COMMIT", "BEGIN", "SAVEPOINT distlock_part"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_what_follows_an_early_end_is_rolled_back_and_told(
    shop: Any, engine: Engine, end: Callable[[Any], object]
) -> None:
    def view() -> None:
        shop.write(30)
        end(shop)
        shop.write(20)

    shop.serve(view)
    assert shop.post() == UNKNOWN
    # Behind commit() SQLite commits each statement by itself under Django: it can only be told.
    by_itself = isinstance(shop, DjangoShop) and engine.dialect.name == "sqlite"
    assert stock(engine) in ({30, STOCK, 20} if by_itself else {30, STOCK})


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_buyers_whose_transactions_end_early_are_not_told_that_they_have_bought(
    shop: Any, end: Callable[[Any], object]
) -> None:
    start = threading.Barrier(4)

    def buy() -> bool | None:
        qty = shop.read()
        end(shop)
        if qty < 1:
            return False
        shop.write(qty - 1)
        return None

    shop.serve(buy)

    def buyer(_number: int) -> Answered:
        start.wait(30)
        answer = shop.post()
        shop.leave()
        return answer

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(buyer, range(4)))
    # Overtaken, or told: nobody is answered 200.
    assert {answer.status for answer in answers} <= {500, 503}
    assert UNKNOWN in answers


def test_hooks_that_do_not_run_are_told(engine: Engine, using: str, caplog: pytest.LogCaptureFixture) -> None:
    mails: list[str] = []

    def send_mail() -> None:
        mails.append("sold")

    with open_shop("django", engine, using, {"BACKEND": "dummy"}) as shop:

        def view() -> None:
            shop.after_commit(send_mail)
            by_driver(shop, "commit")

        shop.serve(view)
        assert shop.post() == UNKNOWN
    assert mails == []
    assert "These on_commit hooks do not run:" in caplog.text
    assert "send_mail" in caplog.text


def test_what_is_to_be_rolled_back_is_not_looked_at(engine: Engine, using: str) -> None:
    with open_shop("django", engine, using, {"BACKEND": "dummy"}) as shop:
        shop.serve(lambda: (shop.write(7), transaction.set_rollback(True, using=using)))
        assert shop.post() == Answered(200)
    assert stock(engine) == STOCK


@on("postgresql")
def test_a_listener_at_commit_is_in_the_transaction_of_the_view(engine: Engine, using: str) -> None:
    """In Flask: COMMIT is not sent in front of what the site executes there."""
    ids: list[int] = []

    def note(connection: Connection) -> None:
        ids.append(connection.exec_driver_sql("SELECT pg_current_xact_id()::text::bigint").scalar_one())

    with open_shop("flask", engine, using, {"BACKEND": "dummy"}) as shop:
        assert isinstance(shop, FlaskShop)
        shop.serve(lambda: note(shop.db.session.connection()))
        assert shop.post() == Answered(200)
        with shop.app.app_context():
            # Behind the one of distlock.
            event.listen(shop.db.engine, "commit", note)
        assert shop.post() == Answered(200)
    assert len(ids) == 3
    assert ids[1] == ids[2]


@pytest.mark.parametrize("last", ["commit", "COMMIT"])
def test_a_view_that_commits_by_its_driver_alone_is_told(engine: Engine, using: str, last: str) -> None:
    """In Flask, without a `session.commit()`."""
    with open_shop("flask", engine, using, {"BACKEND": "dummy"}) as shop:
        assert isinstance(shop, FlaskShop)

        @shop.app.post("/product/<int:id>")
        @flask_distlock.distributed_lock("product_<id>", fence=True)
        def view(id: int) -> str:
            shop.write(30)
            by_driver(shop, "commit")
            shop.write(20)
            by_driver(shop, "commit") if last == "commit" else by_cursor(shop, "COMMIT")
            return "sold"

        assert shop.post() == UNKNOWN


@on("mariadb")
@pytest.mark.parametrize("statement", IMPLICIT)
def test_a_statement_that_commits_by_itself_is_told(shop: Any, engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS other (id INTEGER)"))
        connection.execute(text("DROP PROCEDURE IF EXISTS ends"))
        connection.execute(text("CREATE PROCEDURE ends() BEGIN COMMIT; END"))

    def view() -> None:
        shop.write(30)
        by_cursor(shop, statement)
        shop.write(20)

    shop.serve(view)
    answer = shop.post()
    assert answer == UNKNOWN
    assert stock(engine) in {30, STOCK}


@on("mariadb")
def test_autocommit_that_was_switched_on_is_told(shop: Any) -> None:
    def view() -> None:
        shop.write(30)
        by_cursor(shop, "SET autocommit = 1")
        shop.write(20)

    shop.serve(view)
    assert shop.post() == UNKNOWN


def test_a_view_that_leaves_its_transaction_alone_is_answered_as_ever(shop: Any, engine: Engine) -> None:
    shop.serve(lambda: shop.write(7))
    assert [shop.post(), shop.post()] == [Answered(200)] * 2
    assert stock(engine) == 7
