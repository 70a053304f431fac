"""Libraries that answer errors in their own way keep what our clients go by: ``code``, ``Retry-After``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flask_restful
import flask_restx
import flask_smorest
import pytest
from flask import Flask
from flask.views import MethodView
from flask_sqlalchemy import SQLAlchemy

from flask_distlock import DistLock, distributed_lock

guard = distributed_lock("product_<id>", timeout=0)


def smorest(app: Flask, view: Callable[..., Any]) -> None:
    class Buy(MethodView):
        @guard
        def post(self, id: int) -> Any:
            return view()

    app.config.update(API_TITLE="Shop", API_VERSION="1", OPENAPI_VERSION="3.0.2")
    blueprint = flask_smorest.Blueprint("shop", "shop")
    blueprint.route("/product/<int:id>")(Buy)
    flask_smorest.Api(app).register_blueprint(blueprint)


def smorest_as_the_site_has_it(app: Flask, view: Callable[..., Any]) -> None:
    class Api(flask_smorest.Api):
        def handle_http_exception(self, error: Any) -> Any:
            payload, status, headers = super().handle_http_exception(error)
            return {**payload, "site": "mine", "code": payload["errors"]["code"]}, status, headers

    app.config.update(API_TITLE="Shop", API_VERSION="1", OPENAPI_VERSION="3.0.2")
    blueprint = flask_smorest.Blueprint("shop", "shop")
    blueprint.route("/product/<int:id>", methods=["POST"])(guard(lambda id: view()))
    Api(app).register_blueprint(blueprint)


def restful(app: Flask, view: Callable[..., Any]) -> None:
    class Buy(flask_restful.Resource):  # type: ignore[misc]
        @guard
        def post(self, id: int) -> Any:
            return view()

    flask_restful.Api(app).add_resource(Buy, "/product/<int:id>")


def restx(app: Flask, view: Callable[..., Any]) -> None:
    class Buy(flask_restx.Resource):  # type: ignore[misc]
        @guard
        def post(self, id: int) -> Any:
            return view()

    flask_restx.Api(app).add_resource(Buy, "/product/<int:id>")


LIBRARIES = [smorest, smorest_as_the_site_has_it, restful, restx]


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.__name__)
def library(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/html"])
def test_code_and_retry_after_are_kept(app: Flask, locks: DistLock, library: Any, accept: str) -> None:
    library(app, lambda: {"sold": True})
    client = app.test_client()
    with app.app_context(), locks.lock("product_1"):
        response = client.post("/product/1", headers={"Accept": accept})
    assert (response.status_code, response.headers.getlist("Retry-After")) == (423, ["1"])
    assert response.headers.getlist("Cache-Control") == ["no-store"]
    assert len(response.headers.getlist("Content-Type")) == 1
    if response.mimetype == "text/html":
        assert accept == "text/html"
        assert response.text.startswith("<!doctype")
    else:
        assert response.get_json(force=True)["code"] == "lock_contended"
    assert client.post("/product/1").get_json() == {"sold": True}


def test_a_loss_in_the_commit_of_a_hook_is_the_same(make_app: Any, locks: DistLock, library: Any) -> None:
    app = make_app(SQLALCHEMY_DATABASE_URI="sqlite://")
    db = SQLAlchemy(app)

    class Product(db.Model):  # type: ignore[name-defined,misc]
        id = db.Column(db.Integer, primary_key=True)

    with app.app_context():
        db.create_all()

    @app.after_request
    def commit(response: Any) -> Any:
        locks.close()
        db.session.commit()
        return response

    def view() -> Any:
        db.session.add(Product())
        return {"sold": True}

    library(app, view)
    response = app.test_client().post("/product/1")
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
    assert response.get_json(force=True)["code"] == "lock_lost"
    with app.app_context():
        db.engine.dispose()
