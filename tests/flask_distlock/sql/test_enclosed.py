"""Commits that the guard does not see: of sessions and connections of the site's own, in hooks and teardowns.

Each view sells with a connection that distlock knows nothing of. What commits it asks first whether the lock
is still held, and eight threads may not buy more than there is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import flask_sqlalchemy_lite
import psycopg_pool
import pytest
from flask import Flask, Response, g
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import create_engine, text
from sqlalchemy.orm import scoped_session, sessionmaker

from demo_shop.ledger import database_url
from flask_distlock import DistLock, distributed_lock
from tests.databases import Databases
from tests.transactions.till import (
    COMMIT_TAKES,
    DECIDING_TAKES,
    REQUESTS,
    STOCK,
    THREADS,
    ask_wsgi,
    sell_by_threads,
)

RIGHT = {"answers": {"200": STOCK, "409": REQUESTS - STOCK}, "orders": STOCK, "held": {True}}

#: Runs a statement, and gives the first value that it returns.
Execute = Callable[[str], Any]


class Site:
    """A shop without Flask-SQLAlchemy's session. *url*: of PostgreSQL."""

    def __init__(self, url: str, app: Flask, locks: DistLock) -> None:
        self.app, self.locks = app, locks
        self.url = url
        self.engine = create_engine(database_url(url), pool_size=THREADS)
        #: Whether the lock was held at each COMMIT.
        self.held: list[bool] = []
        #: What closes the connections.
        self.closes: list[Callable[[], object]] = [self.engine.dispose]
        with self.engine.begin() as connection:
            for statement in (
                "DROP TABLE IF EXISTS enclosed_product, enclosed_sale",
                "CREATE TABLE enclosed_product (id int PRIMARY KEY, stock int)",
                "CREATE TABLE enclosed_sale (id serial PRIMARY KEY)",
                f"INSERT INTO enclosed_product VALUES (1, {STOCK})",
            ):
                connection.execute(text(statement))

    def commit(self, commit: Callable[[], object]) -> None:
        """Commit as a slow disk does."""
        self.held.append(self.locks.lock("product_1").locked())
        time.sleep(COMMIT_TAKES)
        commit()

    def serve(self, execute: Execute, guard: Callable[..., Any]) -> None:
        def buy() -> Any:
            stock = execute("SELECT stock FROM enclosed_product WHERE id = 1")
            if stock < 1:
                return "sold out", 409
            time.sleep(DECIDING_TAKES)
            execute(f"UPDATE enclosed_product SET stock = {stock - 1} WHERE id = 1 RETURNING id")
            execute("INSERT INTO enclosed_sale DEFAULT VALUES RETURNING id")
            return "sold"

        self.app.add_url_rule("/product/1/buy", "buy", guard(buy), methods=["POST"])

    def sale(self) -> dict[str, Any]:
        answers = sell_by_threads(lambda: ask_wsgi(self.app.wsgi_app), lambda: None)
        with self.engine.connect() as connection:
            orders = connection.execute(text("SELECT count(*) FROM enclosed_sale")).scalar_one()
        return {"answers": answers, "orders": orders, "held": set(self.held)}

    def close_in_context(self, close: Callable[[], object]) -> None:
        def closing() -> None:
            with self.app.app_context():
                close()

        self.closes.insert(0, closing)

    def close(self) -> None:
        for close in self.closes:
            close()


@pytest.fixture
def site(databases: Databases, make_app: Callable[..., Flask], locks: DistLock) -> Iterator[Site]:
    name = f"memory://enclosed{time.monotonic_ns()}"
    app = make_app(DISTLOCK={"default": {"LOCATION": name, "TIMEOUT": 60}})
    site = Site(databases("postgresql", "enclosed"), app, locks)
    yield site
    site.close()


# Each opens a transaction in the view, and leaves its end to something that comes later.


def scoped_session_of_its_own(site: Site) -> Execute:
    session = scoped_session(sessionmaker(site.engine))

    @site.app.after_request
    def commit(response: Response) -> Response:
        site.commit(session.commit)
        return response

    site.app.teardown_appcontext(lambda error: session.remove())
    return lambda statement: session.execute(text(statement)).scalar_one()


def pool_of_psycopg(site: Site) -> Execute:
    pool = psycopg_pool.ConnectionPool(site.url, min_size=1, max_size=THREADS, open=True)
    site.closes.insert(0, pool.close)

    def execute(statement: str) -> Any:
        if "connection" not in g:
            g.connection = pool.getconn()
        row = g.connection.execute(statement).fetchone()
        return row[0]

    @site.app.teardown_appcontext
    def commit(error: BaseException | None) -> None:
        if (connection := g.pop("connection", None)) is not None:
            site.commit(connection.commit)
            pool.putconn(connection)

    return execute


def connection_of_flask_sqlalchemy(site: Site) -> Execute:
    site.app.config["SQLALCHEMY_DATABASE_URI"] = database_url(site.url)
    site.app.config["SQLALCHEMY_ENGINE_OPTIONS"] = {"pool_size": THREADS}
    db = SQLAlchemy(site.app)
    site.close_in_context(lambda: db.engine.dispose())

    def execute(statement: str) -> Any:
        if "connection" not in g:
            g.connection = db.engine.connect()
        return g.connection.execute(text(statement)).scalar_one()

    @site.app.teardown_appcontext
    def commit(error: BaseException | None) -> None:
        if (connection := g.pop("connection", None)) is not None:
            site.commit(connection.commit)
            connection.close()

    return execute


def session_of_flask_sqlalchemy_lite(site: Site) -> Execute:
    options = {"url": database_url(site.url), "pool_size": THREADS}
    site.app.config["SQLALCHEMY_ENGINES"] = {"default": options}
    db = flask_sqlalchemy_lite.SQLAlchemy(app=site.app)
    site.close_in_context(lambda: db.engine.dispose())

    @site.app.teardown_appcontext
    def commit(error: BaseException | None) -> None:
        # It makes one for each app context, as the test's own.
        if "_sqlalchemy_sessions" in g:
            site.commit(db.session.commit)

    return lambda statement: db.session.execute(text(statement)).scalar_one()


ARRANGEMENTS = [
    scoped_session_of_its_own,
    pool_of_psycopg,
    connection_of_flask_sqlalchemy,
    session_of_flask_sqlalchemy_lite,
]


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_what_the_guard_does_not_see_is_committed_under_its_lock(
    site: Site, arrangement: Callable[[Site], Execute]
) -> None:
    site.serve(arrangement(site), distributed_lock("product_1"))
    assert site.sale() == RIGHT


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_without_the_guard_each_of_them_oversells(site: Site, arrangement: Callable[[Site], Execute]) -> None:
    site.serve(arrangement(site), lambda view: view)
    assert site.sale()["orders"] > STOCK


def test_no_session_is_made_where_a_view_uses_none(site: Site) -> None:
    session_of_flask_sqlalchemy_lite(site)
    made: list[bool] = []
    site.app.teardown_appcontext(lambda error: made.append("_sqlalchemy_sessions" in g))
    site.app.add_url_rule("/", "view", distributed_lock("product_1")(lambda: "sold"))
    assert site.app.test_client().get("/").text == "sold"
    assert made == [False]
