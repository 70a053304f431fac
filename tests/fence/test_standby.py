"""``"ON_BACKEND_DOWN": "run"``: the lock service is away, and fenced views queue at the row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from sqlalchemy import Engine, text

from distlock import Fence, current_grant
from tests.fence.conftest import STOCK
from tests.fence.selling import sell, sold_by
from tests.fence.shops import Answered, Shop, open_shop
from tests.redis_server import RedisServer, own_server

__all__ = ["own_server"]

Open = Callable[..., AbstractContextManager[Shop]]


@pytest.fixture(params=["django", "flask"])
def shop_with(request: pytest.FixtureRequest, engine: Engine, using: str) -> Open:
    fence = using if request.param == "django" else True
    setting: dict[str, Any] = {"LOCATION": "redis://127.0.0.1:1", "ON_BACKEND_DOWN": "run", "FENCE": fence}
    return lambda **other: open_shop(request.param, engine, using, setting | other)


@pytest.fixture
def shop(shop_with: Open) -> Iterator[Shop]:
    with shop_with() as shop:
        yield shop


def test_no_piece_is_sold_twice_and_each_time_it_is_logged(
    shop: Shop, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    sell(shop, fence=None)
    assert sold_by(shop) == STOCK
    with engine.connect() as connection:
        assert connection.execute(text("SELECT qty FROM stock")).scalar_one() == 0
    said = [one.getMessage() for one in caplog.records if "is the fence's row this time" in one.getMessage()]
    assert len(said) > STOCK
    assert "'product_1'" in said[0]


def test_a_view_without_a_fence_is_refused(shop: Shop) -> None:
    shop.serve(lambda: pytest.fail("ran"), fence=False)
    assert shop.post() == Answered(503, "lock_backend_unavailable")


def test_a_row_that_stays_locked_ends_the_wait(shop: Shop, engine: Engine) -> None:
    shop.serve(lambda: shop.write(7), timeout=0.3)
    assert shop.post() == Answered(200)
    with engine.connect() as connection:
        connection.execute(text("UPDATE distlock_fence SET holder_id = holder_id"))
        assert shop.post() == Answered(423, "lock_contended")
        connection.rollback()


def test_fences_grow_over_an_outage_without_an_alarm(shop_with: Open, own_server: RedisServer) -> None:
    fences: list[Fence] = []
    with shop_with(LOCATION=own_server.url) as shop:
        shop.serve(lambda: fences.append(current_grant().fence))
        own_server.client.ping()
        assert [shop.post(), shop.post()] == [Answered(200)] * 2
        own_server.kill()
        assert [shop.post(), shop.post()] == [Answered(200)] * 2
        own_server.start()
        assert [shop.post(), shop.post()] == [Answered(200)] * 2
        assert fences == sorted(set(fences))
        assert fences[3].number == fences[2].number + 1 == fences[1].number + 2
        assert "fence_lifted" not in shop.told
