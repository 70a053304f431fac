"""One shop with one product, served by Django or by Flask over the same database, with fences on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.urls import path
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import Engine, text

import django_distlock
import flask_distlock
from django_distlock import signals as django_signals
from flask_distlock import signals as flask_signals

_numbers = itertools.count()


class Answered(NamedTuple):
    status: int
    #: Of a problem document.
    code: str = ""


class Shop(Protocol):
    #: The names of the signals that were sent.
    told: list[str]

    def serve(self, body: Callable[[], object], **guard: Any) -> None:
        """*body* runs in the view, before its COMMIT."""

    def post(self) -> Answered: ...

    def leave(self) -> None:
        """Of a thread that posts no more."""

    def lost(self) -> None:
        """What an ended lease is to a grant."""

    def after_commit(self, what: Callable[[], object]) -> None:
        """Called in the view: *what* is done when it has committed."""

    def read(self) -> int: ...

    def write(self, qty: int) -> None: ...

    def execute(self, statement: str) -> None: ...


class DjangoShop:
    def __init__(self, using: str) -> None:
        self.using = using
        self.told: list[str] = []
        self.urls = type("Urls", (), {"urlpatterns": []})
        for name in ("lock_lost", "fence_lifted"):
            getattr(django_signals, name).connect(self._tell(name), weak=False, dispatch_uid=id(self))

    def close(self) -> None:
        self.leave()
        for name in ("lock_lost", "fence_lifted"):
            getattr(django_signals, name).disconnect(dispatch_uid=id(self))
        django_distlock.locks.close_all()

    def _tell(self, name: str) -> Callable[..., None]:
        return lambda **_: self.told.append(name)

    def serve(self, body: Callable[[], object], **guard: Any) -> None:
        @django_distlock.distributed_lock("product_<id>", **{"fence": self.using, **guard})
        def view(request: HttpRequest, id: int) -> HttpResponse:
            return HttpResponse(status=409) if body() is False else HttpResponse("sold")

        self.urls.urlpatterns.append(path("product/<int:id>", view))

    def post(self) -> Answered:
        response = Client().post("/product/1")
        problem = response.headers["Content-Type"] == "application/problem+json"
        return Answered(response.status_code, response.json()["code"] if problem else "")

    def leave(self) -> None:
        connections[self.using].close()

    def lost(self) -> None:
        django_distlock.locks.close_all()

    def after_commit(self, what: Callable[[], object]) -> None:
        transaction.on_commit(what, using=self.using)

    def read(self) -> int:
        with connections[self.using].cursor() as cursor:
            cursor.execute("SELECT qty FROM stock WHERE id = 1")
            return int(cursor.fetchone()[0])

    def write(self, qty: int) -> None:
        self.execute(f"UPDATE stock SET qty = {qty} WHERE id = 1")

    def execute(self, statement: str) -> None:
        with connections[self.using].cursor() as cursor:
            cursor.execute(statement)


class FlaskShop:
    def __init__(self, app: Flask, locks: flask_distlock.DistLock, db: SQLAlchemy) -> None:
        self.app, self.locks, self.db = app, locks, db
        self.told: list[str] = []
        self._afterwards: list[Callable[[], object]] = []
        for name in ("lock_lost", "fence_lifted"):
            getattr(flask_signals, name).connect(self._tell(name), app, weak=False)

    def _tell(self, name: str) -> Callable[..., None]:
        return lambda sender, **_: self.told.append(name)

    def serve(self, body: Callable[[], object], **guard: Any) -> None:
        @self.app.post("/product/<int:id>")
        @flask_distlock.distributed_lock("product_<id>", **{"fence": True, **guard})
        def view(id: int) -> Any:
            if body() is False:
                return "sold out", 409
            self.db.session.commit()
            for what in self._afterwards:
                what()
            return "sold"

    def post(self) -> Answered:
        response = self.app.test_client().post("/product/1")
        problem = response.mimetype == "application/problem+json"
        return Answered(response.status_code, response.get_json(force=True)["code"] if problem else "")

    def leave(self) -> None: ...

    def lost(self) -> None:
        self.locks.close()

    def after_commit(self, what: Callable[[], object]) -> None:
        self._afterwards.append(what)

    def read(self) -> int:
        return int(self.db.session.execute(text("SELECT qty FROM stock WHERE id = 1")).scalar_one())

    def write(self, qty: int) -> None:
        self.execute(f"UPDATE stock SET qty = {qty} WHERE id = 1")

    def execute(self, statement: str) -> None:
        self.db.session.execute(text(statement))


@contextmanager
def open_shop(
    face: str, engine: Engine, using: str, setting: dict[str, object], isolation: str | None = None
) -> Iterator[DjangoShop | FlaskShop]:
    """A shop of *face* over the database of *engine*, whose alias in Django is *using*."""
    setting = {"LOCATION": f"memory://shop{next(_numbers)}", "PREFIX": "shop", "TIMEOUT": 20, **setting}
    if face == "django":
        if isolation:
            connections[using].close()
            options = {"isolation_level": _for_django(engine, isolation)}
            connections.settings[using]["OPTIONS"] |= options
            del connections[using]
        shop = DjangoShop(using)
        with override_settings(DISTLOCK={"default": setting}, ROOT_URLCONF=shop.urls):
            yield shop
            shop.close()
        return
    app = Flask(__name__)
    app.testing = True
    url = engine.url.render_as_string(hide_password=False)
    options: dict[str, Any] = {} if engine.dialect.name == "sqlite" else {"pool_size": 16}
    if isolation:
        options["isolation_level"] = isolation
    app.config.from_mapping(
        SQLALCHEMY_DATABASE_URI=url, SQLALCHEMY_ENGINE_OPTIONS=options, DISTLOCK={"default": setting}
    )
    db, locks = SQLAlchemy(app), flask_distlock.DistLock(app)
    yield FlaskShop(app, locks, db)
    with app.app_context():
        locks.close()
        db.engine.dispose()


def _for_django(engine: Engine, isolation: str) -> object:
    if engine.dialect.name == "postgresql":
        from psycopg import IsolationLevel

        return IsolationLevel[isolation.replace(" ", "_")]
    return isolation.lower()
