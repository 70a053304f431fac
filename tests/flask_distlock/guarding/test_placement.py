from __future__ import annotations

import functools
import gc
import inspect
import logging
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from flask.views import MethodView
from werkzeug.routing import Rule

from distlock.errors import ConfigurationError
from flask_distlock import DistLock, distributed_lock


def refused(app: Flask, message: str) -> None:
    client = app.test_client()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=message):
            client.get("/anywhere")


def test_the_decorator_above_the_route_is_found_at_the_first_request(app: Flask) -> None:
    @distributed_lock("product_<id>")
    @app.route("/product/<int:id>")
    def buy(id: int) -> str: ...

    refused(app, "above @app.route on the view 'buy'.*write it below")


def test_it_is_found_when_the_guard_itself_is_gone(app: Flask) -> None:
    def routes() -> None:
        @distributed_lock("product_<id>")
        @app.route("/product/<int:id>")
        def buy(id: int) -> str: ...

    routes()
    gc.collect()
    refused(app, "above @app.route")


def test_it_is_found_through_a_decorator_in_between(app: Flask) -> None:
    def login_required(view):
        @functools.wraps(view)
        def wrapper(**kwargs):
            return view(**kwargs)

        return wrapper

    @distributed_lock("product_<id>")
    @login_required
    @app.route("/product/<int:id>")
    def buy(id: int) -> str: ...

    refused(app, "above @app.route")


def signed(view: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    wrapper.__signature__ = inspect.signature(view)  # type: ignore[attr-defined]
    return wrapper


def bound(view: Callable[..., Any]) -> Callable[..., Any]:
    return types.MethodType(lambda _, **kwargs: view(**kwargs), object())


@pytest.mark.parametrize("decorator", [signed, bound])
def test_it_is_found_through_one_without_wraps_whatever_that_says_of_itself(
    app: Flask, decorator: Callable[..., Any]
) -> None:
    def buy(id: int) -> str: ...

    app.post("/product/<int:id>")(buy)
    distributed_lock("product_<int:id>")(decorator(buy))
    refused(app, "above @app.route")


def test_it_is_found_before_another_hook_can_answer(locks: DistLock) -> None:
    app = Flask(__name__)
    app.testing = True
    app.before_request(lambda: "maintenance")
    locks.init_app(app)

    @distributed_lock("product_<id>")
    @app.route("/product/<int:id>")
    def buy(id: int) -> str: ...

    refused(app, "above @app.route")


def test_a_function_that_is_served_with_and_without_its_guard_is_meant_so(app: Flask) -> None:
    def buy(id: int) -> str:
        return "sold"

    app.add_url_rule("/guarded/<int:id>", "guarded", distributed_lock("product_<id>")(buy))
    app.add_url_rule("/plain/<int:id>", "plain", buy)
    assert app.test_client().get("/plain/1").text == "sold"


def test_a_name_that_the_route_does_not_have_is_found_at_the_first_request(app: Flask) -> None:
    @app.route("/product/<int:product>")
    @distributed_lock("product_<id>")
    def buy(id: int) -> str: ...

    refused(app, r"the route '/product/<int:product>' has no 'id' \(it has: product\)")


def test_what_the_route_or_the_function_has_by_default_is_there(app: Flask) -> None:
    @app.route("/one", defaults={"id": 1})
    @app.route("/product/<int:id>")
    @distributed_lock("product_<id>_of_<shop>")
    def buy(id: int, shop: int = 1) -> str:
        return "sold"

    assert app.test_client().get("/one").text == "sold"


def test_methods_that_the_route_does_not_take_would_never_lock(app: Flask) -> None:
    @app.route("/product/<int:id>")
    @distributed_lock("product_<id>", methods=["POST"])
    def buy(id: int) -> str: ...

    refused(app, "would never lock")


def test_without_parentheses_it_says_what_to_write(app: Flask) -> None:
    @app.route("/one/<int:id>")
    @distributed_lock
    def buy(id: int) -> str: ...

    @app.route("/two/<int:id>")
    @distributed_lock
    def sell(id: int) -> str: ...

    refused(app, r"\.buy: A lock needs a name: write @distributed_lock\('product_<int:id>'\)")


def test_without_parentheses_above_a_class_it_says_what_to_write() -> None:
    with pytest.raises(ConfigurationError, match=r"\.Buy: A lock needs a name"):

        @distributed_lock
        class Buy(MethodView): ...


@pytest.mark.parametrize("where", ["decorators", "method"])
def test_without_parentheses_in_a_class_it_says_what_to_write(app: Flask, where: str) -> None:
    class Buy(MethodView):
        decorators = [distributed_lock] if where == "decorators" else []

        def post(self, id: int) -> str: ...

        if where == "method":
            post = distributed_lock(post)

    app.add_url_rule("/<int:id>", view_func=Buy.as_view("buy"))
    with pytest.raises(ConfigurationError, match="A lock needs a name"):
        app.test_client().post("/1")


def test_without_parentheses_and_extension_it_says_what_to_write() -> None:
    app = Flask(__name__)
    app.testing = True
    app.add_url_rule("/<int:id>", view_func=distributed_lock(lambda id: "sold"))
    with pytest.raises(ConfigurationError, match="A lock needs a name"):
        app.test_client().get("/1")


def test_a_view_for_several_routes_locks_where_it_can(app: Flask) -> None:
    @app.get("/look/<int:id>")
    @app.post("/buy/<int:id>")
    @distributed_lock("product_<id>", methods=["POST"])
    def product(id: int) -> str:
        return "sold"

    assert app.test_client().post("/buy/1").text == app.test_client().get("/look/1").text == "sold"


def test_a_name_has_to_be_made_only_where_it_is_locked(app: Flask) -> None:
    @distributed_lock("product_<id>")
    class Product(MethodView):
        def get(self) -> str:
            return "all"

        def put(self, id: int) -> str:
            return "one"

    view = Product.as_view("product")
    app.add_url_rule("/product", view_func=view, methods=["GET"])
    app.add_url_rule("/product/<int:id>", view_func=view, methods=["PUT"])
    assert (app.test_client().get("/product").text, app.test_client().put("/product/1").text) == (
        "all",
        "one",
    )


@pytest.mark.parametrize("where", ["class", "decorators", "method"])
def test_a_name_that_the_route_of_a_class_does_not_have_is_found(app: Flask, where: str) -> None:
    lock = distributed_lock("product_<id>")

    class Product(MethodView):
        decorators = [lock] if where == "decorators" else []

        def post(self, id: int) -> str: ...

        if where == "method":
            post = lock(post)

    if where == "class":
        lock(Product)
    app.add_url_rule("/<int:product>", view_func=Product.as_view("product"))
    refused(app, r"the route '/<int:product>' has no 'id' \(it has: product\)")


@pytest.mark.parametrize("route", ["/<id>", "/<path:id>", "/<any(a, b):id>"])
def test_a_bare_name_on_a_route_that_gives_text_is_found_at_the_first_request(app: Flask, route: str) -> None:
    @app.route(route)
    @distributed_lock("product_<id>")
    def buy(id: str) -> str: ...

    refused(app, r"gives text for 'id'.*Write 'product_<int:id>'")


@pytest.mark.parametrize(("route", "name"), [("/<uuid:id>", "<id>"), ("/<id>", "<str:id>"), ("/", "<id>")])
def test_a_name_that_fits_its_route_is_let_be(locks: DistLock, app: Flask, route: str, name: str) -> None:
    @app.route(route, defaults={"id": 1} if route == "/" else None)
    @distributed_lock(name)
    def buy(id: object) -> str: ...

    locks.check(app)


def test_options_are_answered_by_flask_itself(app: Flask) -> None:
    app.add_url_rule("/", "buy", distributed_lock("stock", methods=["OPTIONS"])(lambda: "sold"))
    refused(app, "would never lock")


def test_an_alias_that_is_not_configured_is_found(app: Flask) -> None:
    app.add_url_rule("/", "buy", distributed_lock("stock", alias="other")(lambda: "sold"))
    refused(app, "has no alias 'other'")


def test_a_check_finds_it_before_the_first_request(app: Flask, locks: DistLock) -> None:
    distributed_lock("stock")(app.get("/")(lambda: "sold"))
    with pytest.raises(ConfigurationError, match="above @app"):
        locks.check(app)


def test_a_locked_function_may_call_a_view(app: Flask) -> None:
    @app.get("/")
    def index() -> str:
        return "hello"

    sell = distributed_lock("stock")(lambda: index())
    app.add_url_rule("/sell", "sell", lambda: sell())
    assert app.test_client().get("/sell").text == "hello"


def test_a_site_that_handles_all_errors_is_told_in_the_log(
    app: Flask, caplog: pytest.LogCaptureFixture
) -> None:
    app.register_error_handler(Exception, lambda error: "never mind")
    distributed_lock("stock")(app.get("/")(lambda: "sold"))
    assert app.test_client().get("/").text == "never mind"
    (line,) = (record for record in caplog.records if "answers no request" in record.message)
    assert line.levelno == logging.CRITICAL


def test_a_guarded_helper_keeps_no_app_alive() -> None:
    @distributed_lock("helper")
    def helper() -> str:
        return "done"

    def served() -> weakref.ref[Flask]:
        app = Flask("shop")
        app.config["DISTLOCK"] = "memory://"
        locks = DistLock(app)
        app.add_url_rule("/", view_func=lambda: helper() + app.name, endpoint="index")
        assert app.test_client().get("/").text == "doneshop"
        with app.app_context():
            locks["default"].close()
        return weakref.ref(app)

    apps = [served() for _ in range(3)]
    gc.collect()
    assert [app() for app in apps] == [None] * 3


def test_methods_that_a_client_invents_are_not_remembered() -> None:
    @distributed_lock("helper")
    def helper() -> str:
        return "done"

    app = Flask("shop")
    app.config["DISTLOCK"] = "memory://"
    DistLock(app)
    app.url_map.add(Rule("/", endpoint="any"))
    app.endpoint("any")(lambda: helper())
    for number in range(30):
        assert app.test_client().open("/", method=f"M{number}").text == "done"
    remembered = helper.__distlock__.locks_at.values()  # type: ignore[attr-defined]
    assert not any(remembered)
