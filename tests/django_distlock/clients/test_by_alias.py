from __future__ import annotations

from typing import Any

from django_distlock import locks


def test_the_handler_is_the_default_alias(settings: Any) -> None:
    settings.DISTLOCK = {"default": {"BACKEND": "memory"}, "other": {"LOCATION": "memory://other"}}
    with locks.lock("product_1"):
        assert locks["default"].lock("product_1").locked()
        assert not locks["other"].lock("product_1").locked()


def test_the_handler_makes_reentrant_locks() -> None:
    lock = locks.rlock("product_1")
    with lock, lock:
        assert locks.lock("product_1").locked()
    assert not locks.lock("product_1").locked()


def test_closed_clients_are_made_anew() -> None:
    before = locks["default"]
    locks.close_all()
    assert locks["default"] is not before
