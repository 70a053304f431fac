"""What can be done to the databases that are lock services. A lock belongs to a session, and ends with it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from loadtest.servers.databases import (
    MARIADB_OPTIONS,
    MariaDBServer,
    PostgreSQLServer,
    own_mariadb,
    own_postgresql,
)
from loadtest.servers.lock_services import prepare
from tests.soak.services.service import IO_TIMEOUT, TTL, Service, Strike

#: Sessions of distlock, but not our own.
POSTGRESQL_SESSIONS = """\
SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
MYSQL_SESSIONS = "SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND user = 'shop'"


def asked_postgresql(url: str, statement: str) -> list[tuple[int, ...]]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def asked_mysql(url: str, statement: str) -> list[tuple[int, ...]]:
    import pymysql
    from sqlalchemy import make_url

    where = make_url(url)
    connection = pymysql.connect(
        host=where.host, port=where.port or 0, user=where.username, ssl_disabled=True, autocommit=True
    )
    # A session that we end may end by itself just then.
    with closing(connection), connection.cursor() as cursor, suppress(pymysql.err.OperationalError):
        cursor.execute(statement)
        return list(cursor.fetchall())
    return []


def ending(
    asked: Callable[[str], list[tuple[int, ...]]], sessions: str, statement: str
) -> tuple[Strike, ...]:
    """Return what ends one session, and all of them. *statement*: ends the session ``{}``."""

    def end_one(choices: random.Random) -> None:
        if found := asked(sessions):
            asked(statement.format(*choices.choice(found)))

    def end_all(choices: random.Random) -> None:
        for one in asked(sessions):
            asked(statement.format(*one))

    return (
        Strike("session ended", end_one, lasts=IO_TIMEOUT, forgets=True),
        Strike("all sessions ended", end_all, lasts=IO_TIMEOUT, forgets=True, skips=True),
    )


def restarting(server: PostgreSQLServer | MariaDBServer) -> Strike:
    return Strike("restart", lambda _: server.restart(), lasts=IO_TIMEOUT, forgets=True, skips=True)


@contextmanager
def open_postgresql(directory: Path) -> Iterator[Service]:
    with own_postgresql() as server:
        prepare(server.url)
        ends = ending(
            lambda statement: asked_postgresql(server.url, statement),
            POSTGRESQL_SESSIONS,
            "SELECT pg_terminate_backend({})",
        )
        yield Service(server.url, (*ends, restarting(server)), killed=0.0)


@contextmanager
def open_mysql(directory: Path) -> Iterator[Service]:
    # Fences grow through a crash only if each transaction is written, as by default.
    options = [one for one in MARIADB_OPTIONS if "flush-log" not in one]
    with own_mariadb(options) as server:
        prepare(server.url)
        ends = ending(lambda statement: asked_mysql(server.url, statement), MYSQL_SESSIONS, "KILL {}")
        # It counts in whole seconds.
        yield Service(server.url, (*ends, restarting(server)), killed=0.0, stopped=TTL + 1.0)
