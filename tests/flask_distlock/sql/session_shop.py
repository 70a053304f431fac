"""A shop on Flask-SQLAlchemy's session, which notes what is committed, and whether the lock was held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Flask, Response
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import event

from flask_distlock import DistLock, distributed_lock


class Shop:
    """An app with one product, and a note of each COMMIT and ROLLBACK with whether the lock was held."""

    def __init__(self, app: Flask, locks: DistLock) -> None:
        self.app, self.locks = app, locks
        self.db = db = SQLAlchemy()
        self.log: list[str] = []

        class Product(db.Model):  # type: ignore[name-defined,misc]
            id = db.Column(db.Integer, primary_key=True)
            stock = db.Column(db.Integer, nullable=False)

        self.Product = Product
        db.init_app(app)
        with app.app_context():
            db.create_all()
            db.session.add(Product(id=1, stock=10))
            db.session.commit()
            event.listen(db.engine, "commit", lambda connection: self.note("commit"))

    def note(self, what: str) -> None:
        self.log.append(f"{what}{'+' if self.locks.lock('product_1').locked() else '-'}")

    def product(self) -> Any:
        return self.db.session.get(self.Product, 1)

    def sell(self) -> str:
        """Sells, and leaves the commit to others."""
        self.product().stock -= 1
        return "sold"

    def serve(self, view: Callable[[], Any]) -> None:
        """Serve *view*, locked, at ``/``."""
        self.app.add_url_rule("/", "view", distributed_lock("product_1")(view), methods=["POST"])

    def post(self) -> Any:
        return self.app.test_client().post("/")

    def stock(self) -> int:
        with self.app.app_context():
            stock: int = self.product().stock
            return stock

    def close(self) -> None:
        with self.app.app_context():
            self.db.engine.dispose()


Call = Callable[[], Any]


def after(shop: Shop, what: Call) -> None:
    """Do *what* in an ``after_request`` hook."""

    @shop.app.after_request
    def hook(response: Response) -> Response:
        what()
        return response


def commit_and_note(shop: Shop) -> None:
    shop.db.session.commit()
    shop.note("after")


def held(shop: Shop) -> bool:
    with shop.app.app_context():
        return shop.locks.lock("product_1").locked()
