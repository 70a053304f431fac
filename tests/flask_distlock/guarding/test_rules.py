from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from flask import Blueprint, Flask, abort, request
from flask.views import MethodView
from flask_login import LoginManager, login_required

from distlock import current_grant
from distlock.errors import ConfigurationError, NotHeld
from flask_distlock import DistLock, distributed_lock

RULE = {"route": "buy", "lock": "product_<id>", "timeout": 0}


def buy(**arguments: Any) -> str:
    try:
        return ", ".join(current_grant().names)
    except NotHeld:
        return "unlocked"


METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@pytest.fixture
def serve(make_app: Callable[..., Flask]) -> Callable[..., Flask]:
    def serve(*rules: Any, view: Any = buy, route: str = "/product/<int:id>", **config: Any) -> Flask:
        app = make_app(DISTLOCK_RULES=list(rules), **config)
        app.add_url_rule(route, "buy", view, methods=METHODS)
        return app

    return serve


Serve = Callable[..., Flask]


def refused(app: Flask, message: str) -> None:
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=message):
            app.test_client().get("/anywhere")
    with pytest.raises(ConfigurationError, match=message):
        DistLock().check(app)


@pytest.mark.attack("A28")
@pytest.mark.parametrize("method", METHODS)
def test_a_rule_locks_the_methods_that_change_something(serve: Serve, method: str) -> None:
    answer = serve(RULE).test_client().open("/product/1", method=method).text
    assert answer == ("unlocked" if method == "GET" else "product_1")


@pytest.mark.parametrize("method", METHODS)
def test_a_rule_may_say_which_methods(serve: Serve, method: str) -> None:
    app = serve({**RULE, "methods": ["GET", "PUT"]})
    answer = app.test_client().open("/product/1", method=method).text
    assert answer == ("product_1" if method in {"GET", "PUT"} else "unlocked")


def test_a_rule_holds_from_the_first_request_on(serve: Serve, locks: DistLock) -> None:
    app = serve(RULE)
    with app.app_context(), locks.lock("product_1"):
        responses = [app.test_client().post("/product/1") for _ in range(2)]
    assert [response.status_code for response in responses] == [423, 423]
    assert responses[0].get_json(force=True)["code"] == "lock_contended"


def test_looking_at_an_app_changes_nothing(serve: Serve, locks: DistLock) -> None:
    app = serve(RULE)
    locks.check(app)
    locks.check(app)
    assert app.view_functions["buy"] is buy
    assert app.test_client().post("/product/1").text == "product_1"


def test_several_apps_of_one_process_have_rules_of_their_own(serve: Serve) -> None:
    ruled, free = serve(RULE), serve()
    assert ruled.test_client().post("/product/1").text == "product_1"
    assert free.test_client().post("/product/1").text == "unlocked"


def test_the_route_of_a_blueprint_in_a_blueprint(make_app: Callable[..., Flask]) -> None:
    app = make_app(DISTLOCK_RULES=[{**RULE, "route": "outer.inner.buy"}])
    outer, inner = Blueprint("outer", __name__), Blueprint("inner", __name__)
    inner.add_url_rule("/<int:id>", "buy", buy, methods=["POST"])
    outer.register_blueprint(inner)
    app.register_blueprint(outer)
    assert app.test_client().post("/1").text == "product_1"


def test_a_predicate_gets_the_request_and_the_arguments_of_the_route(serve: Serve) -> None:
    app = serve({**RULE, "when": lambda request, id: request.args.get("b2b") and id == 1})
    client = app.test_client()
    assert client.post("/product/1?b2b=1").text == "product_1"
    assert client.post("/product/1").text == client.post("/product/2?b2b=1").text == "unlocked"


def test_a_callable_and_several_names(serve: Serve) -> None:
    app = serve({**RULE, "lock": ["product_<id>", lambda request, id: f"by_{request.headers['X-Shop']}"]})
    answer = app.test_client().post("/product/1", headers={"X-Shop": "berlin"}).text
    assert answer == "by_berlin, product_1"


def test_names_from_the_query(serve: Serve) -> None:
    app = serve({**RULE, "lock": "product_<int:query.id>"}, route="/product")
    client = app.test_client()
    assert client.post("/product?id=1").text == "product_1"
    assert client.post("/product").status_code == 400


def test_a_decorator_between_rule_and_view_may_change_the_arguments(serve: Serve) -> None:
    def with_product(view):
        # It says that it takes what the view takes, and takes 'id'.
        def wrapper(id: int) -> str:
            return view(product=id)

        wrapper.__wrapped__ = view
        return wrapper

    def view(product: int) -> str:
        return buy()

    assert serve(RULE, view=with_product(view)).test_client().post("/product/1").text == "product_1"


def test_a_preprocessor_may_change_the_arguments(serve: Serve) -> None:
    app = serve({**RULE, "lock": "shop_<int:shop>_product_<id>"}, route="/<lang>/product/<int:id>")

    @app.url_value_preprocessor
    def change(endpoint: str | None, values: dict[str, Any] | None) -> None:
        assert values is not None
        values.pop("lang")
        values["shop"] = 7

    app.url_defaults(lambda endpoint, values: values.setdefault("lang", "de"))
    assert app.test_client().post("/de/product/1").text == "shop_7_product_1"


def test_what_a_preprocessor_took_away_is_told_by_name(serve: Serve) -> None:
    app = serve({**RULE, "lock": "product_<int:shop>"}, route="/<int:shop>/product/<int:id>")
    app.url_value_preprocessor(lambda endpoint, values: values.pop("shop") and None)
    with pytest.raises(ConfigurationError, match=r"<int:shop> in .* It has: id"):
        app.test_client().post("/7/product/1")


@pytest.mark.attack("A20")
def test_csrf_and_other_hooks_come_before_the_lock(serve: Serve, locks: DistLock) -> None:
    app = serve(RULE)

    @app.before_request
    def csrf_protect() -> None:
        # Flask-WTF's CSRFProtect has this shape. It looks at the view function, too.
        view = app.view_functions[request.endpoint or ""]
        if f"{view.__module__}.{view.__name__}" == f"{__name__}.buy" and "X-CSRFToken" not in request.headers:
            abort(400)

    with app.app_context(), locks.lock("product_1"):
        # The first request wraps the view; the second finds it wrapped.
        assert [app.test_client().post("/product/1").status_code for _ in range(2)] == [400, 400]
        assert app.test_client().post("/product/1", headers={"X-CSRFToken": "x"}).status_code == 423


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_login_required_runs_inside_the_rule(serve: Serve, locks: DistLock, kind: str) -> None:
    async def abuy(id: int) -> str:
        return buy()

    app = serve(RULE, view=login_required(buy if kind == "sync" else abuy), SECRET_KEY="x")
    LoginManager(app).request_loader(lambda request: None)
    assert app.test_client().post("/product/1").status_code == 401
    with app.app_context(), locks.lock("product_1"):
        assert app.test_client().post("/product/1").status_code == 423


def test_rule_and_decorator_take_their_names_in_turn(serve: Serve) -> None:
    app = serve(RULE, view=distributed_lock("stock")(lambda id: buy()))
    assert app.test_client().post("/product/1").text == "stock"


def test_rules_for_one_route_with_predicates_stand_around_one_another(serve: Serve) -> None:
    app = serve(
        {**RULE, "when": lambda request, id: id < 3},
        {**RULE, "lock": "shelf", "when": lambda request, id: id > 1},
    )
    client = app.test_client()
    assert [client.post(f"/product/{product}").text for product in (1, 2, 3)] == [
        "product_1",
        "shelf",
        "shelf",
    ]


def test_static_files_may_be_locked_but_are_not_by_default(make_app: Callable[..., Flask]) -> None:
    refused(
        make_app(DISTLOCK_RULES=[{"route": "static", "lock": "files"}]),
        "the rule for 'static' locks .*, but the route '/static/.*' leads to it with GET, HEAD only",
    )
    app = make_app(DISTLOCK_RULES=[{"route": "static", "lock": "files", "methods": ["GET"]}])
    assert app.test_client().get("/static/nothing.css").status_code == 404


def test_a_partial_is_a_view_too(serve: Serve) -> None:
    import functools

    app = serve(RULE, view=functools.partial(buy, shop=1))
    assert app.test_client().post("/product/1").text == "product_1"


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"route": "bye"}, "names the route 'bye', which does not exist. Did you mean 'buy'"),
        (
            {"lock": "product_<product>"},
            r"the rule for 'buy' is locked on .* has no 'product' \(it has: id\)",
        ),
        ({"methods": ["TRACE"]}, "the rule for 'buy' locks TRACE, but the route .* would never lock"),
        ({"alias": "other"}, "has no alias 'other'"),
        ({"lokc": 1}, "unknown key 'lokc'. Did you mean 'lock'"),
        ({"when": "nothing.here"}, "can't be imported"),
    ],
)
def test_what_cannot_work_is_refused_at_the_first_request(
    serve: Serve, rule: dict[str, Any], message: str
) -> None:
    refused(serve({**RULE, **rule}), message)


def test_two_rules_that_lock_the_same_request_are_refused(serve: Serve) -> None:
    other = {**RULE, "lock": "stock", "methods": ["POST", "GET"]}
    refused(serve(RULE, other), "two rules for 'buy' that lock HEAD, POST: name all locks in one")
    assert serve(RULE, {**other, "methods": ["GET"]}).test_client().get("/product/1").text == "stock"


def test_a_rule_for_a_class_finds_its_routes(make_app: Callable[..., Flask]) -> None:
    class Product(MethodView):
        def get(self) -> str:
            return buy()

        def post(self, id: int) -> str:
            return buy()

    app = make_app(DISTLOCK_RULES=[RULE])
    view = Product.as_view("buy")
    app.add_url_rule("/product", view_func=view, methods=["GET"])
    app.add_url_rule("/product/<int:id>", view_func=view, methods=["POST"])
    client = app.test_client()
    assert (client.get("/product").text, client.post("/product/1").text) == ("unlocked", "product_1")


def test_a_view_that_is_replaced_under_its_rule_is_refused(serve: Serve) -> None:
    app = serve(RULE)
    client = app.test_client()
    assert client.post("/product/1").text == "product_1"
    ruled = app.view_functions["buy"]
    app.view_functions["buy"] = buy
    with pytest.raises(ConfigurationError, match="was replaced when the first request had come"):
        client.post("/product/1")
    app.view_functions["buy"] = functools.wraps(ruled)(lambda **arguments: ruled(**arguments))
    assert client.post("/product/1").text == "product_1"


def twice(make_app: Callable[..., Flask], *rules: Any, nested: bool = False) -> Flask:
    """A blueprint that stands at two places."""
    app = make_app(DISTLOCK_RULES=list(rules))
    shop = Blueprint("shop", __name__)
    shop.add_url_rule("/product/<int:id>", "buy", buy, methods=["POST"])
    if nested:
        for name in ("berlin", "paris"):
            city = Blueprint(name, __name__)
            city.register_blueprint(shop, name="shop")
            app.register_blueprint(city, url_prefix=f"/{name}")
    else:
        app.register_blueprint(shop, name="berlin", url_prefix="/berlin")
        app.register_blueprint(shop, name="paris", url_prefix="/paris")
    return app


@pytest.mark.parametrize("nested", [False, True])
def test_a_rule_for_one_of_two_places_of_a_blueprint_is_refused(
    make_app: Callable[..., Flask], nested: bool
) -> None:
    end = ".shop.buy" if nested else ".buy"
    rules = [{"route": f"{name}{end}", "lock": "product_<id>", "timeout": 0} for name in ("berlin", "paris")]
    app = twice(make_app, rules[0], nested=nested)
    refused(app, rf"runs the same view as 'paris.*write a rule for it, too, .\"route\": \"paris{end}\"")
    app = twice(make_app, *rules, nested=nested)
    client = app.test_client()
    assert [client.post(f"/{name}/product/1").text for name in ("berlin", "paris")] == ["product_1"] * 2


@pytest.mark.attack("A15")
def test_a_second_route_to_a_view_with_a_rule_is_told(make_app: Callable[..., Flask]) -> None:
    def serve(*rules: Any) -> Flask:
        app = make_app(DISTLOCK_RULES=list(rules))
        app.add_url_rule("/product/<int:id>", "buy", buy, methods=["POST"])
        app.add_url_rule(
            "/old/<int:id>", "old", functools.wraps(buy)(lambda id: buy(id=id)), methods=["POST"]
        )
        return app

    refused(serve(RULE), r"POST /old/<int:id> runs the same view as 'old'.*\"route\": \"old\"")
    client = serve(RULE, {**RULE, "route": "old"}).test_client()
    assert client.post("/old/1").text == "product_1"
    client = serve({**RULE, "only_this_route": True}).test_client()
    assert (client.post("/product/1").text, client.post("/old/1").text) == ("product_1", "unlocked")


@pytest.mark.attack("A15", control=True)
def test_a_second_route_that_is_not_told_sells_beside_a_holder(
    make_app: Callable[..., Flask], locks: DistLock
) -> None:
    app = make_app(DISTLOCK_RULES=[{**RULE, "only_this_route": True}])
    app.add_url_rule("/product/<int:id>", "buy", buy, methods=["POST"])
    app.add_url_rule("/old/<int:id>", "old", functools.wraps(buy)(lambda id: buy(id=id)), methods=["POST"])
    client = app.test_client()
    with app.app_context(), locks.lock("product_1"):
        assert client.post("/product/1").status_code == 423
        assert client.post("/old/1").text == "unlocked"


def test_a_view_that_a_hook_replaces_at_the_first_request_is_refused(serve: Serve) -> None:
    app = serve(RULE)

    @app.before_request
    def replace() -> None:
        app.view_functions["buy"] = buy

    with pytest.raises(ConfigurationError, match="was replaced when the first request had come"):
        app.test_client().post("/product/1")
