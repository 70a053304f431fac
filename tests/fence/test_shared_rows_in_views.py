"""Views and blocks that read under a lock which is a row, in both frameworks, on real databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.checks import run_checks
from sqlalchemy import Engine

import django_distlock
from distlock import Locks, current_grant
from distlock.errors import ConfigurationError, LockTimeout
from tests.databases import on
from tests.fence.conftest import STOCK, write_row
from tests.fence.shops import Answered, DjangoShop, FlaskShop, open_shop
from tests.fence.test_in_views import LOST, SOLD
from tests.fence.test_line_of_a_row import holding
from tests.fence.test_readers import passages

BOTH = on("postgresql", "mariadb")
CONTENDED = Answered(423, "lock_contended")


@pytest.fixture(params=["django", "flask"])
def shop(request: pytest.FixtureRequest, engine: Engine, using: str) -> Iterator[DjangoShop | FlaskShop]:
    location = using if request.param == "django" else "default"
    with open_shop(request.param, engine, using, {"BACKEND": "database", "LOCATION": location}) as shop:
        yield shop


def reads(shop: DjangoShop | FlaskShop, body: Callable[[], object], **words: Any) -> None:
    shop.serve(body, mode="shared", methods=["POST"], **words)


@contextmanager
def locks_of(shop: DjangoShop | FlaskShop) -> Iterator[Locks]:
    if isinstance(shop, DjangoShop):
        yield django_distlock.locks["default"]
        return
    with shop.app.app_context():
        yield shop.locks["default"]


@BOTH
def test_views_read_beside_each_other_write_nothing_and_keep_writers_out(
    shop: DjangoShop | FlaskShop, engine: Engine
) -> None:
    write_row(engine, 5)
    before = passages(engine)
    numbers: list[int] = []

    def body() -> None:
        numbers.append(current_grant().fence.number)
        with pytest.raises(LockTimeout), holding(engine, "lock", 0.05):
            raise AssertionError("it writes")
        assert shop.read() == STOCK

    reads(shop, body)
    with holding(engine, "read_lock"):
        assert shop.post() == SOLD
    assert (numbers, passages(engine)) == ([5], before)


@BOTH
def test_a_view_that_a_writer_keeps_out_is_answered_with_423(
    shop: DjangoShop | FlaskShop, engine: Engine
) -> None:
    write_row(engine, 5)
    reads(shop, pytest.fail, timeout=0.05)
    with holding(engine, "lock"):
        assert shop.post() == CONTENDED


@BOTH
def test_a_view_without_a_row_is_answered_with_503_if_the_first_writer_comes_meanwhile(
    shop: DjangoShop | FlaskShop, engine: Engine
) -> None:
    reads(shop, lambda: write_row(engine, 1))
    assert shop.post() == LOST


@BOTH
def test_what_a_view_without_a_row_reads_after_its_commit_is_not_looked_at_again(
    shop: DjangoShop | FlaskShop, engine: Engine
) -> None:
    def after_commit() -> None:
        write_row(engine, 1)
        assert shop.read() == STOCK

    def body() -> None:
        assert shop.read() == STOCK
        shop.after_commit(after_commit)

    reads(shop, body)
    assert shop.post() == SOLD


@BOTH
def test_a_block_is_a_transaction_and_reads_again_inside_its_own_write(
    shop: DjangoShop | FlaskShop, engine: Engine
) -> None:
    write_row(engine, 5)
    with locks_of(shop) as locks:
        with locks.lock("product_1") as grant, locks.read_lock("product_1") as again:
            assert again is grant
            assert shop.read() == STOCK
        with (
            locks.read_lock("product_1") as grant,
            locks.read_lock("product_1"),
            pytest.raises(ConfigurationError),
            locks.lock("product_1"),
        ):
            raise AssertionError("it writes inside its own read")
        assert grant.fence.number >= 5
    with holding(engine, "lock", 0.05) as (_, held):
        assert held.fence.number == grant.fence.number + 1


@BOTH
def test_a_block_reads_again_inside_a_guard_on_its_name(shop: DjangoShop | FlaskShop) -> None:
    told: list[object] = []

    def body() -> None:
        with locks_of(shop) as locks, locks.read_lock("product_1") as again:
            told.append(again is current_grant())

    shop.serve(body)
    assert (shop.post(), told) == (SOLD, [True])


@on("sqlite")
def test_sqlite_is_refused_before_the_first_request_and_by_it(shop: DjangoShop | FlaskShop) -> None:
    message = "Rows of SQLite can't be locks that readers share"
    reads(shop, pytest.fail)
    if isinstance(shop, DjangoShop):
        assert any(message in str(found.msg) and found.id == "distlock.E013" for found in run_checks())
    else:
        with pytest.raises(ConfigurationError, match=message):
            shop.locks.check(shop.app)
    with pytest.raises(ConfigurationError, match=message):
        shop.post()
