"""What only a framework's settings and guards give: an app of Flask around a test's own code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

from flask import Flask

import distlock
from flask_distlock import DistLock, distributed_lock

T = TypeVar("T")


def dummy_locks(**settings: object) -> distlock.Locks:
    """Return the client of an app whose locking is switched off; *settings* are those of its alias."""
    app = Flask("dummy")
    app.config["DISTLOCK"] = {"default": {"BACKEND": "dummy", **settings}}
    locks = DistLock(app)
    with app.app_context():
        return locks["default"]


def guarded(work: Callable[[], T], name: str, settings: dict[str, object], **words: Any) -> T:
    """Return what *work* returns under a guard on *name*. *settings*: those of the alias."""
    app = Flask("guarded")
    app.config["DISTLOCK"] = {"default": settings}
    locks = DistLock(app)

    @distributed_lock(name, **words)
    def call() -> T:
        return work()

    with app.app_context(), closing(locks):
        return call()
