from __future__ import annotations

from typing import Any

import pytest
from flask import Flask
from flask.views import MethodView

from flask_distlock import DistLock, distributed_lock


def test_a_method_view_is_locked_by_its_decorators_and_on_one_method(app: Flask, locks: DistLock) -> None:
    class Whole(MethodView):
        decorators = [distributed_lock("product_<id>", timeout=0)]

        def post(self, id: int) -> str:
            return "sold"

    class Method(MethodView):
        @distributed_lock("product_<id>", timeout=0)
        def post(self, id: int) -> str:
            return "sold"

    app.add_url_rule("/whole/<int:id>", view_func=Whole.as_view("whole"))
    app.add_url_rule("/method/<int:id>", view_func=Method.as_view("method"))
    client = app.test_client()
    with app.app_context(), locks.lock("product_1"):
        assert client.post("/whole/1").status_code == client.post("/method/1").status_code == 423
    assert client.post("/whole/1").status_code == client.post("/method/1").status_code == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("where", ["class", "decorators", "as_view"])
def test_a_class_is_locked_where_it_changes_something(
    app: Flask, locks: DistLock, method: str, where: str
) -> None:
    class Product(MethodView):
        def answer(self, id: int) -> str:
            return "sold"

        get = post = put = patch = delete = answer

    lock: Any = distributed_lock("product_<id>", timeout=0)
    if where == "class":
        lock(Product)
    elif where == "decorators":
        Product.decorators = [lock]
    view = Product.as_view("product")
    app.add_url_rule("/<int:id>", view_func=lock(view) if where == "as_view" else view)
    with app.app_context(), locks.lock("product_1"):
        status = app.test_client().open("/1", method=method).status_code
    assert status == (200 if method in {"GET", "HEAD"} else 423)


def test_a_class_may_be_told_which_methods(app: Flask, locks: DistLock) -> None:
    @distributed_lock("product_<id>", timeout=0, methods=["GET"])
    class Product(MethodView):
        def get(self, id: int) -> str:
            return "sold"

        def post(self, id: int) -> str:
            return "sold"

    app.add_url_rule("/<int:id>", view_func=Product.as_view("product"))
    client = app.test_client()
    with app.app_context(), locks.lock("product_1"):
        assert client.get("/1").status_code == client.head("/1").status_code == 423
        assert client.post("/1").status_code == 200


def test_what_runs_for_head_is_locked_for_head(app: Flask, locks: DistLock) -> None:
    class Product(MethodView):
        @distributed_lock("product_<id>", timeout=0)
        def get(self, id: int) -> str:
            return "sold"

    app.add_url_rule("/<int:id>", view_func=Product.as_view("product"))
    with app.app_context(), locks.lock("product_1"):
        assert app.test_client().head("/1").status_code == 423


def test_a_callable_of_a_method_gets_what_that_of_a_function_gets(app: Flask, locks: DistLock) -> None:
    def by_shop(request: Any, id: int) -> str:
        return f"{request.headers['X-Shop']}_{id}"

    class Buy(MethodView):
        @distributed_lock(by_shop)
        def post(self, id: int) -> str:
            return str(locks.lock("berlin_1").locked())

    app.add_url_rule("/<int:id>", view_func=Buy.as_view("buy"))
    assert app.test_client().post("/1", headers={"X-Shop": "berlin"}).text == "True"
