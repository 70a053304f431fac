"""Both faces with the one line of the page: guards count by their view, and their COMMIT is measured."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import text

import django_distlock
import flask_distlock
from tests.metrics.test_prometheus import value


def test_flask(request: pytest.FixtureRequest) -> None:
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = "sqlite://"
    app.config["DISTLOCK"] = {
        "default": {"LOCATION": f"memory://{request.node.name}", "METRICS": "prometheus"}
    }
    db = SQLAlchemy(app)
    flask_distlock.DistLock(app)

    @app.post("/flask/<int:id>")
    @flask_distlock.distributed_lock("product_<id>")
    def in_flask(id: int) -> str:
        db.session.execute(text("CREATE TABLE sold (id INTEGER)"))
        db.session.commit()
        return "sold"

    assert app.test_client().post("/flask/1").status_code == 200
    where = f"{in_flask.__module__}.{in_flask.__qualname__}"
    assert value("distlock_commit_seconds_count", alias="default", where=where) == 1
    assert value("distlock_held_seconds_count", alias="default", where=where) == 1


@django_distlock.distributed_lock("product_<int:id>")
def in_django(request: HttpRequest, id: int) -> HttpResponse:
    connection.ensure_connection()
    return HttpResponse("sold")


@pytest.mark.django_db(transaction=True)
def test_django(settings: Any, request: pytest.FixtureRequest) -> None:
    location = f"memory://{request.node.name}"
    settings.DISTLOCK = {"default": {"LOCATION": location, "METRICS": "prometheus"}}
    assert in_django(RequestFactory().post("/"), id=1).status_code == 200
    labels = {"alias": "default", "where": f"{__name__}.in_django"}
    assert value("distlock_held_seconds_count", **labels) == 1
    assert value("distlock_acquisitions_total", **labels, result="granted") == 1
