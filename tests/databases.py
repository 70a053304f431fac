"""Databases for the tests, on servers that are started once: each test module asks for one of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from sqlalchemy import create_engine, make_url, text

from demo_shop.ledger import database_url
from loadtest.servers.databases import SERVERS

#: The URL of a new and empty database, by the kind of the server and a name that nobody else uses.
Databases = Callable[[str, str], str]


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Databases]:
    """``sqlite``, ``postgresql`` or ``mariadb``. A server is started when first asked for."""
    with ExitStack() as running:

        @cache
        def server(kind: str) -> str:
            return running.enter_context(SERVERS[kind]())

        @cache
        def database(kind: str, name: str) -> str:
            if kind == "sqlite":
                return f"sqlite:///{tmp_path_factory.mktemp(name)}/shop.sqlite3"
            url = server(kind)
            engine = create_engine(database_url(url), isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                connection.execute(text(f"CREATE DATABASE {name}"))
            engine.dispose()
            return make_url(url).set(database=name).render_as_string(hide_password=False)

        yield database


def on(*kinds: str) -> pytest.MarkDecorator:
    """On these alone of all that the fixture ``database`` has."""
    return pytest.mark.parametrize("database", kinds, indirect=True)
