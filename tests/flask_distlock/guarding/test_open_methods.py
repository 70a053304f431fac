"""Guards that name methods, where a client reaches the same code with another one: told in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from flask.views import MethodView, View

from flask_distlock import DistLock, distributed_lock

named = distributed_lock("product_<id>", methods=["POST"])
NAMED = {"route": "buy", "lock": "product_<id>", "methods": ["POST"]}


def buy(id: int) -> str:
    return "sold"


class Calls(MethodView):
    def get(self, id: int) -> str:
        return "price"

    def post(self, id: int) -> str:
        return "sold"

    def put(self, id: int) -> str:
        return self.post(id)


class CallsAbove(Calls):
    def put(self, id: int) -> str:
        return super(CallsAbove, self).post(id)  # noqa: UP008


class Alias(Calls):
    put = Calls.post


class Apart(Calls):
    def put(self, id: int) -> str:
        return "another"


class Decides(View):
    methods = ["GET", "POST", "PUT"]

    def dispatch_request(self, id: int) -> str:
        return "sold"


def told(app: Flask, caplog: pytest.LogCaptureFixture, *rules: object) -> list[str]:
    app.config["DISTLOCK_RULES"] = list(rules)
    DistLock().check(app)
    return [record.getMessage() for record in caplog.records if "without the lock" in record.getMessage()]


def locking(view: Callable[..., Any]) -> Callable[..., Any]:
    return named(lambda id: view(id))


@pytest.mark.parametrize(
    ("view", "methods", "message"),
    [
        (locking(buy), ["GET", "POST"], "with HEAD as well"),
        (locking(buy), ["POST", "BUY"], "with BUY as well"),
        (named(Calls.as_view("buy")), None, "answers PUT by post()"),
        (named(CallsAbove.as_view("buy")), None, "answers PUT by post()"),
        (named(Alias.as_view("buy")), None, "answers PUT by post()"),
        (named(Decides.as_view("buy")), None, "with HEAD, PUT as well"),
    ],
    ids=["HEAD", "made up", "calls", "calls above", "alias", "decides"],
)
def test_an_open_method_is_told(
    app: Flask, caplog: pytest.LogCaptureFixture, view: Any, methods: Any, message: str
) -> None:
    app.add_url_rule("/product/<int:id>", "buy", view, methods=methods)
    (problem,) = told(app, caplog)
    assert message in problem


def test_a_rule_is_looked_at_as_well(app: Flask, caplog: pytest.LogCaptureFixture) -> None:
    app.add_url_rule("/product/<int:id>", "buy", buy, methods=["POST", "PUT"])
    (problem,) = told(app, caplog, NAMED)
    assert 'Write methods=["POST", "PUT"] in the guard' in problem


@pytest.mark.parametrize(
    ("view", "methods"),
    [
        (locking(buy), ["POST"]),
        (distributed_lock("product_<id>")(lambda id: "sold"), ["GET", "POST", "BUY"]),
        (distributed_lock("product_<id>", methods=["HEAD", "POST"])(lambda id: "sold"), ["GET", "POST"]),
        (named(Apart.as_view("buy")), None),
    ],
    ids=["POST only", "not named", "HEAD named", "other code"],
)
def test_where_no_method_is_open_nothing_is_told(
    app: Flask, caplog: pytest.LogCaptureFixture, view: Any, methods: Any
) -> None:
    app.add_url_rule("/product/<int:id>", "buy", view, methods=methods)
    assert told(app, caplog) == []


def test_a_rule_without_methods_is_not_told(app: Flask, caplog: pytest.LogCaptureFixture) -> None:
    app.add_url_rule("/product/<int:id>", "buy", lambda id: "sold", methods=["GET", "POST", "PUT"])
    assert told(app, caplog, {"route": "buy", "lock": "product_<id>"}) == []
