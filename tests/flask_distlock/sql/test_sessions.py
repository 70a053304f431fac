from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, Response, g
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import inspect, select, text

from distlock.errors import ConfigurationError
from flask_distlock import DistLock, distributed_lock
from tests.flask_distlock.sql.session_shop import Shop


@pytest.mark.parametrize("begin", ["begin", "begin_nested"])
def test_a_function_inside_a_transaction_that_somebody_has_begun_is_refused(shop: Shop, begin: str) -> None:
    @distributed_lock("product_1")
    def sell() -> None:
        pytest.fail("ran")

    with (
        shop.app.app_context(),
        pytest.raises(ConfigurationError, match=r"'with db\.session\.begin\(\):' inside .*sell"),
        getattr(shop.db.session, begin)(),
    ):
        sell()


def test_a_function_begins_its_own_transaction(shop: Shop) -> None:
    @distributed_lock("product_1")
    def sell() -> None:
        with shop.db.session.begin():
            shop.product().stock -= 1

    with shop.app.app_context():
        sell()
        sell()
    assert shop.stock() == 8


def test_a_view_that_commits_does_so_under_the_lock(shop: Shop) -> None:
    def view() -> str:
        shop.product().stock -= 1
        shop.db.session.commit()
        return "sold"

    shop.serve(view)
    assert shop.post().text == "sold"
    assert (shop.log, shop.stock()) == (["commit+"], 9)


def test_what_was_read_before_the_lock_is_read_anew(shop: Shop) -> None:
    seen: list[int] = []

    @shop.app.before_request
    def login() -> None:
        g.product = shop.product()
        with shop.db.engine.begin() as other_server:
            other_server.execute(text("UPDATE product SET stock = 3"))

    shop.serve(lambda: str(seen.append(shop.product().stock)))
    shop.post()
    assert seen == [3]


@pytest.mark.parametrize("flushed", [False, True])
def test_changes_from_before_the_lock_are_refused(shop: Shop, flushed: bool) -> None:
    @shop.app.before_request
    def count() -> None:
        shop.product().stock = 5
        if flushed:
            shop.db.session.flush()

    shop.serve(lambda: pytest.fail("ran"))
    with pytest.raises(ConfigurationError, match="changes that are not committed"):
        shop.post()
    assert shop.stock() == 10


#: Writes that leave the session looking clean.
BULK: dict[str, Callable[[Shop], Any]] = {
    "update mappings": lambda shop: shop.db.session.bulk_update_mappings(
        shop.Product, [{"id": 1, "stock": 9}]
    ),
    "insert mappings": lambda shop: shop.db.session.bulk_insert_mappings(
        shop.Product, [{"id": 2, "stock": 9}]
    ),
    "save objects": lambda shop: shop.db.session.bulk_save_objects([shop.Product(stock=9)]),
    "statement": lambda shop: shop.db.session.execute(text("UPDATE product SET stock = 9")),
    "connection": lambda shop: shop.db.session.connection().execute(text("UPDATE product SET stock = 9")),
    "driver": lambda shop: shop.db.session.connection().exec_driver_sql("UPDATE product SET stock = 9"),
}


@pytest.mark.parametrize("write", BULK.values(), ids=BULK)
def test_bulk_writes_are_changes_before_the_lock_and_in_the_view(shop: Shop, write: Any) -> None:
    shop.serve(lambda: (write(shop), "sold")[1])
    with pytest.raises(ConfigurationError, match=r"call db\.session\.commit\(\) inside"):
        shop.post()
    sell = distributed_lock("product_1")(lambda: pytest.fail("ran"))
    with shop.app.app_context():
        write(shop)
        with pytest.raises(ConfigurationError, match="changes that are not committed"):
            sell()
        shop.db.session.rollback()
        assert [product.stock for product in shop.db.session.query(shop.Product)] == [10]


@pytest.fixture(params=["dirty", "flushed", "statement"])
def forgetful(request: pytest.FixtureRequest, shop: Shop) -> Callable[[], str]:
    """A view that changes something and does not commit it."""

    def view() -> str:
        if request.param == "statement":
            shop.db.session.execute(text("UPDATE product SET stock = 9"))
        else:
            shop.product().stock = 9
        if request.param == "flushed":
            shop.db.session.flush()
        return "sold"

    return view


def test_what_a_hook_commits_is_committed_under_the_lock(shop: Shop, forgetful: Callable[[], str]) -> None:
    @shop.app.after_request
    def commit(response: Response) -> Response:
        shop.db.session.commit()
        shop.note("after commit")
        return response

    shop.serve(forgetful)
    assert shop.post().text == "sold"
    assert (shop.log, shop.stock()) == (["commit+", "after commit+"], 9)


def test_changes_that_nobody_commits_are_rolled_back_and_refused(
    shop: Shop, forgetful: Callable[[], str]
) -> None:
    shop.serve(forgetful)
    with pytest.raises(ConfigurationError, match=r"call db\.session\.commit\(\) inside"):
        shop.post()
    assert shop.stock() == 10


def test_what_a_failing_view_leaves_behind_is_rolled_back(shop: Shop) -> None:
    def view() -> str:
        shop.product().stock = 0
        raise ZeroDivisionError

    @shop.app.errorhandler(ZeroDivisionError)
    def answer(error: ZeroDivisionError) -> str:
        shop.db.session.commit()
        return "mended"

    shop.serve(view)
    assert shop.post().text == "mended"
    assert shop.stock() == 10


def test_a_view_may_read_after_its_commit(shop: Shop) -> None:
    def view() -> str:
        shop.product().stock -= 1
        shop.db.session.commit()
        return str(shop.product().stock)

    shop.serve(view)
    assert shop.post().text == "9"


def test_what_changes_no_rows_need_not_be_committed(shop: Shop) -> None:
    def view() -> str:
        with shop.db.session.begin_nested():
            shop.db.session.connection().exec_driver_sql("select 1")
        known = shop.db.session.query(shop.Product).cte()
        shop.db.session.execute(select(known))
        shop.db.session.connection().execute(select(known))
        inspect(shop.db.session.connection()).get_table_names()
        return "read"

    shop.serve(view)
    assert shop.post().text == "read"


def test_a_view_that_only_reads_need_not_commit(shop: Shop) -> None:
    shop.serve(lambda: str(shop.product().stock))
    assert shop.post().text == "10"


def test_a_lock_that_is_lost_before_the_commit_of_a_view_undoes_it(shop: Shop) -> None:
    def view() -> str:
        shop.product().stock -= 1
        # Closing the client is to a grant what an ended lease is.
        shop.locks.close()
        shop.db.session.commit()
        return "sold"

    shop.serve(view)
    response = shop.post()
    assert (response.status_code, response.get_json(force=True)["code"]) == (503, "lock_lost")
    assert shop.stock() == 10


def test_a_helper_thread_of_an_async_view_does_not_commit_under_a_lost_lock(shop: Shop) -> None:
    def sell() -> None:
        shop.product().stock -= 1
        shop.locks.close()
        shop.db.session.commit()

    async def view() -> str:
        await asyncio.to_thread(sell)
        return "sold"

    shop.serve(view)
    assert shop.post().status_code == 503
    assert shop.stock() == 10


def test_a_plain_function_is_held_to_the_same(shop: Shop) -> None:
    @distributed_lock("product_1")
    def sell() -> None:
        shop.product().stock -= 1

    with shop.app.test_request_context():
        shop.app.preprocess_request()
        with pytest.raises(ConfigurationError, match=r"call db\.session\.commit\(\) inside"):
            sell()


@pytest.mark.parametrize("flushed", [False, True])
def test_a_script_loses_no_changes_to_its_first_guard(shop: Shop, flushed: bool) -> None:
    sell = distributed_lock("product_1")(lambda: pytest.fail("ran"))
    with shop.app.app_context():
        shop.product().stock = 5
        if flushed:
            shop.db.session.flush()
        with pytest.raises(ConfigurationError, match="changes that are not committed"):
            sell()


def test_an_extension_that_comes_late_is_watched(locks: DistLock, tmp_path: Path) -> None:
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = f"sqlite:///{tmp_path}/late.db"
    app.config["DISTLOCK"] = "memory://late_session"
    locks.init_app(app)
    db = SQLAlchemy()
    sell = distributed_lock("stock")(lambda: db.session.execute(text("INSERT INTO sale VALUES (1)")))
    with app.app_context():
        # The context came first.
        db.init_app(app)
        with db.engine.begin() as connection:
            connection.execute(text("CREATE TABLE sale (id INTEGER)"))
        with pytest.raises(ConfigurationError, match=r"call db\.session\.commit\(\) inside"):
            sell()
        db.engine.dispose()


def test_a_session_that_is_replaced_is_watched(shop: Shop) -> None:
    """As by a test that binds the session to its own transaction, or an extension that comes late."""
    commits: list[None] = []

    @shop.app.after_request
    def commit(response: Response) -> Response:
        if commits:
            shop.db.session.commit()
        return response

    shop.serve(shop.sell)
    with shop.app.app_context():
        shop.db.session.remove()
    shop.db.session = shop.db._make_scoped_session({})
    with pytest.raises(ConfigurationError, match=r"call db\.session\.commit\(\) inside"):
        shop.post()
    commits.append(None)
    assert shop.post().text == "sold"
    assert (shop.log, shop.stock()) == (["commit+"], 9)


def test_a_block_looks_after_a_session_that_is_replaced(shop: Shop) -> None:
    def view() -> str:
        shop.db.session = shop.db._make_scoped_session({})
        with shop.locks.lock("product_1"):
            shop.sell()
        shop.db.session.commit()
        return "sold"

    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    assert shop.post().text == "sold"
    assert (shop.log, shop.stock()) == (["commit+"], 9)
