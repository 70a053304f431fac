"""What only a framework's settings and guards give: an app of Flask around a test's own code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeVar

from flask import Flask

import distlock
from flask_distlock import DistLock, distributed_lock
from flask_distlock.operate import locks_blueprint

T = TypeVar("T")


def site_locks(settings: object) -> distlock.Locks:
    """Return the client of an app with the setting ``DISTLOCK = settings``."""
    app = Flask("site")
    app.config["DISTLOCK"] = settings
    locks = DistLock(app)
    with app.app_context():
        return locks["default"]


def dummy_locks(**settings: object) -> distlock.Locks:
    """Return the client of an app whose locking is switched off; *settings* are those of its alias."""
    return site_locks({"default": {"BACKEND": "dummy", **settings}})


def page_of_lock(settings: dict[str, object], name: str) -> str:
    """Return what the page of operators says of the lock *name*. *settings*: those of the alias."""
    app = Flask("operated")
    app.config["DISTLOCK"] = {"default": settings}
    locks = DistLock(app)
    app.register_blueprint(locks_blueprint(allowed=lambda: True))
    with app.app_context(), closing(locks):
        answer = app.test_client().get("/locks/lock", query_string={"alias": "default", "name": name})
    assert answer.status_code == 200
    return answer.text


def guarded_site(
    work: Callable[[], T], name: str, settings: dict[str, object], **words: Any
) -> tuple[distlock.Locks, Callable[[], T]]:
    """Return the client of an app, and what calls *work* there under a guard on *name*."""
    app = Flask("guarded")
    app.config["DISTLOCK"] = {"default": settings}
    locks = DistLock(app)

    @distributed_lock(name, **words)
    def call() -> T:
        return work()

    def in_app() -> T:
        with app.app_context():
            return call()

    with app.app_context():
        return locks["default"], in_app


def guarded(work: Callable[[], T], name: str, settings: dict[str, object], **words: Any) -> T:
    """Return what *work* returns under a guard on *name*. *settings*: those of the alias."""
    locks, call = guarded_site(work, name, settings, **words)
    with closing(locks):
        return call()
