"""Servers of databases that outlive a run of tests, because to start one takes longer than most tests."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import OperationalError

from loadtest.servers.databases import SERVERS

#: The variable with the URLs of the servers, by their kinds.
URLS = "MUTATION_DATABASES"
#: Statements that list the databases which tests have made.
_MADE = {
    "postgresql": (
        "SELECT datname FROM pg_database WHERE NOT datistemplate AND datname NOT IN ('postgres', 'shop')"
    ),
    "mariadb": (
        "SELECT schema_name FROM information_schema.schemata WHERE schema_name NOT IN "
        "('information_schema', 'mysql', 'performance_schema', 'shop', 'sys')"
    ),
}
#: Statements that list what ends the connections which a test that was killed has left, and its settings.
_LEFT = {
    # DROP DATABASE ends the connections of PostgreSQL.
    "postgresql": "SELECT 'SELECT 1'",
    "mariadb": (
        "SELECT 'SET GLOBAL read_only = 0' UNION "
        "SELECT concat('KILL ', id) FROM information_schema.processlist "
        "WHERE user = 'shop' AND id <> connection_id()"
    ),
}
_DROP = {"postgresql": 'DROP DATABASE "{}" WITH (FORCE)', "mariadb": "DROP DATABASE `{}`"}


class KeptDatabases:
    """Starts a server for the first test whose name has the server's kind."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._urls: dict[str, str] = {}

    def environment(self, tests: Iterable[str]) -> dict[str, str]:
        """Return what tells a process of *tests* which servers run."""
        names = " ".join(tests)
        for kind, server in SERVERS.items():
            if kind not in self._urls and kind in names:
                self._urls[kind] = self._running.enter_context(server())
        return {URLS: json.dumps(self._urls)}

    def close(self) -> None:
        self._running.close()


def use_kept_databases() -> None:
    """Give the tests of this process the servers that run already, without the databases of earlier tests."""
    for kind, url in json.loads(os.environ.get(URLS, "{}")).items():
        SERVERS[kind] = partial(_emptied, kind, url)


@contextmanager
def _emptied(kind: str, url: str) -> Iterator[str]:
    # This imports the code under test, which has to be changed before.
    from demo_shop.ledger import database_url

    engine = create_engine(database_url(url), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        for statement in connection.execute(text(_LEFT[kind])).scalars().all():
            # A connection may have ended by itself since it was listed.
            with suppress(OperationalError):
                connection.execute(text(statement))
        for name in connection.execute(text(_MADE[kind])).scalars().all():
            connection.execute(text(_DROP[kind].format(name)))
    yield url
