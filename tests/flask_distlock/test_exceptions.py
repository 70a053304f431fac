from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from flask import Blueprint, Flask
from werkzeug.exceptions import Conflict, HTTPException, Locked, ServiceUnavailable, TooManyRequests

from distlock.errors import LockLost, LockTimeout
from flask_distlock import DistLock, distributed_lock


def contend(app: Flask, locks: DistLock) -> str:
    @app.post("/product/<int:id>")
    @distributed_lock("product_<id>", timeout=0)
    def buy(id: int) -> str:
        return "sold"

    with app.app_context(), locks.lock("product_1"):
        return app.test_client().post("/product/1").text


@pytest.mark.parametrize(
    ("status", "handled"),
    [
        (423, 423), (423, Locked), (423, HTTPException), (423, Exception),
        (409, 409), (409, Conflict),
        (429, 429), (429, TooManyRequests),
        (503, 503), (503, ServiceUnavailable),
    ],
)  # fmt: skip
def test_the_sites_own_error_handler_answers(
    make_app: Callable[..., Flask], locks: DistLock, status: int, handled: type[Exception] | int
) -> None:
    app = make_app(DISTLOCK_CONTENDED_STATUS=status)
    app.register_error_handler(handled, lambda error: f"mine: {error.code} {error.answer.code}")
    assert contend(app, locks) == f"mine: {status} lock_contended"


def test_a_handler_for_another_status_does_not(make_app: Callable[..., Flask], locks: DistLock) -> None:
    app = make_app()
    app.register_error_handler(409, lambda error: "mine")
    assert "lock_contended" in contend(app, locks)


def test_the_handler_of_a_blueprint_answers(app: Flask, locks: DistLock) -> None:
    shop = Blueprint("shop", __name__)
    shop.register_error_handler(423, lambda error: "the shop's")

    @shop.post("/product/<int:id>")
    @distributed_lock("product_<id>", timeout=0)
    def buy(id: int) -> str:
        return "sold"

    app.register_blueprint(shop)
    with app.app_context(), locks.lock("product_1"):
        assert app.test_client().post("/product/1").text == "the shop's"


def test_a_lock_that_a_view_takes_by_itself_reaches_the_same_handler(app: Flask, locks: DistLock) -> None:
    app.register_error_handler(423, lambda error: f"mine: {type(error.__cause__).__name__}")

    @app.post("/product/<int:id>")
    def buy(id: int) -> str:
        with locks.lock("product_1", timeout=0):
            return "sold"

    with app.app_context(), locks.lock("product_1"):
        assert app.test_client().post("/product/1").text == f"mine: {LockTimeout.__name__}"


def test_a_lock_that_a_view_lost_by_itself_is_logged_as_an_error(
    app: Flask, caplog: pytest.LogCaptureFixture
) -> None:
    @app.post("/product/<int:id>")
    def buy(id: int) -> str:
        raise LockLost("gone")

    assert app.test_client().post("/product/1").status_code == 503
    (line,) = (record for record in caplog.records if record.message == "buy answered 503: gone")
    assert line.levelno == logging.ERROR


def test_the_site_may_handle_lock_errors_itself(app: Flask, locks: DistLock) -> None:
    app.register_error_handler(LockTimeout, lambda error: "all mine")

    @app.post("/product/<int:id>")
    def buy(id: int) -> str:
        with locks.lock("product_1", timeout=0):
            return "sold"

    with app.app_context(), locks.lock("product_1"):
        assert app.test_client().post("/product/1").text == "all mine"
