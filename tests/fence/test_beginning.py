"""A fenced Flask view that writes ``with db.session.begin():``, as it would without the fence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import InvalidRequestError

from tests.fence.conftest import STOCK
from tests.fence.shops import Answered, FlaskShop, open_shop


@pytest.fixture
def shop(engine: Engine, using: str) -> Iterator[Any]:
    with open_shop("flask", engine, using, {"BACKEND": "dummy"}) as shop:
        yield shop


def told(engine: Engine) -> tuple[int, int]:
    """The stock, and the number of the fence."""
    with engine.connect() as connection:
        stock = connection.execute(text("SELECT qty FROM stock")).scalar_one()
        return int(stock), int(
            connection.execute(text("SELECT max(number) FROM distlock_fence")).scalar_one()
        )


def test_a_view_begins_the_transaction_that_has_passed_the_fence(shop: FlaskShop, engine: Engine) -> None:
    def view() -> None:
        with shop.db.session.begin():
            shop.write(shop.read() - 1)

    shop.serve(view)
    assert shop.post() == Answered(200)
    first = told(engine)
    assert shop.post() == Answered(200)
    assert (first[0], told(engine)[0]) == (STOCK - 1, STOCK - 2)
    assert first[1] < told(engine)[1]


def test_what_its_block_raises_rolls_it_back(shop: FlaskShop, engine: Engine) -> None:
    def view() -> object:
        try:
            with shop.db.session.begin():
                shop.write(7)
                raise ValueError
        except ValueError:
            return False

    shop.serve(view)
    assert shop.post() == Answered(409)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT qty FROM stock")).scalar_one() == STOCK


def test_it_begins_once(shop: FlaskShop) -> None:
    def view() -> None:
        shop.db.session.begin()
        with pytest.raises(InvalidRequestError, match="already begun"):
            shop.db.session.begin()
        with shop.db.session.begin_nested():
            shop.write(7)

    shop.serve(view)
    assert shop.post() == Answered(200)


def test_a_savepoint_comes_first_and_a_beginning_after_it_is_too_late(shop: FlaskShop) -> None:
    def view() -> None:
        with shop.db.session.begin_nested():
            shop.write(7)
        with pytest.raises(InvalidRequestError, match="already begun"):
            shop.db.session.begin()

    shop.serve(view)
    assert shop.post() == Answered(200)


def test_the_next_transaction_is_sqlalchemys_own(shop: FlaskShop, engine: Engine) -> None:
    def view() -> None:
        with shop.db.session.begin():
            shop.write(7)
        with shop.db.session.begin():
            shop.write(shop.read() - 1)

    shop.serve(view)
    assert shop.post() == Answered(200)
    assert told(engine)[0] == 6


def test_nothing_of_it_stays_at_the_session(shop: FlaskShop) -> None:
    sessions: list[Any] = []
    shop.serve(lambda: sessions.append(shop.db.session()))
    assert shop.post() == Answered(200)
    assert "begin" not in vars(sessions[0])
