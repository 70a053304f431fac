"""A Flask view that goes on after its commit, when another grant has been there meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.databases import on
from tests.fence.conftest import STOCK
from tests.fence.shops import Answered, FlaskShop, open_shop

Overtake = Callable[[], None]


@pytest.fixture
def shop(engine: Engine, using: str) -> Iterator[Any]:
    with open_shop("flask", engine, using, {"BACKEND": "dummy"}) as shop:
        yield shop


@pytest.fixture
def overtake(engine: Engine) -> Overtake:
    def overtake() -> None:
        with engine.begin() as connection:
            connection.execute(text("UPDATE distlock_fence SET number = number * 2, holder_id = 'other'"))

    return overtake


def stock(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT qty FROM stock")).scalar_one())


def test_the_next_transaction_passes_the_fence_again(shop: FlaskShop, engine: Engine) -> None:
    def view() -> None:
        shop.write(7)
        shop.db.session.commit()
        shop.write(shop.read() - 1)

    shop.serve(view)
    assert shop.post() == Answered(200)
    assert stock(engine) == 6


def test_what_was_overtaken_after_its_commit_may_read_and_its_answer_stands(
    shop: FlaskShop, engine: Engine, overtake: Overtake
) -> None:
    read: list[int] = []
    shop.serve(lambda: shop.write(7))
    shop.after_commit(overtake)
    shop.after_commit(lambda: read.append(shop.read()))
    assert shop.post() == Answered(200)
    assert read == [7]


def test_what_it_writes_then_is_not_committed(shop: FlaskShop, engine: Engine, overtake: Overtake) -> None:
    def view() -> None:
        shop.write(7)
        shop.db.session.commit()
        overtake()
        shop.write(3)

    shop.serve(view)
    assert shop.post() == Answered(503, "lock_lost")
    assert stock(engine) == 7


@on("postgresql", "mariadb")  # In SQLite the reader waits for nobody.
def test_a_row_that_stays_locked_meanwhile_is_the_same(shop: FlaskShop, engine: Engine) -> None:
    read: list[int] = []
    shop.serve(lambda: shop.write(7), timeout=0.3)

    def view() -> None:
        with engine.connect() as later:
            later.execute(text("UPDATE distlock_fence SET holder_id = 'other'"))
            read.append(shop.read())
            shop.db.session.rollback()
            later.rollback()

    shop.after_commit(view)
    assert shop.post() == Answered(200)
    assert read == [7]


def test_a_savepoint_is_no_later_transaction(shop: FlaskShop, engine: Engine) -> None:
    def view() -> None:
        nested = shop.db.session.begin_nested()
        shop.write(3)
        nested.rollback()
        with shop.db.session.begin_nested():
            shop.write(shop.read() - 1)

    shop.serve(view)
    assert shop.post() == Answered(200)
    assert stock(engine) == STOCK - 1
