"""``help()``: each argument, its unit and what its odd values mean, each error, and an example that runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, models
from django.http import HttpResponse
from django.test import RequestFactory
from django.views.decorators.http import require_POST
from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy

import distlock
import django_distlock
import flask_distlock
from distlock import Grant, Lock, Locks, metrics, testing
from flask_distlock import DistLock
from flask_distlock.operate import locks_blueprint
from tests.redis_server import RedisServer, redis_server

#: What a Django site calls ``locks``.
HANDLER = type(django_distlock.locks)

__all__ = ["redis_server"]

DECORATORS = [django_distlock.distributed_lock, flask_distlock.distributed_lock]
OF_TESTS = [
    testing.race,
    testing.contended,
    testing.backend_down,
    testing.lose,
    testing.held_locks,
    testing.taken_locks,
]
CALLED = [
    *OF_TESTS,
    distlock.connect,
    metrics.listener,
    Locks.lock,
    Locks.rlock,
    Lock.acquire,
    distlock.current_grant,
    *DECORATORS,
    django_distlock.atomic,
    flask_distlock.transaction,
    locks_blueprint,
    DistLock,
    DistLock.lock,
    DistLock.rlock,
    HANDLER.lock,
    HANDLER.rlock,
]


def full_name(called: Callable[..., Any]) -> str:
    return f"{called.__module__}.{called.__qualname__}"


def parameters(called: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Those that a caller writes: *unknown* takes words only to refuse them."""
    found = inspect.signature(called).parameters
    return {name: one for name, one in found.items() if name not in {"self", "unknown"}}


def said_of(word: str, text: str) -> str:
    """What *text* says of the argument *word*, up to the next one or the end of its paragraph."""
    found = re.search(rf"\*{word}\*.*?(?=\n\*|\n\n|\Z)", text, re.DOTALL)
    assert found, f"nothing is said of {word}"
    return found[0]


def example(called: Callable[..., Any]) -> str:
    _, _, code = (inspect.getdoc(called) or "").partition("Example::\n")
    assert code, f"{called} has no example"
    return inspect.cleandoc(code)


@pytest.mark.parametrize("called", CALLED, ids=full_name)
def test_each_argument_is_explained_and_each_call_tells_its_errors(called: Callable[..., Any]) -> None:
    text = inspect.getdoc(called) or ""
    assert "Raises" in text
    for word, parameter in parameters(called).items():
        said = said_of(word, text)
        if re.search(r"as for `[\w.]*lock`", said):
            continue
        if word in {"timeout", "ttl", "max_hold"}:
            assert "second" in said, f"{word} has no unit"
        if word == "timeout":
            assert "0: " in said
            assert "-1" in said
        if "None" in str(parameter.annotation) and not word.startswith("on_"):
            assert "None" in said, f"{word} says nothing of None"


@pytest.mark.parametrize("decorator", DECORATORS, ids=full_name)
def test_the_options_of_the_decorator_stand_in_its_signature(decorator: Callable[..., Any]) -> None:
    """They are those of the page, and a word that is not among them says what to write."""
    page = (Path(__file__).parents[1] / "docs/reference/decorator.md").read_text("utf-8")
    words = re.findall(r"^\| `(\w+)", page, re.MULTILINE)
    assert {*parameters(decorator)} == {"names", *words}
    with pytest.raises(
        TypeError, match=r"distributed_lock\(\) has no 'blocking_timeout'. Here that is timeout="
    ):
        decorator("product_<id>", blocking_timeout=3)


@pytest.fixture
def locks() -> Iterator[Locks]:
    locks = distlock.connect("memory://help")
    yield locks
    locks.close()


@pytest.fixture
def app(tmp_path: Path) -> Flask:
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = f"sqlite:///{tmp_path}/shop.db"
    return app


def test_connect() -> None:
    seen: dict[str, Any] = {"distlock": distlock}
    exec(example(distlock.connect), seen)
    assert isinstance(seen["locks"], Locks)
    assert seen["grant"].released
    seen["locks"].close()


@pytest.mark.parametrize("called", [Locks.lock, Locks.rlock, Lock.acquire, Grant], ids=full_name)
def test_locks_and_grants(locks: Locks, called: Callable[..., Any]) -> None:
    seen: dict[str, Any] = {"locks": locks}
    exec(example(called), seen)
    assert seen["grant"].released
    assert not seen["grant"].lost


@pytest.mark.parametrize("called", [HANDLER.lock, HANDLER.rlock], ids=full_name)
def test_locks_of_django(called: Callable[..., Any]) -> None:
    seen: dict[str, Any] = {"locks": django_distlock.locks}
    exec(example(called), seen)
    assert seen["grant"].released


@pytest.mark.parametrize("called", [DistLock.lock, DistLock.rlock], ids=full_name)
def test_locks_of_flask(app: Flask, called: Callable[..., Any]) -> None:
    app.config["DISTLOCK"] = "memory://help"
    locks = DistLock(app)
    seen: dict[str, Any] = {"locks": locks}
    with app.app_context():
        exec(example(called), seen)
        locks.close()
    assert seen["grant"].released


@pytest.mark.parametrize("called", [django_distlock.distributed_lock, distlock.current_grant], ids=full_name)
def test_a_view_of_django(called: Callable[..., Any]) -> None:
    seen: dict[str, Any] = {
        "HttpResponse": HttpResponse,
        "distlock": distlock,
        "distributed_lock": django_distlock.distributed_lock,
        "require_POST": require_POST,
    }
    exec(example(called), seen)
    assert seen["reduce_stock"](RequestFactory().post("/"), id=1).content == b"sold"


class Product(models.Model):
    id = models.IntegerField(primary_key=True)
    stock = models.IntegerField()

    class Meta:
        app_label = "help"
        managed = False


@pytest.mark.django_db(transaction=True)
def test_a_transaction_of_django(locks: Locks) -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Product)
    try:
        Product.objects.create(id=1, stock=7)
        exec(
            example(django_distlock.atomic),
            {"Product": Product, "atomic": django_distlock.atomic, "locks": locks},
        )
        assert Product.objects.get(id=1).stock == 100
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(Product)


def test_a_view_of_flask(app: Flask) -> None:
    app.config["DISTLOCK"] = "memory://help"
    locks = DistLock(app)
    exec(
        example(flask_distlock.distributed_lock),
        {"app": app, "distributed_lock": flask_distlock.distributed_lock},
    )
    assert app.test_client().post("/products/1/reduce").text == "sold"
    with app.app_context():
        locks.close()


@pytest.mark.parametrize("called", OF_TESTS, ids=full_name)
def test_helpers_of_tests(app: Flask, called: Callable[..., Any]) -> None:
    app.config["DISTLOCK"] = "memory://help"
    locks, stock = DistLock(app), [5]

    @app.post("/products/<int:id>/reduce")
    @flask_distlock.distributed_lock("product_<id>")
    def reduce_stock(id: int) -> tuple[str, int]:
        if stock[0] < 1:
            return "sold out", 409
        stock[0] -= 1
        distlock.current_grant().check()
        return "sold", 200

    with app.app_context():
        seen = {"client": app.test_client(), "locks": locks}
        exec(example(called), {**vars(testing), **seen})
        locks.close()


def test_the_extension(app: Flask, redis_server: RedisServer) -> None:
    code = example(DistLock).replace("redis://localhost:6379/0", redis_server.url)
    seen: dict[str, Any] = {"DistLock": DistLock, "app": app}
    exec(code, seen)
    assert seen["grant"].released
    with app.app_context():
        seen["locks"].close()


def test_the_page_of_locks_in_flask(app: Flask) -> None:
    app.config["DISTLOCK"] = "memory://help"
    DistLock(app)
    exec(example(locks_blueprint), {"app": app, "locks_blueprint": locks_blueprint, "request": request})
    client = app.test_client()
    assert client.get("/locks/").status_code == 403
    assert client.get("/locks/", environ_overrides={"REMOTE_USER": "ann"}).status_code == 200


def test_a_transaction_of_flask(app: Flask) -> None:
    app.config["DISTLOCK"] = "memory://help"
    db, locks = SQLAlchemy(app), DistLock(app)

    class Product(db.Model):  # type: ignore[name-defined,misc]
        id = db.Column(db.Integer, primary_key=True)
        stock = db.Column(db.Integer)

    with app.app_context():
        db.create_all()
        db.session.add(Product(id=1, stock=7))
        db.session.commit()
        assert app.test_cli_runner().invoke(args=["distlock", "create-table"]).exit_code == 0
        seen = {"Product": Product, "db": db, "locks": locks, "transaction": flask_distlock.transaction}
        exec(example(flask_distlock.transaction), seen)
        db.session.expire_all()
        assert db.session.get(Product, 1).stock == 100
        db.session.remove()
        db.engine.dispose()
        locks.close()
