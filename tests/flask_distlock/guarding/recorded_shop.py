"""A shop over a real database that notes, in order, what happens in a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import event

from flask_distlock import DistLock, distributed_lock
from flask_distlock.signals import lock_acquired, lock_released

#: What the promise is: the lock encloses the transaction.
ORDER = ["names", "lock", "BEGIN", "view", "COMMIT", "release"]


class Arrangements(dict[str, Callable[["RecordedShop"], None]]):
    """Ways to serve a shop's view, by name. Decorates them."""

    def __call__(self, arrange: Callable[[RecordedShop], None]) -> None:
        self[arrange.__name__] = arrange


class RecordedShop:
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
            db.session.remove()
            for what in ("begin", "commit", "rollback"):
                event.listen(db.engine, what, lambda connection, what=what: self.log.append(what.upper()))
        lock_acquired.connect(self._locked, app)
        lock_released.connect(self._released, app)

    def name(self, *args: Any, id: int) -> str:
        self.log.append("names")
        return f"product_{id}"

    def lock(self, **words: Any) -> Any:
        return distributed_lock(self.name, timeout=0, **words)

    def rule(self, **words: Any) -> dict[str, Any]:
        return {"route": "buy", "lock": self.name, "timeout": 0, **words}

    def product(self) -> Any:
        return self.db.session.get(self.Product, 1)

    def buy(self, id: int) -> str:
        """The body of all views."""
        self.sell(id)
        self.db.session.commit()
        return "sold"

    def sell(self, id: int) -> str:
        """The body of views that leave the commit to others."""
        product = self.product()
        self.log.append("view")
        product.stock -= 1
        return "sold"

    async def abuy(self, id: int) -> str:
        return self.buy(id)

    def route(self, view: Any, endpoint: str = "buy", rule: str = "/product/<int:id>", **words: Any) -> None:
        self.app.add_url_rule(rule, endpoint, view, **{"methods": ["POST"], **words})

    def post(self, path: str = "/product/1") -> Any:
        return self.app.test_client().post(path)

    def contended(self) -> Any:
        """The answer where somebody else has the lock."""
        with self.app.app_context():
            lock = self.locks.lock("product_1")
            assert lock.acquire()
        try:
            return self.post()
        finally:
            lock.release()

    def stock(self) -> int:
        with self.app.app_context():
            stock: int = self.product().stock
            return stock

    def close(self) -> None:
        with self.app.app_context():
            self.db.engine.dispose()

    def _locked(self, app: Flask, **what: Any) -> None:
        self.log.append("lock")

    def _released(self, app: Flask, **what: Any) -> None:
        self.log.append("release")
