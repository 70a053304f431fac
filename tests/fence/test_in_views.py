"""What a fenced view answers, in both frameworks, on three databases."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import pytest
from django.db import connections
from sqlalchemy import Engine, event, text

from distlock import current_grant
from tests.databases import on
from tests.fence.conftest import STOCK
from tests.fence.shops import Answered, FlaskShop, Shop, open_shop

SOLD = Answered(200)
LOST = Answered(503, "lock_lost")

Open = Callable[..., AbstractContextManager[Shop]]


@pytest.fixture(params=["django", "flask"])
def shop_with(request: pytest.FixtureRequest, engine: Engine, using: str) -> Open:
    """Opens the shop with a setting of its own."""
    return lambda **setting: open_shop(request.param, engine, using, setting)


@pytest.fixture
def shop(shop_with: Open) -> Iterator[Any]:
    with shop_with() as shop:
        yield shop


@contextmanager
def row_locked(engine: Engine) -> Iterator[None]:
    """An earlier holder's transaction that does not end."""
    with engine.connect() as connection:
        connection.execute(text("UPDATE distlock_fence SET holder_id = holder_id"))
        yield
        connection.rollback()


def put_ahead(engine: Engine, epoch: int = 1) -> None:
    """Somebody else has written a larger fence."""
    with engine.begin() as connection:
        ahead = "UPDATE distlock_fence SET epoch = :epoch, number = number + 1000000000, holder_id = 'other'"
        connection.execute(text(ahead), {"epoch": epoch})


def stock(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT qty FROM stock")).scalar_one())


def test_the_view_is_fenced(shop: Shop, engine: Engine) -> None:
    fences: list[tuple[int, int]] = []
    shop.serve(lambda: (shop.write(7), fences.append(current_grant().fence)))
    assert [shop.post(), shop.post()] == [SOLD, SOLD]
    with engine.connect() as connection:
        [stored] = connection.execute(text("SELECT epoch, number FROM distlock_fence"))
    assert fences[0] < fences[1] == tuple(stored)
    assert stock(engine) == 7


def test_the_wait_for_the_row_ends_with_the_time_out(shop: Shop, engine: Engine) -> None:
    runs: list[None] = []
    shop.serve(lambda: runs.append(shop.write(7)), timeout=0.2)
    assert shop.post() == SOLD
    with row_locked(engine):
        assert shop.post() == Answered(423, "lock_contended")
    assert len(runs) == 1


@on("sqlite")  # Elsewhere BEGIN waits for nobody.
def test_a_database_that_lets_nobody_begin_ends_the_wait_too(
    shop_with: Open, engine: Engine, using: str
) -> None:
    """SQLite, with the BEGIN IMMEDIATE that both frameworks recommend."""
    connections.settings[using]["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 0.05}
    connections[using].close()
    del connections[using]
    with shop_with(TIMEOUT=0.3) as shop:
        if isinstance(shop, FlaskShop):
            with shop.app.app_context():
                begins_immediately(shop.db.engine)
        shop.serve(lambda: shop.write(7))
        assert shop.post() == SOLD
        with row_locked(engine):
            assert shop.post() == Answered(423, "lock_contended")
        assert shop.post() == SOLD


def begins_immediately(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def leave_begin_to_us(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA busy_timeout = 50")

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def test_a_lock_that_is_lost_before_commit_undoes_the_view(shop: Shop, engine: Engine) -> None:
    shop.serve(lambda: (shop.write(7), shop.lost()))
    assert shop.post() == LOST
    assert stock(engine) == STOCK
    assert shop.told == ["lock_lost"]


def test_a_lock_that_is_lost_after_commit_leaves_the_answer(
    shop: Shop, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    shop.serve(lambda: (shop.write(7), shop.after_commit(shop.lost)))
    assert shop.post() == SOLD
    assert stock(engine) == 7
    assert shop.told == ["lock_lost"]
    assert "was lost" in caplog.text


def test_what_is_overtaken_is_answered_with_nothing_done(shop_with: Open, engine: Engine) -> None:
    with shop_with(BACKEND="dummy") as shop:
        shop.serve(partial(shop.write, 7))
        assert shop.post() == SOLD
        with engine.begin() as connection:
            connection.execute(text("UPDATE distlock_fence SET number = number * 2"))
            connection.execute(text("UPDATE stock SET qty = 3"))
        assert shop.post() == LOST
        assert stock(engine) == 3


def test_a_fence_that_fell_behind_is_lifted_and_told(
    shop: Shop, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    shop.serve(lambda: shop.write(7))
    assert shop.post() == SOLD
    put_ahead(engine)
    assert [shop.post(), shop.post()] == [SOLD, SOLD]
    assert shop.told == ["fence_lifted"]
    assert "was lifted to" in caplog.text


def test_a_lowered_era_says_so_in_the_log(
    shop_with: Open, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    with shop_with(FENCE_EPOCH=2) as shop:
        shop.serve(partial(shop.write, 7))
        assert shop.post() == SOLD
    with shop_with(FENCE_EPOCH=1) as shop:
        shop.serve(partial(shop.write, 3))
        assert shop.post() == LOST
    [record] = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert "DISTLOCK's FENCE_EPOCH" in record.getMessage()
    assert stock(engine) == 7
