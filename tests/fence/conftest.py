"""Three databases, each with the fence's table, for SQLAlchemy and for Django."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from django.core.management import call_command
from django.db import connections
from sqlalchemy import Engine, MetaData, create_engine, event, make_url, text

from demo_shop import ledger
from distlock.fence.stamps import Stamp
from distlock.grants.grant import Fence
from flask_distlock.fence import fence_table
from tests.databases import Databases
from tests.redis_server import redis_server

__all__ = ["redis_server"]

STOCK = 40

#: The alias of the database under test, in Django.
ALIAS = "fenced"


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def database(request: pytest.FixtureRequest, databases: Databases) -> str:
    """The URL of a database."""
    return databases(request.param, "fence")


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    """With an empty fence and `STOCK` pieces in the table ``stock``."""
    engine = create_engine(ledger.database_url(database), pool_size=16)
    if engine.dialect.name == "sqlite":

        @event.listens_for(engine, "connect")
        def set_pragmas(connection: Any, _record: object) -> None:
            connection.isolation_level = None
            connection.execute("PRAGMA journal_mode=WAL")

        @event.listens_for(engine, "begin")
        def begin(connection: Any) -> None:
            connection.exec_driver_sql("BEGIN")

    metadata = MetaData()
    fence_table(metadata)
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM distlock_fence"))
        connection.execute(text("DROP TABLE IF EXISTS stock"))
        connection.execute(text("CREATE TABLE stock (id INTEGER PRIMARY KEY, qty INTEGER)"))
        connection.execute(text("INSERT INTO stock VALUES (1, :n)"), {"n": STOCK})
    yield engine
    engine.dispose()


@pytest.fixture
def using(database: str, engine: Engine, django_db_blocker: Any) -> Iterator[str]:
    """The same database as an alias of Django."""
    pymysql.install_as_MySQLdb()
    url = make_url(database)
    kind = {"sqlite": "sqlite3", "mysql": "mysql"}.get(url.drivername, url.drivername)
    settings = {
        "ENGINE": f"django.db.backends.{kind}",
        "NAME": url.database,
        "HOST": url.host or "",
        "PORT": url.port or "",
        "USER": url.username or "",
        "OPTIONS": dict(url.query),
    }
    with django_db_blocker.unblock():
        connections.settings[ALIAS] = connections.configure_settings({"default": settings})["default"]
        try:
            yield ALIAS
        finally:
            connections[ALIAS].close()
            del connections[ALIAS], connections.settings[ALIAS]


@pytest.fixture
def migrated(engine: Engine, using: str) -> str:
    """The same, with the table that Django's migrations make."""
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE distlock_fence"))
        connection.execute(text("DROP TABLE IF EXISTS django_migrations"))
    call_command("migrate", "distlock", database=using, verbosity=0)
    return using


def write_row(engine: Engine, number: int, holder_id: str = "other", *statements: str) -> None:
    """Somebody else has passed with *number* for ``product_1``, and done *statements* in that transaction."""
    [key, namespace, name] = Stamp("shop", "product_1", Fence(1, number), holder_id).values
    values = {"id": key, "namespace": namespace, "name": name, "number": number, "holder_id": holder_id}
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM distlock_fence WHERE id = :id"), values)
        columns = "(id, namespace, name, epoch, number, holder_id, passed_at)"
        row = (
            f"INSERT INTO distlock_fence {columns} VALUES (:id, :namespace, :name, 1, :number, :holder_id, 1)"
        )
        connection.execute(text(row), values)
        for statement in statements:
            connection.execute(text(statement))
