"""What has changed no rows, or is committed already, needs no COMMIT. On real databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from distlock.errors import ConfigurationError
from flask_distlock import DistLock
from tests.databases import Databases
from tests.flask_distlock.sales import Store
from tests.transactions.till import STOCK

KINDS = ("sqlite", "postgresql", "mariadb")
Open = Callable[[str], Store]


@pytest.fixture
def open_store(databases: Databases, locks: DistLock) -> Iterator[Open]:
    stores: list[Store] = []

    def open_store(kind: str) -> Store:
        store = Store(databases(kind, "nothing_changed"), locks)
        store.app.testing = True
        stores.append(store)
        return store

    yield open_store
    for store in stores:
        store.close()


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
