"""The transaction ends before the view does: what comes after it passes the fence, or is not committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.fence.conftest import STOCK
from tests.fence.shops import Answered, FlaskShop, open_shop


def stock(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT qty FROM stock")).scalar_one())


@pytest.fixture
def row_shop(engine: Engine, using: str) -> Iterator[Any]:
    """The lock is the row, which every end of a transaction lets go."""
    with open_shop("flask", engine, using, {"BACKEND": "database", "LOCATION": "default"}) as shop:
        yield shop


@pytest.mark.parametrize("end", ["rollback", "close"])
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
    """What a guard on another server does."""
    with engine.begin() as connection:
        connection.execute(text("UPDATE distlock_fence SET era = 1, number = number + 1, token = 'other'"))
        connection.execute(text("UPDATE stock SET qty = qty - 1"))


def test_if_nobody_takes_it_the_view_goes_on(row_shop: FlaskShop, engine: Engine) -> None:
    def view() -> None:
        left = row_shop.read()
        row_shop.db.session.rollback()
        row_shop.write(left - 1)

    row_shop.serve(view, fence=None)
    assert [row_shop.post(), row_shop.post()] == [Answered(200)] * 2
    assert stock(engine) == STOCK - 2
