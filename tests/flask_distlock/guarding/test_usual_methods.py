"""No HTTP method sells without the lock, also none that a client made up, where a guard names no methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask, request
from flask.views import MethodView, View

from distlock.errors import ConfigurationError
from flask_distlock import DistLock, distributed_lock

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BUY", "PROPFIND")

lock = distributed_lock("product_<id>", timeout=0)
RULE = {"route": "buy", "lock": "product_<id>", "timeout": 0}

#: What has sold since the test began, by method.
sold: list[str] = []


@pytest.fixture(autouse=True)
def nothing_sold() -> None:
    sold.clear()


def sell(**arguments: Any) -> str:
    sold.append(request.method)
    return "sold"


def show_or_sell(id: int) -> str:
    return "form" if request.method == "GET" else sell()


def ruled(id: int) -> str:
    return show_or_sell(id)


class Shown(MethodView):
    def get(self, id: int) -> str:
        return "price"

    def post(self, id: int) -> str:
        return sell()

    buy = propfind = put = post


class OwnHead(Shown):
    head = options = Shown.post


class OwnDispatch(View):
    def dispatch_request(self, id: int) -> str:
        return show_or_sell(id)


class Overridden(Shown):
    def dispatch_request(self, **arguments: Any) -> Any:
        return self.get(**arguments) if request.method == "GET" else self.post(**arguments)


def above(cls: Any) -> Any:
    return lock(type(cls.__name__, (cls,), {"__module__": __name__})).as_view("buy")


def among_decorators(cls: Any) -> Any:
    members = {"__module__": __name__, "decorators": [lock]}
    return type(cls.__name__, (cls,), members).as_view("buy")


CLASSES = [Shown, OwnHead, OwnDispatch, Overridden]
VIEWS: dict[str, Any] = {
    "function": lock(show_or_sell),
    **{f"{cls.__name__} above": above(cls) for cls in CLASSES},
    **{f"{cls.__name__} around": lock(cls.as_view("buy")) for cls in CLASSES},
    **{f"{cls.__name__} among decorators": among_decorators(cls) for cls in CLASSES},
}
RULED: dict[str, Any] = {
    "function": ruled,
    **{cls.__name__: cls.as_view("buy") for cls in CLASSES},
}


def answers(app: Flask, methods: tuple[str, ...] = METHODS) -> dict[str, int]:
    client = app.test_client()
    return {method: client.open("/product/1", method=method).status_code for method in methods}


def route(app: Flask, view: Any, options: bool = False) -> None:
    app.add_url_rule(
        "/product/<int:id>",
        "buy",
        view,
        methods=METHODS,
        provide_automatic_options=None if options else False,
    )


@pytest.mark.attack("A04")
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_no_method_sells_beside_a_holder(app: Flask, locks: DistLock, view: Any) -> None:
    app.config["PROPAGATE_EXCEPTIONS"] = False
    route(app, view)
    with app.app_context(), locks.lock("product_1"):
        answers(app)
        assert sold == []
    answers(app)
    assert sold


@pytest.mark.attack("A04")
@pytest.mark.parametrize("view", RULED.values(), ids=RULED)
def test_a_rule_lets_no_method_sell_beside_a_holder(
    make_app: Callable[..., Flask], locks: DistLock, view: Any
) -> None:
    app = make_app(DISTLOCK_RULES=[RULE], PROPAGATE_EXCEPTIONS=False)
    route(app, view)
    with app.app_context(), locks.lock("product_1"):
        answers(app)
        assert sold == []
    answers(app)
    assert sold


def test_a_rule_on_a_function_exempts_get_alone(make_app: Callable[..., Flask], locks: DistLock) -> None:
    app = make_app(DISTLOCK_RULES=[RULE])
    route(app, ruled)
    with app.app_context(), locks.lock("product_1"):
        assert answers(app) == dict.fromkeys(METHODS, 423) | {"GET": 200}


@pytest.mark.parametrize("view", [lock(show_or_sell), lock(Shown.as_view("buy"))], ids=["function", "class"])
def test_the_automatic_options_is_never_locked(app: Flask, locks: DistLock, view: Any) -> None:
    app.add_url_rule("/product/<int:id>", "buy", view, methods=["GET", "POST", "BUY"])
    with app.app_context(), locks.lock("product_1"):
        assert answers(app)["OPTIONS"] == 200
        assert answers(app, ("POST", "BUY")) == {"POST": 423, "BUY": 423}
    assert sold == []


def test_head_is_not_locked_where_get_answers_it(app: Flask, locks: DistLock) -> None:
    route(app, above(Shown))
    with app.app_context(), locks.lock("product_1"):
        assert answers(app, ("GET", "HEAD")) == {"GET": 200, "HEAD": 200}


def test_a_class_that_only_reads_is_refused_under_a_rule(make_app: Callable[..., Flask]) -> None:
    class Read(MethodView):
        def get(self, id: int) -> str:
            return "price"

    app = make_app(DISTLOCK_RULES=[RULE])
    app.add_url_rule("/product/<int:id>", "buy", Read.as_view("buy"))
    with pytest.raises(ConfigurationError, match="it would never lock"):
        DistLock().check(app)


@pytest.mark.parametrize("methods", [["BUY"], ["*"]])
def test_a_method_that_clients_make_up_may_be_named(
    make_app: Callable[..., Flask], locks: DistLock, methods: list[str]
) -> None:
    app = make_app(DISTLOCK_RULES=[{**RULE, "methods": methods}])
    route(app, ruled)
    with app.app_context(), locks.lock("product_1"):
        for method, status in answers(app).items():
            assert (status == 423) is (methods == ["*"] or method in methods)
