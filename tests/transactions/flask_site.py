"""Flask apps with Flask-SQLAlchemy on one database, sold out through ``wsgi_app``, one for each cell.

Run as ``python -m tests.transactions.flask_site URL ISOLATION ARRANGEMENT:GUARD …``; prints a line of JSON
for each cell. ISOLATION is ``default`` or a level such as ``SERIALIZABLE``.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from flask import Flask, got_request_exception
from sqlalchemy import Engine, delete, event, func, select, update
from sqlalchemy.orm import Session

import distlock
from demo_shop.ledger import database_url
from distlock import Lock
from distlock.errors import ConfigurationError
from flask_distlock import DistLock
from flask_distlock.fence import fence_table
from tests.transactions.arrangement import OURS, Arrangement
from tests.transactions.flask_arrangements import BOOK, FLASK, Customer, Product, Sale, db
from tests.transactions.till import (
    COMMIT_TAKES,
    STOCK,
    THREADS,
    Answer,
    Outcome,
    ask_wsgi,
    sell_by_threads,
    told_fence,
)

MEMORY = {"default": {"LOCATION": "memory://matrix", "TIMEOUT": 60}}
BARE = distlock.connect("memory://matrix", timeout=60)
SERVICES = {
    "batch": {"default": {"LOCATION": "memory://matrix", "FENCE": True, "TIMEOUT": 60}},
    "fence": {"default": {"BACKEND": "dummy", "FENCE": True, "TIMEOUT": 60}},
    "row": {"default": {"BACKEND": "database", "TIMEOUT": 60}},
}

fence_table(db.metadata)
locks = DistLock()


def take_long_to_commit() -> None:
    event.listen(Engine, "commit", lambda connection: time.sleep(COMMIT_TAKES))
    event.listen(Session, "after_commit", lambda session: BOOK.committed())
    event.listen(Session, "after_soft_rollback", lambda session, transaction: BOOK.rolled_back())


def bare(name: str) -> Lock:
    """The same lock, which knows nothing of sessions."""
    return BARE.lock(name)


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The control: the same lock, let go when the decorator returns."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(**kwargs: Any) -> Any:
            async with bare("product_1") as grant:
                told_fence.set(tuple(grant.fence))
                return await function(**kwargs)

    else:

        @functools.wraps(function)
        def wrapper(**kwargs: Any) -> Any:
            with bare("product_1") as grant:
                told_fence.set(tuple(grant.fence))
                return function(**kwargs)

    return wrapper


def batch_of(guard: str) -> dict[str, Any]:
    return {"batch": 32} if guard == "batch" else {}


def guard_of(arrangement: Arrangement, guard: str) -> Callable[..., Any]:
    if arrangement.block:
        return {"plain": bare, "lock": locks.lock, "nothing": lambda name: contextlib.nullcontext()}[guard]
    if guard == "plain":
        return plain
    if guard == "nothing" or arrangement.rule:
        return lambda view: view
    return locks.distributed_lock("product_<int:id>", **batch_of(guard))


def make_app(url: str, isolation: str) -> Flask:
    app = Flask(__name__)
    options: dict[str, Any] = {"pool_size": THREADS}
    if isolation != "default":
        options["isolation_level"] = isolation
    if url.startswith("sqlite"):
        options["connect_args"] = {"timeout": 60}
    app.config["SQLALCHEMY_DATABASE_URI"] = database_url(url)
    app.config["SQLALCHEMY_ENGINE_OPTIONS"] = options
    db.init_app(app)
    return app


def run(url: str, isolation: str, arrangement: Arrangement, guard: str) -> Outcome:
    app = make_app(url, isolation)
    app.config["DISTLOCK"] = SERVICES.get(guard, MEMORY)
    if arrangement.rule and guard in OURS:
        app.config["DISTLOCK_RULES"] = [{"route": "buy", "lock": "product_<id>", **batch_of(guard)}]
    locks.init_app(app)
    arrangement.make(app, guard_of(arrangement, guard))
    refusals: list[str] = []

    def refused(sender: Flask, exception: Exception, **extra: Any) -> None:
        if isinstance(exception, ConfigurationError):
            refusals.append(str(exception))

    def post() -> Answer:
        if arrangement.trouble:
            ask_wsgi(app.wsgi_app, "trouble")
        return ask_wsgi(app.wsgi_app)

    got_request_exception.connect(refused, app)
    BOOK.sales.clear()
    with app.app_context():
        stock_up()
    answers = sell_by_threads(post, lambda: None)
    with app.app_context():
        sold = db.session.scalar(select(func.count()).select_from(Sale))
        left = db.session.get(Product, 1).stock
        db.session.remove()
        db.engine.dispose()
        locks.close()
    return Outcome(sold, left, answers, BOOK.complaints(guard), refusals[0] if refusals else "")


def make_tables(url: str) -> None:
    with make_app(url, "default").app_context():
        db.drop_all()
        db.create_all()
        db.session.add_all([Product(id=1, stock=0), Customer()])
        db.session.commit()
        db.session.remove()
        db.engine.dispose()


def stock_up() -> None:
    db.session.execute(update(Product).values(stock=STOCK))
    db.session.execute(delete(Sale))
    db.session.commit()


def main() -> None:
    logging.disable()
    url, isolation, *cells = sys.argv[1:]
    make_tables(url)
    take_long_to_commit()
    for cell in cells:
        name, _, guard = cell.partition(":")
        print(run(url, isolation, FLASK[name], guard).dump(), flush=True)


if __name__ == "__main__":
    main()
