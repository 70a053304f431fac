"""The lock is kept until the last transaction under it has ended, wherever and however that happens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flask_distlock.sql.sales import Open, Store
from tests.transactions.till import REQUESTS, STOCK

RIGHT = {"answers": {"200": STOCK, "409": REQUESTS - STOCK}, "orders": STOCK, "left": 0}

COMMITTERS = (
    "view",
    "after_request",
    "async_after_request",
    "after_this_request",
    "teardown_request",
    "teardown_appcontext",
)
HIDDEN = ("function", "select_in_words", "with_in_words", "cte")


def sell(store: Store, how: str, who: str, **words: Any) -> dict[str, Any]:
    getattr(store, who)()
    store.serve(lambda: store.buy(getattr(store, how)), **words)
    return store.sale()


@pytest.mark.parametrize("who", COMMITTERS)
@pytest.mark.parametrize("database", ["postgresql", "sqlite", "mariadb"])
def test_whoever_commits_does_so_under_the_lock(open_store: Open, database: str, who: str) -> None:
    assert sell(open_store(database), "orm", who) == RIGHT


@pytest.mark.parametrize("how", HIDDEN)
@pytest.mark.parametrize("who", ["after_request", "teardown_request"])
def test_a_write_that_a_select_hides_is_committed_under_the_lock(
    open_store: Open, who: str, how: str
) -> None:
    assert sell(open_store("postgresql"), how, who) == RIGHT


@pytest.mark.parametrize("how", ["orm", "function", "cte"])
@pytest.mark.parametrize("who", ["after_request", "teardown_request"])
def test_a_hook_commits_what_has_passed_the_fence(open_store: Open, who: str, how: str) -> None:
    store = open_store("postgresql", BACKEND="dummy")
    assert sell(store, how, who, fence=True) == RIGHT


@pytest.mark.parametrize("who", ["after_request", "teardown_request"])
def test_what_text_has_changed_is_committed_under_the_lock(open_store: Open, who: str) -> None:
    assert sell(open_store("mariadb"), "words", who) == RIGHT


def test_without_the_guard_a_hook_oversells(open_store: Open) -> None:
    store = open_store("postgresql")
    store.after_request()
    store.serve(lambda: store.buy(store.function), locked=False)
    assert store.sale()["orders"] > STOCK
