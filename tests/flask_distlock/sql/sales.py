"""A sale to eight threads, who ask for more than there is, on a real database. What commits is to be said."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from flask import Flask, Response, after_this_request
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import event, func, insert, select, text, update

from demo_shop.ledger import database_url
from flask_distlock import DistLock, distributed_lock
from flask_distlock.fence import fence_table
from tests.transactions.till import COMMIT_TAKES, DECIDING_TAKES, STOCK, THREADS, ask_wsgi, sell_by_threads

#: Sells a piece of the product 1 if there is one, in a SELECT.
FUNCTION = f"""
DROP FUNCTION IF EXISTS sell;
CREATE FUNCTION sell(which int) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE n int;
BEGIN
  SELECT stock INTO n FROM product WHERE id = which;
  IF n < 1 THEN RETURN false; END IF;
  PERFORM pg_sleep({DECIDING_TAKES});
  UPDATE product SET stock = n - 1 WHERE id = which;
  INSERT INTO sale (product) VALUES (which);
  RETURN true;
END $$
"""


class Store:
    """The shop over one database."""

    def __init__(self, url: str, locks: DistLock, **setting: Any) -> None:
        self.locks = locks
        self.db = db = SQLAlchemy()
        fence_table(db.metadata)

        class Product(db.Model):  # type: ignore[name-defined,misc]
            id = db.Column(db.Integer, primary_key=True)
            stock = db.Column(db.Integer, nullable=False)

        class Sale(db.Model):  # type: ignore[name-defined,misc]
            id = db.Column(db.Integer, primary_key=True)
            product = db.Column(db.Integer, nullable=False)

        self.Product, self.Sale = Product, Sale
        self.app = app = Flask(__name__)
        self.postgresql = url.startswith("postgresql")
        options: dict[str, Any] = {"pool_size": THREADS}
        if url.startswith("sqlite"):
            options["connect_args"] = {"timeout": 60}
        if "BACKEND" not in setting:
            setting["LOCATION"] = f"memory://sales{id(self)}"
        app.config.from_mapping(
            SQLALCHEMY_DATABASE_URI=database_url(url),
            SQLALCHEMY_ENGINE_OPTIONS=options,
            DISTLOCK={"default": {"TIMEOUT": 60, **setting}},
        )
        db.init_app(app)
        locks.init_app(app)
        with app.app_context():
            db.drop_all()
            db.create_all()
            db.session.add(Product(id=1, stock=STOCK))
            if self.postgresql:
                db.session.execute(text(FUNCTION))
            db.session.commit()
            event.listen(db.engine, "commit", lambda connection: time.sleep(COMMIT_TAKES))

    def close(self) -> None:
        with self.app.app_context():
            self.locks.close()
            self.db.engine.dispose()

    def serve(self, view: Callable[[], Any], locked: bool = True, **words: Any) -> None:
        view.__name__ = "buy"
        guard = distributed_lock("product_1", **words) if locked else lambda view: view
        self.app.add_url_rule("/product/1/buy", "buy", guard(view), methods=["POST"])

    def sale(self) -> dict[str, Any]:
        """What was answered how often, and what the database says then."""
        answers = sell_by_threads(lambda: ask_wsgi(self.app.wsgi_app), lambda: None)
        with self.app.app_context():
            orders = self.db.session.scalar(select(func.count()).select_from(self.Sale))
            left = self.db.session.get(self.Product, 1).stock
        return {"answers": answers, "orders": orders, "left": left}

    # How a piece is sold. None of them commits.

    def orm(self) -> bool:
        product = self.db.session.get(self.Product, 1)
        if product.stock < 1:
            return False
        time.sleep(DECIDING_TAKES)
        product.stock = product.stock - 1
        self.db.session.add(self.Sale(product=1))
        return True

    def words(self) -> bool:
        stock = self.db.session.execute(text("SELECT stock FROM product WHERE id = 1")).scalar_one()
        if stock < 1:
            return False
        time.sleep(DECIDING_TAKES)
        self.db.session.execute(text("UPDATE product SET stock = :n WHERE id = 1"), {"n": stock - 1})
        self.db.session.execute(text("INSERT INTO sale (product) VALUES (1)"))
        return True

    def function(self) -> bool:
        return bool(self.db.session.scalar(select(func.sell(1))))

    def select_in_words(self) -> bool:
        return bool(self.db.session.execute(text("SELECT sell(1)")).scalar_one())

    def with_in_words(self) -> bool:
        return bool(self.db.session.execute(text("/* x */ WITH x AS (SELECT sell(1)) TABLE x")).scalar_one())

    def cte(self) -> bool:
        stock = self.db.session.scalar(select(self.Product.stock).where(self.Product.id == 1))
        if stock < 1:
            return False
        time.sleep(DECIDING_TAKES)
        taken = update(self.Product).values(stock=stock - 1).returning(self.Product.id).cte()
        noted = insert(self.Sale).from_select(["product"], select(taken.c.id)).returning(self.Sale.id).cte()
        self.db.session.execute(select(noted.c.id)).all()
        return True

    # What commits.

    def view(self) -> None:
        self.commit = self.db.session.commit

    def after_request(self) -> None:
        @self.app.after_request
        def commit(response: Response) -> Response:
            self.db.session.commit()
            return response

    def async_after_request(self) -> None:
        @self.app.after_request
        async def commit(response: Response) -> Response:
            self.db.session.commit()
            return response

    def after_this_request(self) -> None:
        def commit(response: Response) -> Response:
            self.db.session.commit()
            return response

        self.commit = lambda: after_this_request(commit)

    def teardown_request(self) -> None:
        self.app.teardown_request(lambda error: self.db.session.commit())

    def teardown_appcontext(self) -> None:
        self.app.teardown_appcontext(lambda error: self.db.session.commit())

    #: What the view does at its end.
    commit: Callable[[], Any] = staticmethod(lambda: None)

    def buy(self, sell: Callable[[], bool]) -> Any:
        sold = sell()
        self.commit()
        return "sold" if sold else ("sold out", 409)


#: Opens a store on a database of some kind.
Open = Callable[..., Store]
