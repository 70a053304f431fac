"""The transaction ends before the view does: what comes after it passes the fence, or is not committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

import flask_distlock
from tests.fence.conftest import STOCK, write_row
from tests.fence.shops import Answered, FlaskShop, open_shop


def stock(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT qty FROM stock")).scalar_one())


@pytest.fixture
def row_shop(engine: Engine, using: str) -> Iterator[Any]:
    """The lock is the row, which every end of a transaction lets go."""
    with open_shop("flask", engine, using, {"BACKEND": "database", "LOCATION": "default"}) as shop:
        yield shop


@pytest.mark.parametrize("end", ["rollback", "close", "remove"])
def test_a_rollback_in_the_view_lets_the_row_go_and_who_takes_it_is_not_overwritten(
    row_shop: FlaskShop, engine: Engine, end: str
) -> None:
    def view() -> None:
        left = row_shop.read()
        getattr(row_shop.db.session, end)()
        sell_elsewhere(engine)
        row_shop.write(left - 1)

    row_shop.serve(view, fence=None)
    assert row_shop.post() == Answered(503, "lock_lost")
    assert stock(engine) == STOCK - 1


def sell_elsewhere(engine: Engine) -> None:
    """What a guard on another server does, which begins with the same number."""
    write_row(engine, 1, "other", "UPDATE stock SET qty = qty - 1")


def test_if_nobody_takes_it_the_view_goes_on(row_shop: FlaskShop, engine: Engine) -> None:
    def view() -> None:
        left = row_shop.read()
        row_shop.db.session.rollback()
        row_shop.write(left - 1)

    row_shop.serve(view, fence=None)
    assert [row_shop.post(), row_shop.post()] == [Answered(200)] * 2
    assert stock(engine) == STOCK - 2


@pytest.fixture
def shop(engine: Engine, using: str) -> Iterator[Any]:
    with open_shop("flask", engine, using, {"BACKEND": "dummy", "TIMEOUT": 5}) as shop:
        yield shop


def overtake(engine: Engine) -> None:
    write_row(engine, 2**60)


@pytest.mark.parametrize("end", ["commit", "rollback", "close", "remove"])
def test_the_session_that_comes_after_it_passes_the_fence_too(
    shop: FlaskShop, engine: Engine, end: str
) -> None:
    def view() -> None:
        shop.read()
        getattr(shop.db.session, end)()
        overtake(engine)
        shop.write(3)

    shop.serve(view)
    assert shop.post() == Answered(503, "lock_lost")
    assert stock(engine) == STOCK


def test_a_removed_session_is_no_reason_to_refuse(shop: FlaskShop, engine: Engine) -> None:
    def view() -> None:
        shop.read()
        shop.db.session.remove()
        shop.write(3)

    shop.serve(view)
    assert [shop.post(), shop.post()] == [Answered(200)] * 2
    assert stock(engine) == 3
    # Nothing of it keeps the row locked.
    overtake(engine)


@pytest.mark.parametrize("when", ["before it", "after it"])
def test_behind_a_guard_inside_it_a_view_is_still_fenced(shop: FlaskShop, engine: Engine, when: str) -> None:
    @flask_distlock.distributed_lock("audit_1", fence=True)
    def audit() -> None:
        shop.write(6)
        shop.db.session.commit()

    def view() -> None:
        shop.write(7)
        shop.db.session.commit()
        if when == "before it":
            overtake(engine)
        audit()
        overtake(engine)
        shop.write(3)

    shop.serve(view)
    assert shop.post() == Answered(503, "lock_lost")
    assert stock(engine) == (7 if when == "before it" else 6)


def test_objects_from_before_the_lock_are_read_anew(engine: Engine, using: str) -> None:
    """Also those of a session that keeps what it knows over a COMMIT."""
    with open_shop("flask", engine, using, {"BACKEND": "dummy"}) as shop:
        assert isinstance(shop, FlaskShop)
        shop.db.session.session_factory.configure(expire_on_commit=False)

        class Stock(shop.db.Model):  # type: ignore[name-defined, misc]
            id = shop.db.Column(shop.db.Integer, primary_key=True)
            qty = shop.db.Column(shop.db.Integer)

        loaded: list[Any] = []

        def load_user() -> None:
            loaded.append(shop.db.session.get(Stock, 1))
            shop.db.session.commit()
            with engine.begin() as elsewhere:
                elsewhere.execute(text("UPDATE stock SET qty = qty - 1"))

        def view() -> None:
            shop.db.session.get(Stock, 1).qty -= 1

        shop.app.before_request(load_user)
        shop.serve(view)
        assert [shop.post(), shop.post()] == [Answered(200)] * 2
        assert stock(engine) == STOCK - 4
