"""What has changed no rows, or is committed already, needs no COMMIT. On real databases."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import insert, text, update
from sqlalchemy.dialects import mysql, postgresql, sqlite

from distlock.errors import ConfigurationError
from tests.flask_distlock.sql.sales import Open, Store
from tests.transactions.till import STOCK

KINDS = ("sqlite", "postgresql", "mariadb")


def ignoring(kind: str, store: Store, id: int) -> Any:
    """INSERT … that leaves alone what is there."""
    if kind == "mariadb":
        return mysql.insert(store.Product).values(id=id, stock=7).prefix_with("IGNORE")
    dialect = {"sqlite": sqlite, "postgresql": postgresql}[kind]
    return dialect.insert(store.Product).values(id=id, stock=7).on_conflict_do_nothing()


@pytest.mark.parametrize("kind", KINDS)
def test_an_insert_that_inserts_nothing_is_no_change(open_store: Open, kind: str) -> None:
    store = open_store(kind)
    store.serve(lambda: (store.db.session.execute(ignoring(kind, store, 1)), "there")[1])
    assert store.app.test_client().post("/product/1/buy").text == "there"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("returning", [False, True])
def test_an_insert_that_inserts_is_a_change(open_store: Open, kind: str, returning: bool) -> None:
    store = open_store(kind)

    def view() -> str:
        statement = ignoring(kind, store, 2)
        store.db.session.execute(statement.returning(store.Product.id) if returning else statement)
        return "made"

    store.serve(view)
    with pytest.raises(ConfigurationError, match=r"call db\.session\.commit\(\) inside"):
        store.app.test_client().post("/product/1/buy")


@pytest.mark.parametrize("kind", KINDS)
def test_many_rows_are_a_change(open_store: Open, kind: str) -> None:
    store = open_store(kind)
    rows = [{"id": one, "stock": 1} for one in range(2, 9)]
    store.serve(lambda: (store.db.session.execute(insert(store.Product), rows), "made")[1])
    with pytest.raises(ConfigurationError, match=r"call db\.session\.commit\(\) inside"):
        store.app.test_client().post("/product/1/buy")


@pytest.fixture(params=KINDS)
def autocommit(request: pytest.FixtureRequest, open_store: Open) -> Store:
    """A store whose engine commits each statement by itself."""
    store = open_store(request.param)
    with store.app.app_context():
        engines = store.db.engines
        engines[None] = engines[None].execution_options(isolation_level="AUTOCOMMIT")  # type: ignore[index]
    return store


@pytest.mark.parametrize("how", ["orm", "statement"])
def test_what_the_engine_commits_by_itself_is_no_mistake(autocommit: Store, how: str) -> None:
    store, session = autocommit, autocommit.db.session

    def view() -> str:
        if how == "orm":
            session.get(store.Product, 1).stock -= 1
            session.flush()
        else:
            session.execute(text("UPDATE product SET stock = stock - 1"))
        return "sold"

    store.serve(view)
    assert store.app.test_client().post("/product/1/buy").text == "sold"
    with store.app.app_context():
        assert session.get(store.Product, 1).stock == STOCK - 1
        assert not store.locks.lock("product_1").locked()


def test_what_was_never_sent_is_a_mistake_there_too(autocommit: Store) -> None:
    store = autocommit

    def view() -> str:
        store.db.session.get(store.Product, 1).stock -= 1
        return "sold"

    store.serve(view)
    with pytest.raises(ConfigurationError, match=r"call db\.session\.commit\(\) inside"):
        store.app.test_client().post("/product/1/buy")


#: Sells a piece of the product 9, of which there is none; in PostgreSQL's words.
IN_VAIN = {
    "UPDATE": "UPDATE product SET stock = stock - 1 WHERE id = 9 AND stock >= 1",
    "RETURNING": "UPDATE product SET stock = stock - 1 WHERE id = 9 RETURNING id",
    "DELETE": "DELETE FROM product WHERE id = 9",
    "ON CONFLICT": "INSERT INTO product VALUES (1, 7) ON CONFLICT DO NOTHING",
    "MERGE": "MERGE INTO product USING (VALUES (9)) AS x (n) ON id = n WHEN MATCHED THEN DELETE",
}
LOCKED = "SELECT stock FROM product WHERE id = 1 FOR UPDATE"


@pytest.mark.parametrize("before", [None, LOCKED, "fence"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_update_that_meets_no_row_is_no_change(open_store: Open, kind: str, before: str | None) -> None:
    store = open_store(kind)

    def view() -> str:
        if before == LOCKED and kind != "sqlite":
            store.db.session.execute(text(LOCKED))
        statement = update(store.Product).where(store.Product.id == 9).values(stock=1)
        return "sold" if store.db.session.execute(statement).rowcount else "sold out"

    serve_after_a_sale(store, view, fence=before == "fence")
    assert buy_twice(store) == ["sold out", "sold out"]


@pytest.mark.parametrize("before", [LOCKED, "fence"])
@pytest.mark.parametrize("words", IN_VAIN.values(), ids=IN_VAIN)
def test_nothing_found_in_words_is_no_change(open_store: Open, words: str, before: str) -> None:
    store = open_store("postgresql")

    def view() -> str:
        if before == LOCKED:
            store.db.session.execute(text(LOCKED))
        store.db.session.execute(text(words))
        return "sold out"

    serve_after_a_sale(store, view, fence=before == "fence")
    assert buy_twice(store) == ["sold out", "sold out"]


@pytest.mark.parametrize(
    "words",
    [
        "SELECT empty()",
        "WITH x AS (UPDATE product SET stock = 1 WHERE id = 9 RETURNING id) SELECT * FROM x",
        "LOCK TABLE product IN ACCESS EXCLUSIVE MODE",
    ],
)
def test_nothing_done_out_of_sight_is_no_change(open_store: Open, words: str) -> None:
    """The server counts rows, of a connection and not of a transaction."""
    store = open_store("postgresql")

    def view() -> str:
        store.db.session.execute(text(LOCKED))
        store.db.session.execute(text(words))
        return "sold out"

    store.serve(view)
    with store.app.app_context():
        with store.db.engine.begin() as connection:
            connection.execute(text(EMPTY))
        store.db.engine.dispose()
    assert store.app.test_client().post("/product/1/buy").text == "sold out"


EMPTY = """
CREATE OR REPLACE FUNCTION empty() RETURNS void LANGUAGE plpgsql AS
$$ BEGIN UPDATE product SET stock = 0 WHERE id = 9; END $$
"""


def test_a_strict_transaction_that_reads_behind_a_row_lock_is_no_change(open_store: Open) -> None:
    store = open_store("postgresql")
    with store.app.app_context():
        engines = store.db.engines
        engines[None] = engines[None].execution_options(isolation_level="SERIALIZABLE")  # type: ignore[index]

    def view() -> str:
        store.db.session.execute(text(LOCKED))
        store.db.session.execute(text("SELECT * FROM product"))
        return "read"

    store.serve(view)
    assert store.app.test_client().post("/product/1/buy").text == "read"


@pytest.mark.parametrize(
    ("before", "after_a_sale", "count"), [(LOCKED, False, "on"), ("fence", True, "on"), (LOCKED, True, "off")]
)
@pytest.mark.parametrize(
    "words", ["SELECT sell(1)", "UPDATE product SET stock = 1 RETURNING id", "DROP TABLE sale"]
)
def test_what_is_found_is_a_change(
    open_store: Open, words: str, before: str, after_a_sale: bool, count: str
) -> None:
    store = open_store("postgresql")

    def view() -> str:
        store.db.session.execute(text(f"SET LOCAL track_counts = {count}"))
        if before == LOCKED:
            store.db.session.execute(text(LOCKED))
        store.db.session.execute(text(words))
        return "sold"

    if after_a_sale:
        serve_after_a_sale(store, view, fence=before == "fence")
    else:
        store.serve(view, fence=before == "fence")
    with pytest.raises(ConfigurationError, match=r"call db\.session\.commit\(\) inside"):
        store.app.test_client().post("/product/1/buy")


def test_a_change_beside_what_is_found_in_vain_is_committed_under_the_lock(open_store: Open) -> None:
    """Where nobody can tell, the lock is kept."""
    store = open_store("postgresql")
    seen: list[bool] = []

    @store.app.after_request
    def commit(response: Any) -> Any:
        seen.append(store.locks.lock("product_1").locked())
        store.db.session.commit()
        return response

    def view() -> str:
        store.db.session.execute(text("SELECT sell(1)"))
        store.db.session.execute(text(IN_VAIN["UPDATE"]))
        return "sold"

    serve_after_a_sale(store, view)
    assert buy_twice(store) == ["sold", "sold"]
    assert seen == [True, True]
    with store.app.app_context():
        assert store.db.session.get(store.Product, 1).stock == STOCK - 3


def serve_after_a_sale(store: Store, view: Any, **words: Any) -> None:
    """Serve *view*, whose connection has sold a piece just before: servers count for all transactions."""

    @store.app.before_request
    def sell() -> None:
        if not store.app.config.setdefault("SOLD", False):
            store.app.config["SOLD"] = True
            store.db.session.execute(text("UPDATE product SET stock = stock - 1 WHERE id = 1"))
            store.db.session.commit()

    store.serve(view, **words)


def buy_twice(store: Store) -> list[str]:
    return [store.app.test_client().post("/product/1/buy").text for _ in range(2)]
