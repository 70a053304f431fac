"""A lock on a method is that of its overrides, whatever they call; ``decorators`` lock any as_view()."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask, request
from flask.views import MethodView, View

from distlock.errors import ConfigurationError
from flask_distlock import DistLock, distributed_lock
from tests.flask_distlock.sql.sales import Open
from tests.flask_distlock.sql.session_shop import Shop
from tests.transactions.till import REQUESTS, STOCK

RIGHT = {"answers": {"200": STOCK, "409": REQUESTS - STOCK}, "orders": STOCK, "left": 0}


class Locked(MethodView):
    @distributed_lock("product_<id>", timeout=0)
    def post(self, id: int) -> str:
        return "sold"


class OnOnePath(Locked):
    def post(self, id: int) -> str:
        return "sold" if "quick" in request.args else super().post(id)


class Asks(MethodView):
    @distributed_lock("product_<int:query.id>", timeout=0)
    def post(self) -> str:
        return "sold"


class AsksOnOnePath(Asks):
    def post(self) -> str:
        return "sold" if "quick" in request.args else super().post()


class Dispatches(View):
    methods = ["GET", "POST"]

    @distributed_lock("product_<id>", timeout=0)
    def dispatch_request(self, id: int) -> str:
        return "sold"


class DispatchesOnOnePath(Dispatches):
    def dispatch_request(self, id: int) -> str:
        return "sold" if "quick" in request.args else super().dispatch_request(id)


@pytest.mark.parametrize("query", ["", "&quick"])
@pytest.mark.parametrize("cls", [OnOnePath, AsksOnOnePath, DispatchesOnOnePath])
def test_an_override_is_locked_on_every_path(
    app: Flask, locks: DistLock, cls: type[View], query: str
) -> None:
    rule = "/1" if cls is AsksOnOnePath else "/<int:id>"
    app.add_url_rule(rule, view_func=cls.as_view("view"))
    client = app.test_client()
    with app.app_context(), locks.lock("product_1"):
        assert client.post(f"/1?id=1{query}").status_code == 423
        if cls is DispatchesOnOnePath and query:
            assert client.get("/1?quick").status_code == 200
    assert client.post(f"/1?id=1{query}").text == "sold"


def test_an_override_that_calls_its_base_on_one_path_sells_what_there_is(open_store: Open) -> None:
    store = open_store("postgresql")
    store.app.testing = False
    store.view()

    class Buy(MethodView):
        @distributed_lock("product_<id>")
        def post(self, id: int) -> Any:
            return store.buy(store.words)

    class Quick(Buy):
        def post(self, id: int) -> Any:
            return super().post(id) if "slow" in request.args else store.buy(store.orm)

    store.app.add_url_rule("/product/<int:id>/buy", view_func=Quick.as_view("buy"))
    assert store.sale() == RIGHT


def test_what_a_login_check_above_an_override_refuses_is_still_refused(app: Flask) -> None:
    class Checked(Locked):
        def post(self, id: int) -> Any:
            return ("who?", 401) if "user" not in request.args else super().post(id)

    app.add_url_rule("/<int:id>", view_func=Checked.as_view("view"))
    client = app.test_client()
    assert (client.post("/1").status_code, client.post("/1?user").text) == (401, "sold")


# An override whose route has other arguments: only what it calls knows the name.


def translated(shop: Shop) -> None:
    class Base(MethodView):
        @distributed_lock("product_<id>", timeout=0)
        def post(self, id: int) -> str:
            return sell()

    class Translates(Base):
        def post(self, sku: str) -> Any:  # type: ignore[override]
            if "refuse" in request.args:
                return "no such thing", 404
            if "elsewhere" in request.args:
                return "sold"
            return sell() if "quick" in request.args else super().post(id=int(sku.removeprefix("sku-")))

    def sell() -> str:
        shop.product().stock -= 1
        shop.db.session.commit()
        return "sold"

    shop.app.add_url_rule("/<sku>", view_func=Translates.as_view("view"))


def test_an_override_that_translates_the_arguments_is_locked_by_what_it_calls(shop: Shop) -> None:
    translated(shop)
    client = shop.app.test_client()
    with shop.app.app_context(), shop.locks.lock("product_1"):
        assert client.post("/sku-1").status_code == 423
    assert client.post("/sku-1").text == "sold"
    assert client.post("/sku-1?refuse").status_code == 404
    assert shop.stock() == 9


@pytest.mark.parametrize("query", ["quick", "elsewhere"])
def test_an_override_that_translates_and_goes_past_the_lock_is_refused_before_it_commits(
    shop: Shop, query: str
) -> None:
    translated(shop)
    line = r"Translates\.post\(\) did not call that of its base .*Base\.post, .* write @distributed_lock\("
    with pytest.raises(ConfigurationError, match=line):
        shop.app.test_client().post(f"/sku-1?{query}")
    assert shop.stock() == 10


def test_an_async_override_that_translates_has_come_to_its_lock(app: Flask, locks: DistLock) -> None:
    class Base(MethodView):
        @distributed_lock("product_<id>", timeout=0)
        async def post(self, id: int) -> str:
            return "sold"

    class Translates(Base):
        async def post(self, sku: str) -> str:  # type: ignore[override]
            return await super().post(id=int(sku.removeprefix("sku-")))

    app.add_url_rule("/<sku>", view_func=Translates.as_view("view"))
    client = app.test_client()
    with app.app_context(), locks.lock("product_1"):
        assert client.post("/sku-1").status_code == 423
    assert client.post("/sku-1").text == "sold"


# Classes that make their views by themselves.


class Guarded(MethodView):
    decorators = [distributed_lock("product_<id>", timeout=0)]

    def get(self, id: int) -> str:
        return "read"

    def post(self, id: int) -> str:
        return "sold"


def plain_function(cls: type[View], name: str) -> Any:
    def view(**arguments: Any) -> Any:
        return cls().dispatch_request(**arguments)

    view.__name__ = name
    return view


def function_with_class(cls: type[View], name: str) -> Any:
    view = plain_function(cls, name)
    view.view_class, view.methods = cls, cls.methods
    return view


@pytest.mark.parametrize("make", [plain_function, function_with_class])
@pytest.mark.parametrize("inherits", [False, True])
def test_a_class_that_makes_its_views_by_itself_is_locked(
    app: Flask, locks: DistLock, make: Any, inherits: bool
) -> None:
    class Itself(Guarded):
        @classmethod
        def as_view(cls, name: str, *args: Any, **kwargs: Any) -> Any:
            return make(cls, name)

    class Child(Itself):
        def post(self, id: int) -> str:
            return "sold"

    cls = Child if inherits else Itself
    app.add_url_rule("/<int:id>", view_func=cls.as_view("view"), methods=["GET", "POST"])
    client = app.test_client()
    with app.app_context(), locks.lock("product_1"):
        assert client.post("/1").status_code == 423
        assert make is plain_function or client.get("/1").text == "read"
    assert [client.post("/1").text for _ in range(2)] == ["sold", "sold"]


def test_a_class_that_adds_to_as_view_is_locked_once(app: Flask, locks: DistLock) -> None:
    class Adds(Guarded):
        @classmethod
        def as_view(cls, *args: Any, **kwargs: Any) -> Any:
            return super().as_view(*args, **kwargs)

    app.add_url_rule("/<int:id>", view_func=Adds.as_view("view"))
    client = app.test_client()
    with app.app_context(), locks.lock("product_1"):
        assert client.post("/1").status_code == 423
    assert client.post("/1").text == "sold"
