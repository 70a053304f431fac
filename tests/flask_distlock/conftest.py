from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from flask import Flask

from flask_distlock import DistLock

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
