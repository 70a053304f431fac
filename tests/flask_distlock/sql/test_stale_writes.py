"""Rows that SQLAlchemy loaded before the lock and writes under it are told, and others are not."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
from flask import Flask, g
from sqlalchemy import event
from sqlalchemy.orm import Mapped, Mapper, Session, mapped_column

from distlock import ConfigurationError, StaleWrite
from distlock.testing import race
from flask_distlock import DistLock
from flask_distlock.guarding import app_state
from flask_distlock.sql import stale_writes
from tests.flask_distlock.sql.session_shop import Shop


class Stale(Shop):
    """A shop in debug mode, with a session of its own beside ``db.session``."""

    def __init__(self, app: Flask, locks: DistLock) -> None:
        super().__init__(app, locks)
        base: Any = self.db.Model

        class Order(base):
            id: Mapped[int] = mapped_column(primary_key=True)
            state: Mapped[str] = mapped_column(default="open")
            paid_at: Mapped[datetime.datetime | None]
            notes: Mapped[str] = mapped_column(default="", deferred=True)

        class Versioned(base):
            id: Mapped[int] = mapped_column(primary_key=True)
            stock: Mapped[int]
            version: Mapped[int] = mapped_column()
            __mapper_args__ = {"version_id_col": version}

        self.Order: Any = Order
        self.Versioned: Any = Versioned
        with app.app_context():
            self.db.create_all()
            self.db.session.add_all([Order(id=1), Versioned(id=1, stock=10)])
            self.db.session.commit()

    def own(self) -> Session:
        return Session(self.db.engine)

    def lock(self) -> AbstractContextManager[object]:
        return self.locks.lock("product_1")


@pytest.fixture
def shop(
    make_app: Callable[..., Flask], locks: DistLock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stale]:
    # The apps of other tests may live still.
    monkeypatch.setattr(app_state, "_apps", WeakSet())
    shop = Stale(make_app(SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/shop.db", DEBUG=True), locks)
    with shop.app.app_context():
        yield shop
    shop.close()
    shop.app.config["DISTLOCK_STALE_WRITES"] = "off"
    app_state.detect_stale_writes()


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "distlock")
    return lambda: [one.getMessage() for one in caplog.records if "was loaded before" in one.getMessage()]


Told = Callable[[], list[str]]


def test_a_row_that_was_loaded_before_a_block_is_told(shop: Stale, told: Told) -> None:
    with shop.own() as own:
        product = own.get_one(shop.Product, 1)
        with shop.lock():
            product.stock -= 1
            own.commit()
    (message,) = told()
    assert message.startswith("Product 1 was loaded before the lock 'product_1' and is saved under it")
    assert "has written to stock in between" in message
    assert "told: product = own.get_one(shop.Product, 1)" in message
    assert "told: own.commit()" in message
    assert "'db.session.refresh(product)'" in message


def test_a_value_that_was_read_before_a_block_is_told(shop: Stale, told: Told) -> None:
    """The block has the row loaded again where it is read. Nothing reads it."""
    product = shop.db.session.get(shop.Product, 1)
    stock = product.stock
    with shop.lock():
        product.stock = stock - 1
        shop.db.session.commit()
    assert len(told()) == 1


def test_a_row_of_a_hook_is_told_of_a_guard(shop: Stale, told: Told) -> None:
    def load() -> None:
        g.own = shop.own()
        g.product = g.own.get(shop.Product, 1)

    def sell() -> str:
        g.product.stock -= 1
        g.own.commit()
        return "sold"

    shop.app.before_request(load)
    shop.serve(sell)
    assert shop.post().status_code == 200
    (message,) = told()
    assert "load: g.product = g.own.get(shop.Product, 1)" in message
    assert "sell: g.own.commit()" in message


def test_what_the_session_of_the_app_reads_again_is_not_told(shop: Stale, told: Told) -> None:
    product = shop.db.session.get(shop.Product, 1)
    assert product.stock == 10
    with shop.lock():
        product.stock -= 1
        shop.db.session.commit()
    assert not told()


def test_a_view_that_loads_under_its_lock_is_not_told(shop: Stale, told: Told) -> None:
    def sell() -> str:
        shop.sell()
        shop.db.session.commit()
        return "sold"

    shop.serve(sell)
    assert shop.post().status_code == 200
    assert not told()


# -- what is done with an order that was loaded before ----------------------------------------------------


def refreshes(own: Session, order: Any) -> None:
    own.refresh(order)
    order.state = "paid"


def refreshes_an_attribute(own: Session, order: Any) -> None:
    own.refresh(order, ["state"])
    order.state = "paid"


def computes(own: Session, order: Any) -> None:
    order.state = type(order).state + "!"


def notes_a_moment(own: Session, order: Any) -> None:
    order.paid_at = datetime.datetime.now()


def writes_what_nobody_has_read(own: Session, order: Any) -> None:
    order.notes = "fragile"


def makes_another(own: Session, order: Any) -> None:
    made = type(order)(state=order.state)
    own.add(made)
    own.commit()
    made.state = "paid"


@pytest.mark.parametrize(
    "act",
    [
        refreshes,
        refreshes_an_attribute,
        computes,
        notes_a_moment,
        writes_what_nobody_has_read,
        makes_another,
    ],
)
def test_what_is_not_told(shop: Stale, told: Told, act: Callable[[Session, Any], None]) -> None:
    with shop.own() as own:
        order = own.get_one(shop.Order, 1)
        with shop.lock():
            act(own, order)
            own.commit()
    assert not told()


def sets_a_state(order: Any) -> None:
    order.state = "paid"


def reads_and_writes_what_was_deferred(order: Any) -> None:
    order.notes = "fragile"


@pytest.mark.parametrize("act", [sets_a_state, reads_and_writes_what_was_deferred])
def test_what_is_told_once(shop: Stale, told: Told, act: Callable[[Any], None]) -> None:
    with shop.own() as own:
        order = own.get_one(shop.Order, 1)
        assert order.notes == ""
        with shop.lock():
            act(order)
            own.flush()
            order.state = "sent"
            own.commit()
    assert len(told()) == (1 if act is sets_a_state else 2)


def test_an_update_that_names_the_version_is_not_told(shop: Stale, told: Told) -> None:
    with shop.own() as own:
        row = own.get_one(shop.Versioned, 1)
        with shop.lock():
            row.stock -= 1
            own.commit()
    assert not told()


def test_a_row_that_was_made_before_the_lock_is_not_told(shop: Stale, told: Told) -> None:
    with shop.own() as own:
        made = shop.Order()
        own.add(made)
        own.commit()
        assert made.state == "open"
        with shop.lock():
            made.state = "paid"
            own.commit()
    assert not told()


def test_a_race_looks_for_them_without_debug_mode(shop: Stale) -> None:
    shop.app.debug = False
    app_state.detect_stale_writes()
    assert not is_on()

    def sells() -> None:
        with shop.app.app_context(), shop.own() as own:
            product = own.get_one(shop.Product, 1)
            with shop.lock():
                product.stock -= 1
                own.commit()

    with pytest.raises(StaleWrite, match="Product 1 was loaded before the lock 'product_1'"):
        race(sells, times=2, stale_writes="raise")
    assert not is_on()


# -- on and off -------------------------------------------------------------------------------------------


def test_a_setting_makes_it_an_error(shop: Stale) -> None:
    shop.app.config["DISTLOCK_STALE_WRITES"] = "raise"
    with shop.own() as own:
        product = own.get_one(shop.Product, 1)
        with shop.lock():
            product.stock -= 1
            with pytest.raises(StaleWrite, match="Product 1 was loaded before"):
                own.commit()
            own.rollback()
    assert shop.stock() == 10


def is_on() -> bool:
    return event.contains(Mapper, "load", stale_writes._loaded)


def test_outside_of_debug_mode_nothing_listens(shop: Stale, make_app: Callable[..., Flask]) -> None:
    assert is_on()
    shop.app.debug = False
    make_app()
    assert not is_on()
    shop.app.config["DISTLOCK_STALE_WRITES"] = "warn"
    make_app()
    assert is_on()


def test_debug_mode_that_is_set_later_turns_it_on(shop: Stale, make_app: Callable[..., Flask]) -> None:
    shop.app.debug = False
    app = make_app()
    assert not is_on()
    app.debug = True
    app.test_client().get("/")
    assert is_on()
    app.debug = False
    make_app()


def test_a_setting_without_meaning_is_refused(make_app: Callable[..., Flask]) -> None:
    with pytest.raises(ConfigurationError, match='DISTLOCK_STALE_WRITES is True: write "warn", "raise"'):
        make_app(DISTLOCK_STALE_WRITES=True)
