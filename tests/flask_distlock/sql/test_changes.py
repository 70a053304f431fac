"""Reading views are served, and writes are seen, whatever the words of their SQL. On real databases."""

from __future__ import annotations

import flask_sqlalchemy.session
import pytest
from sqlalchemy import func, select, text

from distlock.errors import ConfigurationError
from tests.flask_distlock.sql.sales import Open, Store
from tests.transactions.till import STOCK

ANYWHERE = (
    "SELECT 1",
    "/* x */ SELECT 1",
    "WITH x AS (SELECT 1) SELECT * FROM x",
    "select stock from product",
)
READS = {
    "sqlite": (*ANYWHERE, "VALUES (1)", "PRAGMA foreign_keys", "EXPLAIN SELECT 1", "SAVEPOINT x"),
    "postgresql": (
        *ANYWHERE,
        "VALUES (1)",
        "(SELECT 1)",
        "TABLE product",
        "SHOW work_mem",
        "SET work_mem = '4MB'",
    ),
    "mariadb": (*ANYWHERE, "(SELECT 1)", "VALUES (1)", "SHOW TABLES", "SET @x = 1", "DO 1"),
}
LOCKING = "SELECT stock FROM product FOR UPDATE"


def ran(store: Store, statement: str, fence: bool = False) -> tuple[int, str]:
    """The status of a view that runs *statement*, and whether its lock was held in a hook then."""
    seen: list[str] = []

    def look(response: object) -> object:
        seen.append("held" if store.locks.lock("product_1").locked() else "free")
        return response

    def view() -> str:
        store.db.session.execute(text(statement))
        return "read"

    store.app.after_request(look)  # type: ignore[arg-type]
    store.serve(view, fence=fence)
    return store.app.test_client().post("/product/1/buy").status_code, seen[0]


@pytest.mark.parametrize(("kind", "statement"), [(kind, one) for kind in READS for one in READS[kind]])
def test_a_view_that_reads_is_served(open_store: Open, kind: str, statement: str) -> None:
    assert ran(open_store(kind), statement) == (200, "held")


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_view_that_locks_rows_and_changes_none_is_served(open_store: Open, kind: str) -> None:
    assert ran(open_store(kind), LOCKING)[0] == 200


@pytest.mark.parametrize("kind", READS)
@pytest.mark.parametrize("statement", [ANYWHERE[0], ANYWHERE[3]])
def test_a_fenced_view_that_reads_is_served(open_store: Open, kind: str, statement: str) -> None:
    assert ran(open_store(kind), statement, fence=True)[0] == 200


IN_SQLITE = (
    "/* x */ UPDATE product SET stock = 1",
    "REPLACE INTO product (id, stock) VALUES (1, 1)",
    "UPDATE product SET stock = 1 RETURNING id",
)
IN_POSTGRESQL = (
    IN_SQLITE[0],
    "WITH x AS (SELECT 1 AS n) UPDATE product SET stock = (SELECT n FROM x)",
    "SELECT sell(1)",
    "WITH x AS (UPDATE product SET stock = 1 RETURNING id) SELECT * FROM x",
    "WITH x AS (DELETE FROM product RETURNING id) TABLE x",
    "DO $$ BEGIN PERFORM sell(1); END $$",
    "MERGE INTO product USING (VALUES (1)) AS x (n) ON id = n WHEN MATCHED THEN UPDATE SET stock = n",
    "SELECT 1; UPDATE product SET stock = 1",
    "CREATE TABLE other AS TABLE product",
)
IN_MARIADB = (*IN_SQLITE[:2], "/*!50000 UPDATE */ product SET stock = 1")
WRITES = {"sqlite": IN_SQLITE, "postgresql": IN_POSTGRESQL, "mariadb": IN_MARIADB}
EVERYWHERE = [(kind, one) for kind in WRITES for one in WRITES[kind]]


def stock(store: Store) -> int:
    with store.app.app_context():
        return int(store.db.session.scalar(select(func.max(store.Product.stock))))


@pytest.mark.parametrize("fence", [False, True])
@pytest.mark.parametrize(("kind", "statement"), EVERYWHERE)
def test_a_write_that_nobody_commits_is_an_error(
    open_store: Open, kind: str, statement: str, fence: bool
) -> None:
    store = open_store(kind)
    with pytest.raises(ConfigurationError, match=r"call db\.session\.commit\(\) inside"):
        ran(store, statement, fence)
    assert stock(store) == STOCK


@pytest.mark.parametrize(("kind", "statement"), EVERYWHERE)
def test_a_write_from_before_the_lock_is_refused(open_store: Open, kind: str, statement: str) -> None:
    store = open_store(kind)

    @store.app.before_request
    def count() -> None:
        store.db.session.execute(text(statement))

    with pytest.raises(ConfigurationError, match="changes that are not committed"):
        ran(store, "SELECT 1")
    assert stock(store) == STOCK


def test_a_transaction_that_a_test_has_begun_is_its_own(open_store: Open) -> None:
    """What others have changed in the transaction that the session joins is no change of the view's."""
    store = open_store("postgresql")
    with store.app.app_context(), store.db.engine.connect() as connection:
        outer = connection.begin()
        connection.execute(text("UPDATE product SET stock = 5"))
        engines = store.db.engines
        engine, engines[None] = engines[None], connection  # type: ignore[assignment]
        try:
            assert ran(store, "SELECT stock FROM product") == (200, "held")
            assert outer.is_active
        finally:
            engines[None] = engine
            store.db.session.remove()
            outer.rollback()


def test_a_guard_keeps_it_even_if_a_hook_has_queried_in_it(open_store: Open) -> None:
    store = open_store("postgresql")

    @store.app.before_request
    def hook() -> None:
        store.db.session.execute(text("SELECT 1"))

    with store.app.app_context(), store.db.engine.connect() as connection:
        outer = connection.begin()
        connection.execute(text("UPDATE product SET stock = 5"))
        engines = store.db.engines
        engine, engines[None] = engines[None], connection  # type: ignore[assignment]
        try:
            assert ran(store, "SELECT stock FROM product") == (200, "held")
            assert outer.is_active
            assert connection.scalar(text("SELECT stock FROM product WHERE id = 1")) == 5
        finally:
            engines[None] = engine
            store.db.session.remove()
            outer.rollback()


def test_a_guard_ends_a_transaction_that_a_hook_has_begun_on_a_connection_of_the_site(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the lock, the view must not read the hook's snapshot."""
    store = open_store("mariadb")
    with store.app.app_context():
        engine = store.db.engine

    @store.app.before_request
    def hook() -> None:
        store.db.session.execute(text("SELECT stock FROM product")).all()
        with engine.begin() as earlier_buyer:
            earlier_buyer.execute(text("UPDATE product SET stock = 5"))

    store.serve(lambda: str(store.db.session.scalar(text("SELECT stock FROM product"))))
    with engine.connect() as connection:
        monkeypatch.setattr(flask_sqlalchemy.session.Session, "get_bind", lambda *_, **__: connection)
        assert store.app.test_client().post("/product/1/buy").text == "5"


def test_a_transaction_that_has_failed_is_over(open_store: Open) -> None:
    store = open_store("postgresql")

    def view() -> str:
        try:
            store.db.session.execute(text("SELECT 1 / 0"))
        except Exception:
            return "read"
        return "?"

    store.serve(view)
    assert store.app.test_client().post("/product/1/buy").text == "read"
