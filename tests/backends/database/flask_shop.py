"""A Flask shop whose lock is a row of its own database."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import text

from demo_shop.ledger import database_url
from distlock import Locks
from flask_distlock import DistLock
from flask_distlock.fence import fence_table

inside, go_on = threading.Event(), threading.Event()
db = SQLAlchemy()
locks = DistLock()
fence_table(db.metadata)
#: How long a purchase thinks, seconds.
pause = 0.002
app = Flask(__name__)


def buy(id: int) -> Any:
    stock = db.session.scalar(text("SELECT stock FROM product WHERE id = :id"), {"id": id})
    if stock < 1:
        return "sold out", 409
    time.sleep(pause)
    db.session.execute(text("UPDATE product SET stock = :n WHERE id = :id"), {"n": stock - 1, "id": id})
    db.session.execute(text("INSERT INTO sale (product) VALUES (:id)"), {"id": id})
    db.session.commit()
    return "sold"


def hold(id: int) -> Any:
    inside.set()
    assert go_on.wait(60)
    return buy(id)


def restock(id: int) -> None:
    with app.app_context(), locks.lock(f"product_{id}"):
        stock = db.session.scalar(text("SELECT stock FROM product WHERE id = :id"), {"id": id})
        time.sleep(0.002)
        db.session.execute(text("UPDATE product SET stock = :n WHERE id = :id"), {"n": stock + 1, "id": id})
        db.session.commit()


def make(url: str, guard: str, timeout: float) -> Flask:
    app.config["SQLALCHEMY_DATABASE_URI"] = database_url(url)
    app.config["DISTLOCK"] = {"default": {"BACKEND": "database", "TIMEOUT": timeout, "MAX_WAITERS": 16}}
    db.init_app(app)
    locks.init_app(app)
    lock = locks.distributed_lock("product_<id>") if guard == "row" else lambda view: view
    app.add_url_rule("/buy/<int:id>", view_func=lock(buy), methods=["POST"])
    app.add_url_rule("/hold/<int:id>", view_func=lock(hold), methods=["POST"])
    return app


@contextmanager
def client() -> Iterator[Locks]:
    with app.app_context():
        yield locks["default"]


def create_tables() -> None:
    with app.app_context():
        db.create_all()
