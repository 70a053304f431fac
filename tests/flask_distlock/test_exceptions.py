from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from flask import Blueprint, Flask
from werkzeug.exceptions import Conflict, HTTPException, Locked, ServiceUnavailable, TooManyRequests

from distlock.errors import LockError, LockLost, LockTimeout
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

    with app.app_context():
        grant = locks.lock("product_1").acquire()
        assert grant is not None
        assert app.test_client().post("/product/1").text == f"mine: {LockTimeout.__name__}"
        grant.release()


def test_a_lock_that_a_view_lost_by_itself_is_logged_as_an_error(
    app: Flask, caplog: pytest.LogCaptureFixture
) -> None:
    @app.post("/product/<int:id>")
    def buy(id: int) -> str:
        raise LockLost("gone")

    assert app.test_client().post("/product/1").status_code == 503
    (line,) = (record for record in caplog.records if record.message == "buy answered 503: gone")
    assert line.levelno == logging.ERROR


def test_a_lock_that_was_lost_inside_its_block_is_no_invitation_to_try_again(
    app: Flask, locks: DistLock
) -> None:
    @app.post("/product/<int:id>")
    def buy(id: int) -> str:
        with locks.lock(f"product_{id}"):
            # What it has done may stand, and its lock is gone.
            locks["default"].close()
        return "sold"

    answer = app.test_client().post("/product/1")
    assert (answer.status_code, b'"lock_lost_inside"' in answer.data) == (500, True)
    assert "Retry-After" not in answer.headers


def test_the_site_may_handle_lock_errors_itself(app: Flask, locks: DistLock) -> None:
    app.register_error_handler(LockTimeout, lambda error: "all mine")

    @app.post("/product/<int:id>")
    def buy(id: int) -> str:
        with locks.lock("product_1", timeout=0):
            return "sold"

    with app.app_context():
        grant = locks.lock("product_1").acquire()
        assert grant is not None
        assert app.test_client().post("/product/1").text == "all mine"
        grant.release()


def test_its_handler_may_come_before_the_extension(locks: DistLock) -> None:
    app = Flask(__name__)
    app.config.from_mapping(DISTLOCK="memory://early", TESTING=True)
    app.register_error_handler(LockTimeout, lambda error: "all mine")
    locks.init_app(app)

    @app.post("/product/<int:id>")
    def buy(id: int) -> str:
        raise LockTimeout("taken")

    assert app.test_client().post("/product/1").text == "all mine"


def test_a_handler_for_all_lock_errors_is_the_sites(app: Flask) -> None:
    app.register_error_handler(LockError, lambda error: f"mine: {error}")

    @app.post("/product/<int:id>")
    def buy(id: int) -> str:
        raise LockLost("gone")

    assert app.test_client().post("/product/1").text == "mine: gone"


@pytest.mark.parametrize("handled", [423, LockTimeout])
def test_the_handler_of_a_blueprint_answers_for_a_lock_that_its_view_takes(
    app: Flask, locks: DistLock, handled: type[Exception] | int
) -> None:
    shop = Blueprint("shop", __name__)
    shop.register_error_handler(handled, lambda error: "the shop's")
    app.register_error_handler(423, lambda error: "the site's")

    @shop.post("/product/<int:id>")
    async def buy(id: int) -> str:
        async with locks.lock("product_1", timeout=0):
            return "sold"

    app.register_blueprint(shop)
    with app.app_context(), locks.lock("product_1"):
        assert app.test_client().post("/product/1").text == "the shop's"


@pytest.mark.parametrize("kind", ["sync", "async", "rule"])
def test_a_guard_that_raises_lets_the_site_handle_the_error(app: Flask, locks: DistLock, kind: str) -> None:
    raising = distributed_lock("product_<id>", timeout=0, on_contended="raise")

    def buy(id: int) -> str:
        return "sold"

    async def abuy(id: int) -> str:
        return "sold"

    view: Any = {"sync": buy, "async": abuy, "rule": buy}[kind]
    if kind != "rule":
        view = raising(view)
    else:
        app.config["DISTLOCK_RULES"] = [
            {"route": "buy", "lock": "product_<id>", "timeout": 0, "on_contended": "raise"}
        ]
    app.add_url_rule("/product/<int:id>", "buy", view, methods=["POST"])
    app.register_error_handler(LockTimeout, lambda error: (f"all mine: {type(error).__name__}", 409))
    app.register_error_handler(423, lambda error: "not asked")
    with app.app_context(), locks.lock("product_1"):
        assert app.test_client().post("/product/1").text == "all mine: LockTimeout"


def test_a_guard_that_raises_where_nobody_handles_it_is_answered(app: Flask, locks: DistLock) -> None:
    @app.post("/product/<int:id>")
    @distributed_lock("product_<id>", timeout=0, on_contended="raise")
    def buy(id: int) -> str:
        return "sold"

    with app.app_context(), locks.lock("product_1"):
        assert app.test_client().post("/product/1").status_code == 423
