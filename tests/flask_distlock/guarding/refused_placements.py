"""Where a guard could not hold in Flask, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flask.views import MethodView, View

from flask_distlock import distributed_lock
from tests.flask_distlock.guarding.decorations import (
    async_decorator,
    login_required,
    method_view,
    without_wraps,
)
from tests.flask_distlock.guarding.recorded_shop import RecordedShop

refused: dict[str, tuple[str, Callable[[RecordedShop], None]]] = {}


def refuse(message: str) -> Callable[[Callable[[RecordedShop], None]], None]:
    def note(arrange: Callable[[RecordedShop], None]) -> None:
        refused[arrange.__name__] = message, arrange

    return note


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


@refuse("locks every method but GET, HEAD, but the route .* with GET, HEAD only: it would never lock")
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


@refuse("hides it, so that requests are not answered.*write @functools.wraps in that decorator")
def methods_below_a_decorator_without_wraps(shop: RecordedShop) -> None:
    shop.route(without_wraps(shop.lock(methods=["POST"])(shop.buy)))


@refuse("hides it, so that requests are not answered.*write @functools.wraps in that decorator")
def first_of_the_decorators_below_one_without_wraps(shop: RecordedShop) -> None:
    shop.route(method_view(shop, decorators=(shop.lock(), without_wraps)).as_view("buy"))


@refuse("hides it, so that requests are not answered.*write @functools.wraps in that decorator")
def below_a_decorator_without_wraps(shop: RecordedShop) -> None:
    shop.route(without_wraps(shop.lock()(shop.buy)))


@refuse("hides it, so that requests are not answered.*write @functools.wraps in that decorator")
def below_two_decorators_without_wraps(shop: RecordedShop) -> None:
    shop.route(without_wraps(without_wraps(shop.lock()(shop.buy))))


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
