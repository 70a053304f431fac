"""What a fenced view with ``mode="shared"`` answers, in both frameworks, on three databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine

from distlock import current_grant
from tests.databases import on
from tests.fence.conftest import STOCK, write_row
from tests.fence.shops import Answered, Shop, open_shop
from tests.fence.test_in_views import LOST, SOLD, put_ahead
from tests.fence.test_readers import passages

REFUSED = Answered(409)


@pytest.fixture(params=["django", "flask"])
def shop(request: pytest.FixtureRequest, engine: Engine, using: str) -> Iterator[Any]:
    with open_shop(request.param, engine, using, {}) as shop:
        yield shop


def reads(shop: Shop, body: Callable[[], object]) -> None:
    shop.serve(body, mode="shared", methods=["POST"])


def test_a_reader_writes_no_row(shop: Shop, engine: Engine) -> None:
    seen: list[int] = []
    reads(shop, lambda: seen.append(shop.read()))
    assert [shop.post(), shop.post()] == [SOLD, SOLD]
    assert seen == [STOCK, STOCK]
    assert passages(engine) == []


def test_a_reader_has_the_number_of_the_writer_before_it(shop: Shop, engine: Engine) -> None:
    write_row(engine, 5)
    before = passages(engine)
    numbers: list[int] = []
    reads(shop, lambda: numbers.append(current_grant().fence.number))
    # The lock service has lost its data: it is told where the database is.
    assert [shop.post(), shop.post()] == [SOLD, SOLD]
    assert shop.told == ["fence_lifted"]
    assert min(numbers) > 5
    assert passages(engine) == before
    put_ahead(engine)
    assert shop.post() == SOLD


@on("postgresql", "mariadb")
@pytest.mark.parametrize("commits", [True, False], ids=["commits", "answers only"])
def test_a_reader_that_a_writer_came_before_is_answered_with_503(
    shop: Shop, engine: Engine, commits: bool
) -> None:
    def body() -> bool:
        assert shop.read() == STOCK
        write_row(engine, 10**15, "other", "UPDATE stock SET qty = 7")
        shop.read()
        return commits

    reads(shop, body)
    assert shop.post() == LOST


def test_a_reader_that_answers_only_is_let_go(shop: Shop, engine: Engine) -> None:
    reads(shop, lambda: shop.read() < 0)
    assert [shop.post(), shop.post()] == [REFUSED, REFUSED]
    write_row(engine, 5)


def test_a_lost_lock_is_told_before_commit(shop: Shop) -> None:
    reads(shop, lambda: (shop.read(), shop.lost()))
    assert shop.post() == LOST
