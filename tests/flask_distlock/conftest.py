from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from flask_distlock import DistLock
from tests.databases import Databases
from tests.flask_distlock.sql.sales import Open, Store
from tests.flask_distlock.sql.session_shop import Call, Shop

numbers = itertools.count()


@pytest.fixture
def locks() -> DistLock:
    return DistLock()


@pytest.fixture
def make_app(locks: DistLock) -> Iterator[Callable[..., Flask]]:
    """Apps that `locks` serves, each with a lock service of its own; their errors reach the test."""
    apps: list[Flask] = []

    def make(**config: object) -> Flask:
        app = Flask(__name__)
        app.config.from_mapping({"DISTLOCK": f"memory://flask{next(numbers)}", "TESTING": True, **config})
        locks.init_app(app)
        apps.append(app)
        return app

    yield make
    for app in apps:
        with app.app_context():
            locks.close()


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app()


@pytest.fixture
def shop(make_app: Callable[..., Flask], locks: DistLock, tmp_path: Path) -> Iterator[Shop]:
    """On SQLite; it notes what is committed."""
    shop = Shop(make_app(SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/shop.db"), locks)
    yield shop
    shop.close()


@pytest.fixture
def sell(shop: Shop) -> Call:
    return shop.sell


@pytest.fixture
def open_store(databases: Databases, locks: DistLock, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens stores on real databases, by their kind; their errors reach the test."""
    stores: list[Store] = []
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_")

    def open_store(kind: str, **setting: Any) -> Store:
        store = Store(databases(kind, name), locks, **setting)
        store.app.testing = True
        stores.append(store)
        return store

    yield open_store
    for store in stores:
        store.close()
