"""A lock after the view's own first query: what has only read is begun anew, other things are refused."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from flask_login import LoginManager, UserMixin, current_user, login_required
from sqlalchemy import event, select, text
from sqlalchemy.orm import scoped_session, sessionmaker

from distlock.errors import ConfigurationError
from flask_distlock import DistLock, distributed_lock
from tests.flask_distlock.sql.sales import Open, Store
from tests.flask_distlock.sql.session_shop import Shop
from tests.transactions.till import REQUESTS, STOCK

RIGHT = {"answers": {"200": STOCK, "409": REQUESTS - STOCK}, "orders": STOCK, "left": 0}
ROW = "SELECT stock FROM product WHERE id = 1"
HELD = r"inside a transaction of db\.session which has locked rows .*commit\(\) or rollback\(\)"
UNKNOWN = r"inside a transaction of db\.session, which .* can't tell .*commit\(\) or rollback\(\)"


def read(store: Store) -> None:
    store.db.session.execute(text(ROW))


def with_block(locks: DistLock) -> Any:
    return locks.lock("printer")


def with_function(locks: DistLock) -> Any:
    distributed_lock("printer")(lambda: None)()
    return nullcontext()


@pytest.mark.parametrize("take", [with_block, with_function])
def test_what_the_view_has_read_is_read_anew_under_the_lock(shop: Shop, take: Any) -> None:
    def view() -> str:
        product = shop.product()
        before = product.stock
        with shop.db.engine.begin() as other:
            other.execute(text("UPDATE product SET stock = 5"))
        with take(shop.locks):
            return f"{before} {product.stock}"

    shop.app.add_url_rule("/", "view", view, methods=["POST"])
    assert shop.post().text == "10 5"


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("how", ["orm", "words"])
@pytest.mark.parametrize("take", ["block", "function"])
def test_a_lock_after_a_query_sells_what_there_is(
    open_store: Open, take: str, how: str, isolation: str
) -> None:
    store = open_store("postgresql")
    sale_below_a_query(store, take, how, isolation)
    assert store.sale() == RIGHT


@pytest.mark.parametrize("take", ["block", "function"])
def test_a_lock_after_a_query_sells_what_there_is_on_sqlite(open_store: Open, take: str) -> None:
    store = open_store("sqlite")
    sale_below_a_query(store, take, "orm", None)
    assert store.sale() == RIGHT


def sale_below_a_query(store: Store, take: str, how: str, isolation: str | None) -> None:
    """The view reads the row, asks for the lock, and sells."""
    store.app.testing = False
    if isolation is not None:
        with store.app.app_context():
            engines = store.db.engines
            engines[None] = engines[None].execution_options(isolation_level=isolation)  # type: ignore[index]
    guarded = distributed_lock("product_1")(lambda: store.buy(getattr(store, how)))

    def view() -> Any:
        if store.db.session.get(store.Product, 1).stock < 0:
            return "?", 500
        if take == "function":
            return guarded()
        with store.locks.lock("product_1"):
            return store.buy(getattr(store, how))

    store.view()
    store.serve(view, locked=False)


def test_a_block_below_the_login_check_of_flask_login_is_served(shop: Shop) -> None:
    db = shop.db

    class User(UserMixin, db.Model):  # type: ignore[name-defined,misc]
        id = db.Column(db.Integer, primary_key=True)
        name = db.Column(db.Text)

    with shop.app.app_context():
        db.create_all()
        db.session.add(User(id=7, name="Ann"))
        db.session.commit()
    login = LoginManager(shop.app)
    login.request_loader(lambda request: db.session.get(User, 7))

    @shop.app.post("/")
    @login_required
    def buy() -> str:
        with shop.locks.lock("product_1"):
            product = shop.product()
            product.stock -= 1
            db.session.commit()
        return f"{current_user.name}, {product.stock} left"

    assert shop.post().text == "Ann, 9 left"


HOLDING = {
    **{f"FOR {mode}": [f"{ROW} FOR {mode}"] for mode in ("UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE")},
    "advisory": ["SELECT pg_advisory_xact_lock(1)"],
    "shared advisory": ["SELECT pg_advisory_xact_lock_shared(1)"],
    "advisory of the connection": ["SELECT pg_advisory_lock(1)"],
    **{
        f"IN {mode} MODE": [f"LOCK TABLE product IN {mode} MODE"]
        for mode in ("ROW EXCLUSIVE", "SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE")
    },
    "a table locked in a function": ["SELECT lock_it()"],
    "SET LOCAL": ["SET LOCAL statement_timeout = '9s'"],
    "SET": ["SET statement_timeout = '9s'"],
    "a cursor": ["DECLARE here CURSOR FOR SELECT 1"],
    "SAVEPOINT": ["SAVEPOINT here"],
    "a read behind it": [f"{ROW} FOR UPDATE", ROW],
}
LOCK_IT = """
CREATE OR REPLACE FUNCTION lock_it() RETURNS void LANGUAGE plpgsql AS
$$ BEGIN LOCK TABLE product IN SHARE MODE; END $$
"""


@pytest.mark.parametrize(("take", "read_before"), [(with_block, False), (with_function, True)])
@pytest.mark.parametrize("statements", HOLDING.values(), ids=HOLDING)
def test_what_the_view_has_locked_or_set_is_not_let_go_in_silence(
    open_store: Open, take: Any, statements: list[str], read_before: bool
) -> None:
    store = open_store("postgresql")
    with store.app.app_context(), store.db.engine.begin() as connection:
        connection.execute(text(LOCK_IT))
    if read_before:
        # It is one transaction with that of the view.
        store.app.before_request(lambda: read(store))

    def view() -> str:
        for statement in statements:
            store.db.session.execute(text(statement))
        begun = store.db.session().get_transaction()
        with pytest.raises(ConfigurationError, match=HELD), take(store.locks):
            pytest.fail("ran")
        assert store.db.session().get_transaction() is begun
        store.db.session.execute(text("SELECT pg_advisory_unlock_all()"))
        store.db.session.rollback()
        with take(store.locks):
            return "printed"

    store.app.add_url_rule("/", "view", view, methods=["POST"])
    assert store.app.test_client().post("/").text == "printed"


@pytest.mark.parametrize("take", [with_block, with_function])
def test_changes_are_not_rolled_back_in_silence(open_store: Open, take: Any) -> None:
    store = open_store("postgresql")

    def view() -> str:
        store.db.session.execute(select(text("sell(1)"))).all()
        with pytest.raises(ConfigurationError, match="changes that are not committed"), take(store.locks):
            pytest.fail("ran")
        store.db.session.commit()
        return "sold"

    store.app.add_url_rule("/", "view", view, methods=["POST"])
    assert store.app.test_client().post("/").text == "sold"
    with store.app.app_context():
        assert store.db.session.get(store.Product, 1).stock == STOCK - 1


@pytest.mark.parametrize("take", [with_block, with_function])
def test_a_failed_transaction_is_the_views_to_end(open_store: Open, take: Any) -> None:
    """Until then the server keeps the rows that it has locked."""
    store = open_store("postgresql")

    def view() -> str:
        store.db.session.execute(text(f"{ROW} FOR UPDATE"))
        with pytest.raises(Exception, match="division by zero"):
            store.db.session.execute(text("SELECT 1 / 0"))
        with pytest.raises(ConfigurationError, match=UNKNOWN), take(store.locks):
            pytest.fail("ran")
        return "refused"

    store.app.add_url_rule("/", "view", view, methods=["POST"])
    assert store.app.test_client().post("/").text == "refused"


@pytest.mark.parametrize("take", [with_block, with_function])
@pytest.mark.parametrize("how", ["words", "listener"])
def test_what_somebody_has_begun_on_sqlite_is_not_ended(open_store: Open, take: Any, how: str) -> None:
    store = open_store("sqlite")
    if how == "listener":
        with store.app.app_context():
            event.listen(store.db.engine, "begin", lambda one: one.exec_driver_sql("BEGIN IMMEDIATE"))

    def view() -> str:
        if how == "words":
            store.db.session.execute(text("BEGIN IMMEDIATE"))
        store.db.session.execute(text(ROW))
        match = HELD if how == "words" else UNKNOWN
        with pytest.raises(ConfigurationError, match=match), take(store.locks):
            pytest.fail("ran")
        return "refused"

    store.app.add_url_rule("/", "view", view, methods=["POST"])
    assert store.app.test_client().post("/").text == "refused"


@pytest.mark.parametrize("take", [with_block, with_function])
@pytest.mark.parametrize("read_before", [False, True])
def test_where_the_database_can_not_tell_the_view_says_it(
    open_store: Open, take: Any, read_before: bool
) -> None:
    """Also in a transaction that a hook has begun: the row is locked by the view."""
    store = open_store("mariadb")
    if read_before:
        store.app.before_request(lambda: read(store))

    def view() -> str:
        store.db.session.execute(text(f"{ROW} FOR UPDATE"))
        with pytest.raises(ConfigurationError, match=UNKNOWN), take(store.locks):
            pytest.fail("ran")
        store.db.session.rollback()
        with take(store.locks):
            return "printed"

    store.app.add_url_rule("/", "view", view, methods=["POST"])
    assert store.app.test_client().post("/").text == "printed"


@pytest.mark.parametrize("lock", ["SELECT pg_advisory_xact_lock(1)", "LOCK TABLE product IN SHARE MODE"])
def test_what_a_hook_has_locked_is_refused(open_store: Open, lock: str) -> None:
    store = open_store("postgresql")
    store.app.before_request(lambda: str(store.db.session.execute(text(lock)))[:0] or None)
    store.serve(lambda: pytest.fail("ran"))
    with pytest.raises(ConfigurationError, match=HELD):
        store.app.test_client().post("/product/1/buy")


def test_the_transaction_of_a_test_around_the_view_is_not_rolled_back(open_store: Open) -> None:
    store = open_store("postgresql")

    def view() -> str:
        store.db.session.get(store.Product, 1)
        with store.locks.lock("printer"):
            return str(store.db.session.get(store.Product, 1).stock)

    store.serve(view, locked=False)
    with store.app.app_context(), store.db.engine.connect() as connection:
        outer = connection.begin()
        connection.execute(text("UPDATE product SET stock = 5"))
        engines = store.db.engines
        engine, engines[None] = engines[None], connection  # type: ignore[assignment]
        try:
            assert store.app.test_client().post("/product/1/buy").text == "5"
            assert connection.scalar(text(ROW)) == 5
        finally:
            engines[None] = engine
            store.db.session.remove()
            outer.rollback()


def test_a_session_that_was_used_before_anybody_watched_is_left_alone(shop: Shop) -> None:
    """What it holds is not known."""
    with shop.app.app_context():
        shop.db.session.remove()
        # A test suite puts another session there, which has read something before.
        shop.db.session = scoped_session(sessionmaker(shop.db.engine))
        shop.db.session.execute(text("SELECT stock FROM product"))
        with pytest.raises(ConfigurationError, match=UNKNOWN), shop.locks.lock("printer"):
            pytest.fail("ran")
        shop.db.session.remove()
