"""Where a guard may stand in Flask."""

from __future__ import annotations

from flask import Blueprint
from flask.views import MethodView, View

from flask_distlock import distributed_lock
from tests.flask_distlock.guarding.decorations import (
    async_decorator,
    login_required,
    method_view,
    through_ensure_sync,
    without_wraps,
)
from tests.flask_distlock.guarding.recorded_shop import Arrangements, RecordedShop

placed = Arrangements()


@placed
def a_function(shop: RecordedShop) -> None:
    shop.route(shop.lock()(lambda id: shop.buy(id)))


@placed
def a_template_with_defaults(shop: RecordedShop) -> None:
    # Names that come from a template are not noted.
    shop.log.append("names")

    def buy(id: int, lot: int = 1) -> str:
        return shop.buy(id)

    shop.route(distributed_lock("product_<id>", timeout=0)(buy))


@placed
def an_async_function(shop: RecordedShop) -> None:
    @shop.lock()
    async def buy(id: int) -> str:
        return await shop.abuy(id)

    shop.route(buy)


@placed
def below_a_decorator(shop: RecordedShop) -> None:
    shop.route(login_required(shop.lock()(shop.buy)))


@placed
def above_a_decorator(shop: RecordedShop) -> None:
    shop.route(shop.lock()(login_required(shop.buy)))


@placed
def above_a_decorator_without_wraps(shop: RecordedShop) -> None:
    shop.route(shop.lock()(without_wraps(shop.buy)))


@placed
def below_an_async_decorator(shop: RecordedShop) -> None:
    shop.route(async_decorator(shop.lock()(shop.abuy)))


@placed
def above_an_async_decorator(shop: RecordedShop) -> None:
    shop.route(shop.lock()(async_decorator(shop.abuy)))


@placed
def async_below_a_sync_decorator(shop: RecordedShop) -> None:
    shop.route(through_ensure_sync(shop.app)(shop.lock()(shop.abuy)))


@placed
def async_above_a_sync_decorator(shop: RecordedShop) -> None:
    shop.route(shop.lock()(through_ensure_sync(shop.app)(shop.abuy)))


@placed
def twice_around_a_bridge(shop: RecordedShop) -> None:
    inner = distributed_lock("product_<id>", timeout=0)(shop.abuy)
    shop.route(shop.lock()(through_ensure_sync(shop.app)(inner)))


@placed
def a_nested_blueprint(shop: RecordedShop) -> None:
    outer, inner = Blueprint("outer", __name__), Blueprint("inner", __name__)
    inner.post("/<int:id>", endpoint="buy")(shop.lock()(shop.buy))
    outer.register_blueprint(inner, url_prefix="/product")
    shop.app.register_blueprint(outer)


@placed
def several_routes(shop: RecordedShop) -> None:
    view = shop.lock(methods=["POST"])(shop.buy)
    shop.route(view)
    shop.route(view, rule="/look/<int:id>", methods=["GET"])


@placed
def decorators_of_a_method_view(shop: RecordedShop) -> None:
    shop.route(method_view(shop, decorators=(shop.lock(),)).as_view("buy"))


@placed
def decorators_of_an_async_method_view(shop: RecordedShop) -> None:
    shop.route(method_view(shop, decorators=(shop.lock(),), is_async=True).as_view("buy"))


@placed
def first_of_the_decorators(shop: RecordedShop) -> None:
    shop.route(method_view(shop, decorators=(shop.lock(), login_required)).as_view("buy"))


@placed
def last_of_the_decorators_above_one_without_wraps(shop: RecordedShop) -> None:
    shop.route(method_view(shop, decorators=(without_wraps, shop.lock())).as_view("buy"))


@placed
def around_as_view(shop: RecordedShop) -> None:
    shop.route(shop.lock()(method_view(shop).as_view("buy")))


@placed
def a_method_view(shop: RecordedShop) -> None:
    shop.route(shop.lock()(method_view(shop)).as_view("buy"))


@placed
def an_async_method_view(shop: RecordedShop) -> None:
    shop.route(shop.lock()(method_view(shop, is_async=True)).as_view("buy"))


@placed
def a_class_that_is_registered_already(shop: RecordedShop) -> None:
    cls = method_view(shop)
    shop.route(cls.as_view("buy"))
    shop.lock()(cls)


@placed
def a_class_with_one_instance(shop: RecordedShop) -> None:
    cls = method_view(shop)
    cls.init_every_request = False
    shop.route(cls.as_view("buy"))
    shop.lock()(cls)


@placed
def a_base_class(shop: RecordedShop) -> None:
    class Buy(shop.lock()(method_view(shop))): ...

    shop.route(Buy.as_view("buy"))


@placed
def one_method(shop: RecordedShop) -> None:
    class Buy(MethodView):
        @shop.lock()
        def post(self, id: int) -> str:
            return shop.buy(id)

    shop.route(Buy.as_view("buy"))


@placed
def one_method_that_another_calls(shop: RecordedShop) -> None:
    class Buy(MethodView):
        @shop.lock()
        def put(self, id: int) -> str:
            return shop.buy(id)

        def post(self, id: int) -> str:
            return self.put(id=id)

    shop.route(Buy.as_view("buy"))


@placed
def one_async_method(shop: RecordedShop) -> None:
    class Buy(MethodView):
        @shop.lock()
        async def post(self, id: int) -> str:
            return await shop.abuy(id)

    shop.route(Buy.as_view("buy"))


@placed
def one_method_below_a_decorator_without_wraps(shop: RecordedShop) -> None:
    class Buy(MethodView):
        @without_wraps
        @shop.lock()
        def post(self, id: int) -> str:
            return shop.buy(id)

    shop.route(Buy.as_view("buy"))


@placed
def a_view_class(shop: RecordedShop) -> None:
    @shop.lock()
    class Buy(View):
        def dispatch_request(self, id: int) -> str:
            return shop.buy(id)

    shop.route(Buy.as_view("buy"))


@placed
def an_async_view_class(shop: RecordedShop) -> None:
    @shop.lock()
    class Buy(View):
        async def dispatch_request(self, id: int) -> str:
            return await shop.abuy(id)

    shop.route(Buy.as_view("buy"))


@placed
def its_dispatch_request(shop: RecordedShop) -> None:
    class Buy(View):
        @shop.lock()
        def dispatch_request(self, id: int) -> str:
            return shop.buy(id)

    shop.route(Buy.as_view("buy"))


@placed
def its_async_dispatch_request(shop: RecordedShop) -> None:
    class Buy(View):
        @shop.lock()
        async def dispatch_request(self, id: int) -> str:
            return await shop.abuy(id)

    shop.route(Buy.as_view("buy"))


@placed
def a_helper_of_a_view(shop: RecordedShop) -> None:
    sell = shop.lock()(shop.buy)
    shop.route(lambda id: sell(id=id))


@placed
def an_async_helper_of_a_view(shop: RecordedShop) -> None:
    sell = shop.lock()(shop.abuy)

    async def buy(id: int) -> str:
        return await sell(id=id)

    shop.route(buy)


@placed
def a_view_that_is_also_a_helper(shop: RecordedShop) -> None:
    view = shop.lock()(shop.buy)
    shop.route(view, "other", "/other/<int:id>")
    shop.route(lambda id: view(id=id))


@placed
def a_view_that_leaves_the_commit_to_a_hook(shop: RecordedShop) -> None:
    shop.app.after_request(lambda response: shop.db.session.commit() or response)
    shop.route(shop.lock()(lambda id: shop.sell(id)))


@placed
def an_async_view_that_leaves_the_commit_to_a_hook(shop: RecordedShop) -> None:
    @shop.lock()
    async def buy(id: int) -> str:
        return shop.sell(id)

    shop.app.after_request(lambda response: shop.db.session.commit() or response)
    shop.route(buy)
