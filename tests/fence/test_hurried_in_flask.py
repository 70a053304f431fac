"""A site's own limit on statements, shorter than TIMEOUT, ends the wait for the row: a 423 that says so."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine, text

from tests.databases import on
from tests.fence.rows import row_of
from tests.fence.shops import Answered, FlaskShop, open_shop
from tests.fence.test_hurried_statements import INSERT

LIMITS = {
    "postgresql": ("statement_timeout", {"options": "-c statement_timeout=200"}),
    "mysql": ("max_statement_time", {"init_command": "SET SESSION max_statement_time = 0.2"}),
}


@pytest.fixture(params=["a lock service", "rows"])
def shop(request: pytest.FixtureRequest, engine: Engine, using: str) -> Iterator[FlaskShop]:
    hurried = create_engine(engine.url.update_query_dict(LIMITS[engine.dialect.name][1]))
    rows = {"BACKEND": "database", "LOCATION": "default"} if request.param == "rows" else {"FENCE": True}
    with open_shop("flask", hurried, using, rows) as shop:
        assert isinstance(shop, FlaskShop)
        yield shop


@on("postgresql", "mariadb")  # SQLite has no such limit.
@pytest.mark.parametrize("sold_before", [True, False], ids=["a row", "no row yet"])
def test_a_limit_of_the_site_that_ends_the_wait_is_a_423_that_says_so(
    shop: FlaskShop, engine: Engine, sold_before: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    setting, _ = LIMITS[engine.dialect.name]
    shop.serve(lambda: shop.write(7), fence=None)
    if sold_before:
        assert shop.post() == Answered(200)
    lock = "UPDATE distlock_fence SET holder_id = 'other'" if sold_before else INSERT
    with engine.connect() as earlier:
        earlier.execute(text(lock), {} if sold_before else {"id": row_of("shop", "product_1")})
        assert shop.post() == Answered(423, "lock_contended")
        earlier.rollback()
    assert f"as a {setting} shorter than TIMEOUT does" in caplog.text
    assert shop.post() == Answered(200)
