"""Wherever a guard stands: the lock encloses the transaction, or an error names the line to change."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Blueprint, Flask, abort
from flask.views import MethodView, View

from distlock.errors import ConfigurationError
from flask_distlock import DistLock, distributed_lock
from tests.flask_distlock.recorded_shop import ORDER, RecordedShop

placed: dict[str, Callable[[RecordedShop], None]] = {}
refused: dict[str, tuple[str, Callable[[RecordedShop], None]]] = {}


def place(arrange: Callable[[RecordedShop], None]) -> None:
    placed[arrange.__name__] = arrange


def refuse(message: str) -> Callable[[Callable[[RecordedShop], None]], None]:
    def note(arrange: Callable[[RecordedShop], None]) -> None:
        refused[arrange.__name__] = message, arrange

    return note


def login_required(view: Any) -> Any:
    @functools.wraps(view)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return wrapper


def without_wraps(view: Any) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return wrapper


def async_decorator(view: Any) -> Any:
    @functools.wraps(view)
    async def wrapper(**kwargs: Any) -> Any:
        return await view(**kwargs)

    return wrapper


def through_ensure_sync(app: Flask) -> Callable[[Any], Any]:
    """As Flask-Login's login_required does."""

    def decorate(view: Any) -> Any:
        @functools.wraps(view)
        def wrapper(**kwargs: Any) -> Any:
            return app.ensure_sync(view)(**kwargs)

        return wrapper

    return decorate


@place
def a_function(shop: RecordedShop) -> None:
    shop.route(shop.lock()(lambda id: shop.buy(id)))


@place
def a_template_with_defaults(shop: RecordedShop) -> None:
    # Names that come from a template are not noted.
    shop.log.append("names")

    def buy(id: int, lot: int = 1) -> str:
        return shop.buy(id)

    shop.route(distributed_lock("product_<id>", timeout=0)(buy))


@place
def an_async_function(shop: RecordedShop) -> None:
    @shop.lock()
    async def buy(id: int) -> str:
        return await shop.abuy(id)

    shop.route(buy)


@place
def below_a_decorator(shop: RecordedShop) -> None:
    shop.route(login_required(shop.lock()(shop.buy)))


@place
def above_a_decorator(shop: RecordedShop) -> None:
    shop.route(shop.lock()(login_required(shop.buy)))


@place
def below_a_decorator_without_wraps(shop: RecordedShop) -> None:
    shop.route(without_wraps(shop.lock()(shop.buy)))


@place
def above_a_decorator_without_wraps(shop: RecordedShop) -> None:
    shop.route(shop.lock()(without_wraps(shop.buy)))


@place
def below_an_async_decorator(shop: RecordedShop) -> None:
    shop.route(async_decorator(shop.lock()(shop.abuy)))


@place
def above_an_async_decorator(shop: RecordedShop) -> None:
    shop.route(shop.lock()(async_decorator(shop.abuy)))


@place
def async_below_a_sync_decorator(shop: RecordedShop) -> None:
    shop.route(through_ensure_sync(shop.app)(shop.lock()(shop.abuy)))


@place
def async_above_a_sync_decorator(shop: RecordedShop) -> None:
    shop.route(shop.lock()(through_ensure_sync(shop.app)(shop.abuy)))


@place
def twice_around_a_bridge(shop: RecordedShop) -> None:
    inner = distributed_lock("product_<id>", timeout=0)(shop.abuy)
    shop.route(shop.lock()(through_ensure_sync(shop.app)(inner)))


@place
def a_nested_blueprint(shop: RecordedShop) -> None:
    outer, inner = Blueprint("outer", __name__), Blueprint("inner", __name__)
    inner.post("/<int:id>", endpoint="buy")(shop.lock()(shop.buy))
    outer.register_blueprint(inner, url_prefix="/product")
    shop.app.register_blueprint(outer)


@place
def several_routes(shop: RecordedShop) -> None:
    view = shop.lock(methods=["POST"])(shop.buy)
    shop.route(view)
    shop.route(view, rule="/look/<int:id>", methods=["GET"])


def method_view(shop: RecordedShop, *, decorators: tuple[Any, ...] = (), is_async: bool = False) -> Any:
    if is_async:

        class AsyncBuy(MethodView):
            async def post(self, id: int) -> str:
                return await shop.abuy(id)

        cls: Any = AsyncBuy
    else:

        class Buy(MethodView):
            def post(self, id: int) -> str:
                return shop.buy(id)

        cls = Buy
    cls.decorators = decorators
    return cls


@place
def decorators_of_a_method_view(shop: RecordedShop) -> None:
    shop.route(method_view(shop, decorators=(shop.lock(),)).as_view("buy"))


@place
def decorators_of_an_async_method_view(shop: RecordedShop) -> None:
    shop.route(method_view(shop, decorators=(shop.lock(),), is_async=True).as_view("buy"))


@place
def first_of_the_decorators(shop: RecordedShop) -> None:
    shop.route(method_view(shop, decorators=(shop.lock(), login_required)).as_view("buy"))


@place
def last_of_the_decorators_above_one_without_wraps(shop: RecordedShop) -> None:
    shop.route(method_view(shop, decorators=(without_wraps, shop.lock())).as_view("buy"))


@place
def first_of_the_decorators_below_one_without_wraps(shop: RecordedShop) -> None:
    shop.route(method_view(shop, decorators=(shop.lock(), without_wraps)).as_view("buy"))


@place
def around_as_view(shop: RecordedShop) -> None:
    shop.route(shop.lock()(method_view(shop).as_view("buy")))


@place
def a_method_view(shop: RecordedShop) -> None:
    shop.route(shop.lock()(method_view(shop)).as_view("buy"))


@place
def an_async_method_view(shop: RecordedShop) -> None:
    shop.route(shop.lock()(method_view(shop, is_async=True)).as_view("buy"))


@place
def a_class_that_is_registered_already(shop: RecordedShop) -> None:
    cls = method_view(shop)
    shop.route(cls.as_view("buy"))
    shop.lock()(cls)


@place
def a_class_with_one_instance(shop: RecordedShop) -> None:
    cls = method_view(shop)
    cls.init_every_request = False
    shop.route(cls.as_view("buy"))
    shop.lock()(cls)


@place
def a_base_class(shop: RecordedShop) -> None:
    class Buy(shop.lock()(method_view(shop))):  # type: ignore[misc]
        pass

    shop.route(Buy.as_view("buy"))


@place
def one_method(shop: RecordedShop) -> None:
    class Buy(MethodView):
        @shop.lock()
        def post(self, id: int) -> str:
            return shop.buy(id)

    shop.route(Buy.as_view("buy"))


@place
def one_async_method(shop: RecordedShop) -> None:
    class Buy(MethodView):
        @shop.lock()
        async def post(self, id: int) -> str:
            return await shop.abuy(id)

    shop.route(Buy.as_view("buy"))


@place
def one_method_below_a_decorator_without_wraps(shop: RecordedShop) -> None:
    class Buy(MethodView):
        @without_wraps
        @shop.lock()
        def post(self, id: int) -> str:
            return shop.buy(id)

    shop.route(Buy.as_view("buy"))


@place
def a_view_class(shop: RecordedShop) -> None:
    @shop.lock()
    class Buy(View):
        def dispatch_request(self, id: int) -> str:
            return shop.buy(id)

    shop.route(Buy.as_view("buy"))


@place
def its_dispatch_request(shop: RecordedShop) -> None:
    class Buy(View):
        @shop.lock()
        def dispatch_request(self, id: int) -> str:
            return shop.buy(id)

    shop.route(Buy.as_view("buy"))


@place
def its_async_dispatch_request(shop: RecordedShop) -> None:
    class Buy(View):
        @shop.lock()
        async def dispatch_request(self, id: int) -> str:
            return await shop.abuy(id)

    shop.route(Buy.as_view("buy"))


@place
def a_helper_of_a_view(shop: RecordedShop) -> None:
    sell = shop.lock()(shop.buy)
    shop.route(lambda id: sell(id=id))


@place
def an_async_helper_of_a_view(shop: RecordedShop) -> None:
    sell = shop.lock()(shop.abuy)

    async def buy(id: int) -> str:
        answer: str = await sell(id=id)
        return answer

    shop.route(buy)


@place
def a_view_that_is_also_a_helper(shop: RecordedShop) -> None:
    view = shop.lock()(shop.buy)
    shop.route(view, "other", "/other/<int:id>")
    shop.route(lambda id: view(id=id))


@place
def a_rule(shop: RecordedShop) -> None:
    shop.route(shop.buy)
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@place
def a_rule_for_an_async_view(shop: RecordedShop) -> None:
    shop.route(shop.abuy)
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@place
def a_rule_for_a_class(shop: RecordedShop) -> None:
    shop.route(method_view(shop).as_view("buy"))
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@place
def a_rule_for_an_async_class(shop: RecordedShop) -> None:
    shop.route(method_view(shop, is_async=True).as_view("buy"))
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@place
def a_rule_above_decorators(shop: RecordedShop) -> None:
    shop.route(without_wraps(login_required(shop.buy)))
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@place
def a_rule_above_a_guard_on_the_same_name(shop: RecordedShop) -> None:
    shop.route(distributed_lock("product_<id>", timeout=0)(shop.buy))
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@place
def a_rule_above_an_async_class_with_a_guard(shop: RecordedShop) -> None:
    cls = method_view(shop, is_async=True)
    shop.route(distributed_lock("product_<id>", timeout=0)(cls).as_view("buy"))
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@refuse("above @app.route on the view 'buy'.*: write it below")
def above_the_route(shop: RecordedShop) -> None:
    shop.lock()(shop.app.post("/product/<int:id>", endpoint="buy")(shop.buy))


@refuse("above @app.route")
def above_the_route_of_an_async_view(shop: RecordedShop) -> None:
    shop.lock()(shop.app.post("/product/<int:id>", endpoint="buy")(shop.abuy))


@refuse("above @app.route")
def above_a_decorator_without_wraps_above_the_route(shop: RecordedShop) -> None:
    def buy(id: int) -> str:
        return shop.buy(id)

    shop.lock()(without_wraps(shop.app.post("/product/<int:id>")(buy)))


@refuse("above @app.route")
def around_as_view_after_the_route(shop: RecordedShop) -> None:
    view = method_view(shop).as_view("buy")
    shop.route(view)
    shop.lock()(view)


@refuse(r"Sub has a dispatch_request of its own.*Base: write @distributed_lock\(.*\) above Sub")
def a_subclass_goes_past_it(shop: RecordedShop) -> None:
    @shop.lock()
    class Base(View):
        def dispatch_request(self, id: int) -> str:
            return shop.buy(id)

    class Sub(Base):
        def dispatch_request(self, id: int) -> str:
            return shop.buy(id)

    shop.route(Sub.as_view("buy"))


@refuse("has no dispatch_request to lock")
def an_abstract_class(shop: RecordedShop) -> None:
    shop.lock()(type("Base", (View,), {}))


@refuse("is a class, and no view")
def another_class(shop: RecordedShop) -> None:
    shop.lock()(type("Shop", (), {}))


@refuse("locks DELETE, PATCH, POST, PUT, but the route .* takes only GET, HEAD: it would never lock")
def a_class_that_only_reads(shop: RecordedShop) -> None:
    class Look(MethodView):
        decorators = [shop.lock()]

        def get(self, id: int) -> str: ...

    shop.route(Look.as_view("buy"), methods=None)


@refuse("it would never lock. Say which methods")
def a_method_that_its_methods_leave_out(shop: RecordedShop) -> None:
    class Buy(MethodView):
        @shop.lock(methods=["PUT"])
        def post(self, id: int) -> str: ...

    shop.route(Buy.as_view("buy"))


@refuse("was not called as a view.*a decorator above it hides it: write @functools.wraps there")
def methods_below_a_decorator_without_wraps(shop: RecordedShop) -> None:
    shop.route(without_wraps(shop.lock(methods=["POST"])(shop.buy)))


@refuse("is a generator")
def a_generator(shop: RecordedShop) -> None:
    def buy(id: int) -> Iterator[str]:
        yield shop.buy(id)

    shop.route(shop.lock()(buy))


@refuse("is a generator")
def a_generator_in_a_class(shop: RecordedShop) -> None:
    class Buy(MethodView):
        def post(self, id: int) -> Iterator[str]:
            yield shop.buy(id)

    shop.route(shop.lock()(Buy).as_view("buy"))


@refuse("is a generator")
def a_rule_for_a_generator(shop: RecordedShop) -> None:
    def buy(id: int) -> Iterator[str]:
        yield shop.buy(id)

    shop.route(buy)
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@refuse("returned a coroutine.*directly above the 'async def'")
def above_a_sync_decorator_below_an_async_one(shop: RecordedShop) -> None:
    shop.route(async_decorator(shop.lock()(login_required(shop.abuy))))


@refuse(r"product_2.*: name all locks in one place")
def another_name_inside_the_transaction(shop: RecordedShop) -> None:
    inner = distributed_lock("product_2", timeout=0)(lambda: shop.db.session.commit())

    def buy(id: int) -> None:
        shop.product()
        inner()

    shop.route(shop.lock()(buy))


@refuse(r"call db\.session\.commit\(\) inside it")
def a_view_that_leaves_the_commit_to_a_hook(shop: RecordedShop) -> None:
    def buy(id: int) -> str:
        shop.product().stock -= 1
        return "sold"

    shop.app.after_request(lambda response: shop.db.session.commit() or response)
    shop.route(shop.lock()(buy))


@refuse(r"call db\.session\.commit\(\) inside it")
def an_async_view_that_leaves_the_commit_to_a_hook(shop: RecordedShop) -> None:
    async def buy(id: int) -> str:
        shop.product().stock -= 1
        return "sold"

    shop.app.after_request(lambda response: shop.db.session.commit() or response)
    shop.route(shop.lock()(buy))


@refuse(r"call db\.session\.commit\(\) inside it")
def a_rule_for_a_view_that_leaves_the_commit_to_the_teardown(shop: RecordedShop) -> None:
    def buy(id: int) -> str:
        shop.product().stock -= 1
        return "sold"

    shop.app.teardown_request(lambda error: shop.db.session.commit())
    shop.route(buy)
    shop.app.config["DISTLOCK_RULES"] = [shop.rule()]


@pytest.fixture
def shop(make_app: Callable[..., Flask], locks: DistLock, tmp_path: Path) -> Iterator[RecordedShop]:
    shop = RecordedShop(make_app(SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/shop.db"), locks)
    yield shop
    shop.close()


@pytest.mark.parametrize("arrangement", placed)
def test_the_lock_encloses_the_transaction(shop: RecordedShop, arrangement: str) -> None:
    placed[arrangement](shop)
    assert shop.post().text == "sold"
    assert shop.log == ORDER
    assert shop.stock() == 9


@pytest.mark.parametrize("arrangement", placed)
def test_whoever_does_not_get_the_lock_is_answered_and_does_nothing(
    shop: RecordedShop, arrangement: str
) -> None:
    placed[arrangement](shop)
    response = shop.contended()
    assert (response.status_code, response.get_json(force=True)["code"]) == (423, "lock_contended")
    assert shop.log == ["names"]


@pytest.mark.parametrize("arrangement", placed)
def test_the_session_begins_under_the_lock_whatever_a_hook_has_read(
    shop: RecordedShop, arrangement: str
) -> None:
    @shop.app.before_request
    def login() -> None:
        shop.product()

    placed[arrangement](shop)
    assert shop.post().text == "sold"
    at = shop.log.index("lock")
    assert shop.log[at - 1 :] == ["ROLLBACK", *ORDER[1:]]


@pytest.mark.parametrize("arrangement", placed)
def test_whom_a_hook_turns_away_asks_for_no_lock(shop: RecordedShop, arrangement: str) -> None:
    shop.app.before_request(lambda: abort(401))
    placed[arrangement](shop)
    assert shop.post().status_code == 401
    assert [what for what in shop.log if what != "names"] == []


@pytest.mark.parametrize("arrangement", refused)
def test_what_cannot_hold_is_refused(shop: RecordedShop, arrangement: str) -> None:
    message, arrange = refused[arrangement]

    def first_request() -> None:
        if not shop.app.view_functions.get("buy"):
            arrange(shop)
        shop.post()

    for _ in range(2):
        with pytest.raises(ConfigurationError, match=message):
            first_request()
    assert "COMMIT" not in shop.log
    assert shop.stock() == 10
