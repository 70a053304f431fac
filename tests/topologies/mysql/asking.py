"""What tests ask the server beside distlock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pymysql
from sqlalchemy import make_url

import distlock

#: Makes a client of a URL, closed at the end of the test.
Connect = Callable[..., distlock.Locks]


def prepare(url: str) -> None:
    locks = distlock.connect(url)
    locks.namespace.prepare()
    locks.close()


def session(url: str) -> pymysql.Connection:
    where = make_url(url)
    return pymysql.connect(
        host=where.host,
        port=where.port or 0,
        user=where.username,
        database=where.database,
        ssl_disabled=True,
        autocommit=True,
    )


def asked(url: str, statement: str) -> list[tuple[object, ...]]:
    with closing(session(url)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def with_user(url: str, user: str, more: str = "") -> str:
    """The URL for a new *user*, which has the rights that the page names."""
    asked(url, f"CREATE USER {user}@'%' {more}")
    asked(url, f"GRANT SELECT, INSERT, UPDATE ON distlock_name TO {user}@'%'")
    return url.replace("shop@", f"{user}@")


def waiting(url: str, key: str = "%") -> int:
    """How many sessions wait for the lock of *key*, or of any."""
    [(count,)] = asked(
        url,
        "SELECT COUNT(DISTINCT p.ID) FROM information_schema.PROCESSLIST p JOIN distlock_name n "
        f"ON p.INFO LIKE CONCAT('%%', n.lock_name, '%%') WHERE p.STATE = 'User lock' AND n.name LIKE '{key}'",
    )
    assert isinstance(count, int)
    return count
