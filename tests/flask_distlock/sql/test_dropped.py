"""A view that leaves an app context with uncommitted changes: Flask-SQLAlchemy drops them without a word."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import text

from distlock.errors import ConfigurationError
from flask_distlock import distributed_lock
from tests.flask_distlock.sql.sales import Open, Store
from tests.flask_distlock.sql.session_shop import Call, Shop, held
from tests.transactions.till import STOCK

CHANGES: dict[str, Callable[[Shop], object]] = {
    "dirty": lambda shop: shop.sell(),
    "flushed": lambda shop: (shop.sell(), shop.db.session.flush()),
    "statement": lambda shop: shop.db.session.execute(text("UPDATE product SET stock = 9")),
}
ENDS: dict[str, Callable[[Shop], object]] = {
    "commit": lambda shop: shop.db.session.commit(),
    "rollback": lambda shop: shop.db.session.rollback(),
    "remove": lambda shop: shop.db.session.remove(),
}
TOLD = r"view has left an app context.*call db\.session\.commit\(\) or rollback\(\) inside"


def leaving(shop: Shop, change: Callable[[Shop], object], answer: Any = "sold") -> Call:
    def view() -> Any:
        with shop.app.app_context():
            change(shop)
        return answer

    return view


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_view_that_leaves_a_context_with_changes_is_told(
    shop: Shop, change: Callable[[Shop], object]
) -> None:
    shop.serve(leaving(shop, change))
    with pytest.raises(ConfigurationError, match=TOLD):
        shop.post()
    assert (shop.stock(), held(shop)) == (10, False)


def test_an_async_view_is_told_too(shop: Shop) -> None:
    async def view() -> str:
        with shop.app.app_context():
            shop.sell()
        return "sold"

    shop.serve(view)
    with pytest.raises(ConfigurationError, match=TOLD):
        shop.post()


def test_a_function_is_told_too(shop: Shop) -> None:
    view = leaving(shop, CHANGES["dirty"])
    with shop.app.app_context(), pytest.raises(ConfigurationError, match=TOLD):
        distributed_lock("product_1")(view)()


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_what_the_block_itself_has_ended_is_its_own(shop: Shop, end: Callable[[Shop], object]) -> None:
    shop.serve(leaving(shop, lambda shop: (shop.sell(), end(shop))))
    assert shop.post().text == "sold"


def test_a_teardown_of_the_context_may_commit(shop: Shop) -> None:
    shop.app.teardown_appcontext(lambda error: shop.db.session.commit())
    shop.serve(leaving(shop, CHANGES["dirty"]))
    assert shop.post().text == "sold"
    assert (shop.log[0], shop.stock()) == ("commit+", 9)


def test_a_view_that_refuses_has_meant_it(shop: Shop) -> None:
    shop.serve(leaving(shop, CHANGES["dirty"], ("sold out", 409)))
    assert shop.post().status_code == 409


def test_a_block_that_fails_has_meant_it(shop: Shop) -> None:
    def view() -> str:
        with suppress(ZeroDivisionError), shop.app.app_context():
            shop.sell()
            raise ZeroDivisionError
        return "not sold"

    shop.serve(view)
    assert shop.post().text == "not sold"


def test_a_context_that_has_only_read_is_nothing_to_tell(shop: Shop) -> None:
    shop.serve(leaving(shop, lambda shop: shop.product().stock))
    assert shop.post().text == "sold"


@pytest.mark.parametrize("words", [{}, {"fence": True}, {"fence": True, "batch": 32}], ids=str)
def test_nobody_is_told_sold_for_what_is_dropped(open_store: Open, words: dict[str, Any]) -> None:
    store: Store = open_store("postgresql")
    store.app.testing = False

    def view() -> Any:
        with store.app.app_context():
            return store.buy(store.orm)

    store.serve(view, **words)
    sale = store.sale()
    assert (sale["answers"], sale["orders"], sale["left"]) == ({"500": 16}, 0, STOCK)
