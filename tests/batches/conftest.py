from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from tests.batches.django_line import DjangoLine, Line
from tests.batches.flask_line import FlaskLine
from tests.fence.conftest import database, engine, using
from tests.fence.shops import DjangoShop, FlaskShop, open_shop
from tests.redis_server import redis_server

__all__ = ["database", "engine", "redis_server", "using"]


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn lasts as long as a busy machine may take."""
    monkeypatch.setattr("distlock.engine.hold.TURN", 60.0)
    monkeypatch.setattr("distlock.engine.wait_queue.TURN", 60.0)


@pytest.fixture
def line(engine: Engine, using: str, unhurried: None) -> Iterator[DjangoLine]:
    """A shop in Django, and requests that stand in line for its one product."""
    with open_shop("django", engine, using, {}) as shop:
        assert isinstance(shop, DjangoShop)
        yield DjangoLine(shop, engine)


@pytest.fixture(params=["django", "flask"])
def any_line(request: pytest.FixtureRequest, engine: Engine, using: str, unhurried: None) -> Iterator[Line]:
    """In each framework."""
    with open_shop(request.param, engine, using, {}) as shop:
        yield FlaskLine(shop, engine) if isinstance(shop, FlaskShop) else DjangoLine(shop, engine)
