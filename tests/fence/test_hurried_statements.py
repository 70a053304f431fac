"""A site's own limit on statements, shorter than TIMEOUT, ends the wait for the row: a 423 that says so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections
from sqlalchemy import Engine, text

from distlock.errors import LockTimeout
from django_distlock import distributed_lock
from tests.databases import on
from tests.fence.conftest import ALIAS
from tests.fence.rows import row_of
from tests.fence.shops import Answered, DjangoShop, open_shop

#: What the site has set, and how.
LIMITS = {
    "postgresql": ("statement_timeout", {"options": "-c statement_timeout=200"}),
    "mariadb": ("max_statement_time", {"init_command": "SET SESSION max_statement_time = 0.2"}),
}

INSERT = """
    INSERT INTO distlock_fence (id, namespace, name, epoch, number, holder_id, passed_at)
    VALUES (:id, 'shop', 'product_1', 0, 0, '', 0)
"""


@pytest.fixture(params=["a lock service", "rows"])
def shop(request: pytest.FixtureRequest, database: str, engine: Engine, using: str) -> Iterator[DjangoShop]:
    connections[using].close()
    connections.settings[using]["OPTIONS"] |= LIMITS[engine.dialect.name.replace("mysql", "mariadb")][1]
    del connections[using]
    rows = {"BACKEND": "database", "LOCATION": ALIAS}
    with open_shop("django", engine, using, rows if request.param == "rows" else {}) as shop:
        assert isinstance(shop, DjangoShop)
        yield shop


@pytest.mark.fault("F35")
@on("postgresql", "mariadb")  # SQLite has no such limit.
@pytest.mark.parametrize("sold_before", [True, False], ids=["a row", "no row yet"])
def test_a_limit_of_the_site_that_ends_the_wait_is_a_423_that_says_so(
    shop: DjangoShop, engine: Engine, sold_before: bool
) -> None:
    setting, _ = LIMITS[engine.dialect.name.replace("mysql", "mariadb")]
    shop.serve(lambda: shop.write(shop.read() - 1))
    if sold_before:
        assert shop.post() == Answered(200)
    lock = "UPDATE distlock_fence SET holder_id = 'other'" if sold_before else INSERT
    with engine.connect() as earlier:
        earlier.execute(text(lock), {} if sold_before else {"id": row_of("shop", "product_1")})
        assert shop.post() == Answered(423, "lock_contended")
        guard = distributed_lock("product_1", fence=shop.using)
        with pytest.raises(LockTimeout, match=f"as a {setting} shorter than TIMEOUT does"):
            guard(lambda: None)()
        earlier.rollback()
    assert shop.post() == Answered(200)
