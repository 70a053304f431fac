"""A transaction that is open where a lock is about to be taken: the site's own is never ended in silence."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from flask import Flask, Response, request
from sqlalchemy import text

from distlock.errors import ConfigurationError
from flask_distlock import DistLock, distributed_lock
from flask_distlock.signals import lock_refused
from tests.flask_distlock.sql.sales import Open, Store
from tests.flask_distlock.sql.session_shop import Shop

OPEN = r"inside a transaction of db\.session.*commit\(\) or rollback\(\)"


@pytest.fixture
def store(open_store: Open) -> Store:
    return open_store("postgresql")


def with_block(locks: DistLock) -> Any:
    return locks.lock("printer")


def with_function(locks: DistLock) -> Any:
    distributed_lock("printer")(lambda: None)()
    return nullcontext()


@pytest.mark.parametrize("take", [with_block, with_function])
def test_a_row_that_the_view_has_locked_stays_locked(store: Store, take: Any) -> None:
    def view() -> str:
        store.db.session.execute(text("SELECT stock FROM product FOR UPDATE"))
        with pytest.raises(ConfigurationError, match=OPEN), take(store.locks):
            pytest.fail("ran")
        with store.db.engine.connect() as other:
            free = other.scalars(text("SELECT id FROM product FOR UPDATE SKIP LOCKED")).all()
        return f"free: {free}"

    store.app.add_url_rule("/", "view", view, methods=["POST"])
    assert store.app.test_client().post("/").text == "free: []"


def test_a_row_that_a_hook_has_locked_is_refused(store: Store) -> None:
    @store.app.before_request
    def lock_the_row() -> None:
        store.db.session.execute(text("SELECT stock FROM product FOR UPDATE"))

    store.serve(lambda: pytest.fail("ran"))
    with pytest.raises(ConfigurationError, match=r"has locked rows.*commit\(\) or rollback\(\)"):
        store.app.test_client().post("/product/1/buy")


# SQLite keeps a savepoint that was rolled back, and so the transaction.
@pytest.mark.parametrize(
    ("kind", "gives_up"), [("sqlite", False), ("postgresql", False), ("postgresql", True)]
)
def test_a_savepoint_that_has_only_read_holds_nothing(open_store: Open, kind: str, gives_up: bool) -> None:
    store = open_store(kind)

    def view() -> str:
        store.db.session.scalar(text("SELECT 1"))
        with store.db.session.begin_nested() as savepoint:
            store.db.session.scalar(text("SELECT stock FROM product"))
            if gives_up:
                savepoint.rollback()
        with store.locks.lock("printer"):
            return "sold"

    store.app.add_url_rule("/", "view", view, methods=["POST"])
    assert store.app.test_client().post("/").text == "sold"


@pytest.mark.parametrize("statement", ["SELECT stock FROM product FOR UPDATE", "SET LOCAL lock_timeout = 9"])
def test_what_is_held_after_a_savepoint_is_kept(store: Store, statement: str) -> None:
    def view() -> str:
        store.db.session.scalar(text("SELECT 1"))
        with store.db.session.begin_nested():
            store.db.session.execute(text(statement))
        with pytest.raises(ConfigurationError, match=OPEN), store.locks.lock("printer"):
            pytest.fail("ran")
        return "kept"

    store.app.add_url_rule("/", "view", view, methods=["POST"])
    assert store.app.test_client().post("/").text == "kept"


@pytest.mark.parametrize("kind", ["view", "block", "function", "hook"])
def test_what_a_hook_has_only_read_is_read_anew(shop: Shop, kind: str) -> None:
    shop.app.before_request(lambda: str(shop.product())[:0] or None)

    def view() -> str:
        with with_function(shop.locks) if kind == "function" else shop.locks.lock("printer"):
            return "sold"

    if kind == "hook":
        shop.app.before_request(lambda: view()[:0] or None)
    if kind == "view":
        shop.serve(lambda: "sold")
    else:
        shop.app.add_url_rule("/", "view", view, methods=["POST"])
    assert shop.post().text == "sold"


def test_what_a_login_check_above_the_decorator_has_read_is_read_anew(shop: Shop) -> None:
    locked = distributed_lock("product_1")(lambda: "sold")

    def login_required() -> Any:
        return locked() if shop.product() else "who?"

    login_required.__wrapped__ = locked  # type: ignore[attr-defined]
    shop.app.add_url_rule("/", "view", login_required, methods=["POST"])
    assert shop.post().text == "sold"


def test_the_numbers_of_a_test_around_the_session_are_not_the_hooks(store: Store) -> None:
    store.app.before_request(lambda: store.db.session.scalar(text("SELECT 1")) and None)
    store.serve(lambda: "read")
    with store.app.app_context(), store.db.engine.connect() as connection:
        outer = connection.begin()
        connection.execute(text("SELECT stock FROM product FOR UPDATE"))
        engines = store.db.engines
        engine, engines[None] = engines[None], connection  # type: ignore[assignment]
        try:
            assert store.app.test_client().post("/product/1/buy").text == "read"
        finally:
            engines[None] = engine
            store.db.session.remove()
            if outer.is_active:
                outer.rollback()


def test_what_a_hook_has_set_for_its_transaction_is_gone_in_the_view(store: Store) -> None:
    @store.app.before_request
    def choose() -> None:
        store.db.session.execute(text("SELECT set_config('shop.tenant', 'a', true)"))

    told = text("SELECT current_setting('shop.tenant', true)")
    store.serve(lambda: f"tenant: {store.db.session.scalar(told) or 'none'}")
    assert store.app.test_client().post("/product/1/buy").text == "tenant: none"


def test_a_notification_is_sent_by_whoever_commits(store: Store) -> None:
    def view() -> str:
        store.db.session.execute(text("SELECT pg_notify('sales', :what)"), {"what": request.args["commit"]})
        if request.args["commit"] == "view":
            store.db.session.commit()
        return "sold"

    @store.app.after_request
    def commit(response: Response) -> Response:
        store.db.session.commit()
        return response

    store.serve(view)
    with store.app.app_context(), store.db.engine.connect() as listener:
        driver: Any = listener.connection.dbapi_connection
        driver.autocommit = True
        driver.execute("LISTEN sales")
        for who in ("hook", "view"):
            assert store.app.test_client().post(f"/product/1/buy?commit={who}").text == "sold"
        heard = list(driver.notifies(timeout=60, stop_after=2))
        assert [one.payload for one in heard] == ["hook", "view"]
        listener.invalidate()


def test_no_waiter_keeps_a_connection(shop: Shop) -> None:
    checked_out: list[int] = []
    with shop.app.app_context():
        pool: Any = shop.db.engine.pool
        holder = shop.locks.lock("product_1")
        holder.acquire()

    def name(request: object) -> str:
        checked_out.append(pool.checkedout())
        return "product_1"

    def refused(sender: Flask, **what: Any) -> None:
        checked_out.append(pool.checkedout())

    @shop.app.before_request
    def login() -> None:
        shop.product()

    shop.app.add_url_rule("/", "view", distributed_lock(name, timeout=0.1)(lambda: "sold"), methods=["POST"])
    with lock_refused.connected_to(refused, shop.app):
        assert shop.post().status_code == 423
    holder.release()
    assert checked_out == [1, 0]
