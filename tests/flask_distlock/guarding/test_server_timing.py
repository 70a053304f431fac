from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from flask import Flask, Response

from distlock.errors import LockTimeout
from flask_distlock import DistLock, distributed_lock, signals

BOTH = r"lock-wait;dur=\d+\.\d, lock-held;dur=\d+\.\d"


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    app = make_app(DISTLOCK_SERVER_TIMING=True)

    @app.post("/<int:id>")
    @distributed_lock("product_<id>", timeout=0)
    def buy(id: int) -> str:
        return "sold"

    return app


def timing(response: Response) -> str:
    return response.headers.get("Server-Timing", "")


def test_an_answer_says_how_long_the_lock_took_and_was_held(app: Flask) -> None:
    assert re.fullmatch(BOTH, timing(app.test_client().post("/1")))


def test_it_is_said_beside_signals_too(app: Flask) -> None:
    with signals.lock_acquired.connected_to(lambda sender, **what: None, app):
        assert re.fullmatch(BOTH, timing(app.test_client().post("/1")))


def test_a_refusal_says_how_long_it_waited(app: Flask, locks: DistLock) -> None:
    with app.app_context(), locks.lock("product_1"):
        response = app.test_client().post("/1")
    assert response.status_code == 423
    assert re.fullmatch(r"lock-wait;dur=\d+\.\d", timing(response))


def test_what_the_site_measures_stays(app: Flask) -> None:
    app.after_request(lambda response: response.headers.set("Server-Timing", "db;dur=3") or response)
    assert re.fullmatch(rf"db;dur=3, {BOTH}", timing(app.test_client().post("/1")))


def test_requests_in_one_app_context_are_measured_one_by_one(app: Flask) -> None:
    with app.app_context():
        headers = [timing(app.test_client().post("/1")) for _ in range(2)]
    assert all(re.fullmatch(BOTH, header) for header in headers)


def test_a_request_without_a_lock_says_nothing(app: Flask) -> None:
    app.add_url_rule("/", "index", lambda: "hello")
    assert timing(app.test_client().get("/")) == ""


def test_nothing_is_said_unless_asked_for(make_app: Callable[..., Flask]) -> None:
    app = make_app()
    app.add_url_rule("/", "buy", distributed_lock("product_1")(lambda: "sold"))
    assert timing(app.test_client().get("/")) == ""


def test_a_plain_function_outside_of_a_request_is_not_measured(app: Flask, locks: DistLock) -> None:
    sell = distributed_lock("product_1", timeout=0)(lambda: "sold")
    with app.app_context():
        assert sell() == "sold"
        with locks.lock("product_1"), pytest.raises(LockTimeout):
            sell()
