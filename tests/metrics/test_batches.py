"""Requests that share a transaction: each counts, with its own wait and the COMMIT that it shared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from tests.batches.conftest import unhurried
from tests.batches.django_line import Answer, DjangoLine, Line
from tests.batches.flask_line import FlaskLine
from tests.databases import on
from tests.fence.conftest import STOCK, database, engine, using
from tests.fence.shops import FlaskShop, open_shop
from tests.metrics.test_prometheus import value

__all__ = ["database", "engine", "unhurried", "using"]


@pytest.fixture(params=["django", "flask"])
def line(request: pytest.FixtureRequest, engine: Engine, using: str, unhurried: None) -> Iterator[Line]:
    with open_shop(request.param, engine, using, {"METRICS": "prometheus"}) as shop:
        yield FlaskLine(shop, engine) if isinstance(shop, FlaskShop) else DjangoLine(shop, engine)


def measured(name: str, line: Line, **labels: str) -> float:
    where = f"{type(line).__module__}.{type(line).__qualname__}.serve.<locals>.sell"
    return value(f"distlock_{name}", alias="default", where=where, **labels)


@on("postgresql")
def test_each_request_of_a_batch_counts(line: Line) -> None:
    line.serve({})
    with line.standing("a", "b", "c") as answers:
        assert measured("waiting", line) == 3
    assert answers == dict.fromkeys("abc", Answer(200))
    assert line.left() == STOCK - 3
    assert measured("acquisitions_total", line, result="granted") == 3
    for name in ("wait", "commit", "held"):
        assert measured(f"{name}_seconds_count", line) == 3, name
    assert measured("waiting", line) == measured("holding", line) == 0
