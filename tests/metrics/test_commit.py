"""The time to COMMIT has the COMMIT in it: on a PostgreSQL that takes its time then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections
from sqlalchemy import Engine, text

from distlock import clock
from tests.databases import on
from tests.fence.conftest import database, engine, using
from tests.fence.shops import Answered, Shop, open_shop
from tests.metrics.test_prometheus import value

__all__ = ["database", "engine", "using"]

#: Seconds, and a bucket of the histogram.
COMMIT_TAKES = 0.05
SLOW = f"""
CREATE OR REPLACE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_sleep({COMMIT_TAKES});
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER at_commit AFTER UPDATE ON stock DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION slowly()
"""


@pytest.fixture(params=["fence", "no fence"])
def fenced(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "fence")


@pytest.fixture(params=["django", "flask"])
def shop(request: pytest.FixtureRequest, engine: Engine, using: str, fenced: bool) -> Iterator[Any]:
    with engine.begin() as connection:
        connection.execute(text(SLOW))
    # With a fence a guard has a transaction of its own.
    connections.settings[using]["ATOMIC_REQUESTS"] = not fenced
    with open_shop(request.param, engine, using, {"METRICS": "prometheus"}) as shop:
        yield shop


@on("postgresql")
def test_a_commit_that_takes_long_is_in_the_time_to_commit(shop: Shop, fenced: bool) -> None:
    in_view = 0.0

    def sell() -> None:
        nonlocal in_view
        began = clock.now()
        shop.write(7)
        in_view = clock.now() - began

    def measured(suffix: str, **labels: str) -> float:
        return value(f"distlock_commit_seconds_{suffix}", alias="default", **labels)

    shop.serve(sell, **({} if fenced else {"fence": False}))
    # The first one connects, too.
    assert shop.post() == Answered(200)
    count, total, quick = measured("count"), measured("sum"), measured("bucket", le=str(COMMIT_TAKES))
    assert shop.post() == Answered(200)
    assert measured("count") == count + 1
    assert measured("sum") - total >= in_view + COMMIT_TAKES
    assert measured("bucket", le=str(COMMIT_TAKES)) == quick
