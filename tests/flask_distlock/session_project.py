"""A Flask shop with Flask-SQLAlchemy on PostgreSQL, sold out by threads.

A hook reads the product before the view does, as a login would, so that the session has begun, and knows the
product, before the lock is there. Run as ``python -m tests.flask_distlock.session_project PORT GUARD``.
"""

from __future__ import annotations

import functools
import json
import sys
import threading

from flask import Flask, g
from flask.views import MethodView
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import func, select

from flask_distlock import DistLock

THREADS = 8
POSTS = 8
STOCK = 40

db = SQLAlchemy()
locks = DistLock()


class Product(db.Model):
    id = db.Column(db.Integer, primary_key=True)
    stock = db.Column(db.Integer, nullable=False)


class Sale(db.Model):
    id = db.Column(db.Integer, primary_key=True)
    product = db.Column(db.Integer, nullable=False)


def read_first() -> None:
    g.product = db.session.get(Product, 1)


def buy(id: int):
    product = db.session.get(Product, id)
    if product.stock < 1:
        return "sold out", 409
    product.stock = product.stock - 1
    db.session.add(Sale(product=id))
    db.session.commit()
    return "sold"


async def abuy(id: int):
    return buy(id)


class Buy(MethodView):
    async def post(self, id: int):
        return buy(id)


def lock_only(view):
    """The control: the same lock around the same commit, over a session that began before it."""

    @functools.wraps(view)
    def wrapper(id: int):
        with locks.lock(f"product_{id}"):
            return view(id)

    return wrapper


def make_app(port: int, guard: str) -> Flask:
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = f"postgresql+psycopg://shop@127.0.0.1:{port}/shop"
    app.config["SQLALCHEMY_ENGINE_OPTIONS"] = {"pool_size": THREADS}
    app.config["DISTLOCK"] = {"default": {"BACKEND": "memory", "TIMEOUT": 60}}
    db.init_app(app)
    locks.init_app(app)
    app.before_request(read_first)
    lock = locks.distributed_lock("product_<id>")
    views = {
        "decorator": lambda: lock(buy),
        "async": lambda: lock(abuy),
        "class": lambda: lock(Buy).as_view("buy"),
        "rule": lambda: buy,
        "control": lambda: lock_only(buy),
    }
    app.add_url_rule("/product/<int:id>", "buy", views[guard](), methods=["POST"])
    if guard == "rule":
        app.config["DISTLOCK_RULES"] = [{"route": "buy", "lock": "product_<id>"}]
    return app


def sell_out(app: Flask) -> list[int]:
    statuses: list[int] = []
    start = threading.Barrier(THREADS)

    def shop() -> None:
        client = app.test_client()
        start.wait()
        statuses.extend(client.post("/product/1").status_code for _ in range(POSTS))

    threads = [threading.Thread(target=shop) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def main() -> None:
    app = make_app(int(sys.argv[1]), sys.argv[2])
    with app.app_context():
        db.drop_all()
        db.create_all()
        db.session.add(Product(id=1, stock=STOCK))
        db.session.commit()
    statuses = sell_out(app)
    with app.app_context():
        sold = db.session.scalar(select(func.count()).select_from(Sale))
        left = db.session.get(Product, 1).stock
    answers = {status: statuses.count(status) for status in sorted(set(statuses))}
    print(json.dumps({"sold": sold, "left": left, "answers": answers}))


if __name__ == "__main__":
    main()
