"""The backend ``database`` in Flask: what a guard and a ``with`` block do, and what they refuse."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import text
from sqlalchemy.orm import Session

from distlock import current_grant, multi_lock
from distlock.errors import ConfigurationError, LockTimeout
from distlock.web import nested_deadlocks
from flask_distlock import DistLock, distributed_lock
from flask_distlock.fence import fence_table
from tests.redis_server import eventually


class Shop:
    def __init__(self, app: Flask) -> None:
        self.app = app
        self.db = db = SQLAlchemy()
        fence_table(db.metadata)

        class Product(db.Model):  # type: ignore[name-defined,misc]
            id = db.Column(db.Integer, primary_key=True)
            stock = db.Column(db.Integer, nullable=False)

        self.Product = Product
        db.init_app(app)
        with app.app_context():
            db.create_all()
            db.session.add(Product(id=1, stock=10))
            db.session.commit()

    def serve(self, view: Callable[[], Any], **words: Any) -> None:
        self.app.add_url_rule("/", "view", distributed_lock("product_1", **words)(view), methods=["POST"])

    def post(self) -> Any:
        return self.app.test_client().post("/")

    def product(self) -> Any:
        return self.db.session.get(self.Product, 1)

    def stock(self) -> int:
        with self.app.app_context():
            stock: int = self.product().stock
            return stock

    def number(self) -> int:
        with self.app.app_context():
            return int(self.db.session.scalar(text("SELECT number FROM distlock_fence")))


@pytest.fixture
def shop(make_app: Callable[..., Flask], tmp_path: Path) -> Iterator[Shop]:
    row = {"default": {"BACKEND": "database", "TIMEOUT": 5}}
    shop = Shop(make_app(DISTLOCK=row, SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/shop.db"))
    yield shop
    with shop.app.app_context():
        shop.db.engine.dispose()


def test_the_view_commits_and_its_row_tells_the_fence(shop: Shop) -> None:
    def buy() -> str:
        shop.product().stock -= 1
        shop.db.session.commit()
        return str(current_grant().fence.number)

    shop.serve(buy)
    assert [shop.post().text for _ in range(3)] == ["1", "2", "3"]
    assert (shop.stock(), shop.number()) == (7, 3)


def test_the_view_may_begin_the_transaction_of_the_row(shop: Shop) -> None:
    def buy() -> str:
        with shop.db.session.begin():
            shop.product().stock -= 1
        return "sold"

    shop.serve(buy)
    assert [shop.post().text for _ in range(3)] == ["sold"] * 3
    assert (shop.stock(), shop.number()) == (7, 3)


def test_what_is_read_after_the_commit_needs_no_lock(shop: Shop) -> None:
    def buy() -> str:
        product = shop.product()
        product.stock -= 1
        shop.db.session.commit()
        # Read anew, for the commit expired it.
        return str(product.stock)

    shop.serve(buy)
    assert shop.post().text == "9"


def test_a_second_commit_is_refused_because_the_first_let_the_lock_go(shop: Shop) -> None:
    def buy() -> str:
        for _ in range(2):
            shop.product().stock -= 1
            shop.db.session.commit()
        return "sold"

    shop.serve(buy)
    with pytest.raises(ConfigurationError, match="write everything before one commit"):
        shop.post()
    assert shop.stock() == 9


def test_after_a_rollback_the_next_transaction_locks_the_row_again(shop: Shop) -> None:
    def buy() -> str:
        shop.product().stock -= 5
        shop.db.session.rollback()
        shop.product().stock -= 1
        with shop.db.session.begin_nested():
            shop.product().stock -= 1
        shop.db.session.commit()
        return "sold"

    shop.serve(buy)
    assert shop.post().text == "sold"
    assert (shop.stock(), shop.number()) == (8, 1)


def test_a_guard_inside_is_the_same_lock(shop: Shop) -> None:
    @distributed_lock("product_1")
    def inner() -> int:
        return current_grant().fence.number

    shop.serve(lambda: str(inner()))
    assert shop.post().text == "1"


def test_an_async_view_is_served(shop: Shop) -> None:
    async def buy() -> str:
        shop.product().stock -= 1
        shop.db.session.commit()
        return str(current_grant().fence.number)

    shop.serve(buy)
    assert shop.post().text == "1"
    assert shop.stock() == 9


def test_a_with_block_locks_the_row_and_commits_by_itself(shop: Shop, locks: DistLock) -> None:
    with shop.app.app_context():
        with locks.lock("product_1") as grant:
            shop.product().stock -= 1
            assert grant.fence.number == 1
            shop.db.session.commit()
        forgotten = pytest.raises(ConfigurationError, match=r"call db.session.commit\(\) inside it")
        with forgotten, locks.lock("product_1"):
            shop.product().stock -= 1
        with pytest.raises(ZeroDivisionError), locks.lock("product_1"):
            shop.product().stock //= 0
    assert shop.stock() == 9


def test_a_row_is_locked_by_with_only(shop: Shop, locks: DistLock) -> None:
    with shop.app.app_context():
        with pytest.raises(ConfigurationError, match=r"write 'with locks.lock\(…\):'"):
            locks.lock("product_1").acquire()
        with pytest.raises(ConfigurationError, match="can't be an rlock"):
            locks.rlock("product_1")
        with pytest.raises(ConfigurationError, match=r"can't be part of multi_lock\(\)"):
            multi_lock(locks.lock("product_1"), locks.lock("product_2"))


def test_a_session_with_changes_is_not_waited_with(shop: Shop, locks: DistLock) -> None:
    with shop.app.app_context():
        shop.product().stock -= 1
        refused = pytest.raises(ConfigurationError, match="has changes that are not committed")
        with refused, locks.lock("product_1"):
            raise AssertionError
        shop.db.session.rollback()


def test_a_bind_that_is_not_there_is_named(make_app: Callable[..., Flask]) -> None:
    row = {"default": {"BACKEND": "database", "LOCATION": "orders"}}
    shop = Shop(make_app(DISTLOCK=row, SQLALCHEMY_DATABASE_URI="sqlite://"))
    shop.serve(lambda: "sold")
    with pytest.raises(ConfigurationError, match="'orders', which SQLALCHEMY_BINDS does not have"):
        shop.post()
    with shop.app.app_context():
        shop.db.engine.dispose()


def test_a_guard_that_asks_for_more_is_found_before_the_first_request(shop: Shop, locks: DistLock) -> None:
    shop.serve(lambda: "sold", ttl=3)
    with pytest.raises(ConfigurationError, match="where a lock has no ttl"):
        locks.check(shop.app)


def test_threads_that_share_a_client_have_a_session_each(
    shop: Shop, locks: DistLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_end, left_open = threading.Event(), threading.Event()
    in_transaction = Session.in_transaction

    def slow(session: Session) -> bool:
        answer = in_transaction(session)
        if session.info.get("ends"):
            at_end.set()
            assert left_open.wait(60)
        return answer

    monkeypatch.setattr(Session, "in_transaction", slow)
    with shop.app.app_context():
        client = locks["default"]

    def rolls_back() -> None:
        with shop.app.app_context(), client.lock("product_1"):
            shop.db.session.rollback()
            shop.db.session.info["ends"] = True

    def leaves_changes_after_its_block() -> None:
        with shop.app.app_context():
            assert at_end.wait(60)
            with client.lock("product_2"):
                shop.product().stock -= 1
                shop.db.session.commit()
            shop.product().stock -= 1
            shop.db.session.flush()
            left_open.set()
            shop.db.session.commit()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(rolls_back), pool.submit(leaves_changes_after_its_block)]:
            done.result(100)
    assert shop.stock() == 8


def test_a_block_that_closes_a_ring_is_refused_at_once(
    make_app: Callable[..., Flask], locks: DistLock, tmp_path: Path
) -> None:
    setting = {
        "default": {"LOCATION": "memory://ring", "TIMEOUT": 60},
        "rows": {"BACKEND": "database", "TIMEOUT": 60},
    }
    shop = Shop(make_app(DISTLOCK=setting, SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/ring.db"))
    first, row, told = threading.Event(), threading.Event(), []

    @distributed_lock("printer")
    def prints() -> None:
        first.set()
        assert row.wait(60)
        eventually(lambda: nested_deadlocks._waiters, "it waits")
        try:
            with locks["rows"].lock("product_1"):
                pytest.fail("ran")
        except LockTimeout as error:
            told.append(str(error))

    @distributed_lock("product_1", alias="rows")
    def sells() -> None:
        # The COMMIT lets the row go, and the other callers of this process wait until the call is over.
        shop.product().stock -= 1
        shop.db.session.commit()
        assert first.wait(60)
        row.set()
        with locks.lock("printer"):
            pass

    def run(function: Callable[[], None]) -> None:
        with shop.app.app_context():
            function()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(run, function) for function in (prints, sells)]:
            done.result(100)
    assert len(told) == 1
    assert "both would wait until their time-outs" in told[0]
    with shop.app.app_context():
        shop.db.engine.dispose()
