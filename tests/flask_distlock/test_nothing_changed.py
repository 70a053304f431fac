"""What has changed no rows, or is committed already, needs no COMMIT. On real databases."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import insert, text
from sqlalchemy.dialects import mysql, postgresql, sqlite

from distlock.errors import ConfigurationError
from tests.flask_distlock.sales import Open, Store
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
