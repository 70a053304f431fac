"""How long COMMIT takes: PostgreSQL itself waits before it writes, as it would for a disk or a replica."""

from __future__ import annotations

import statistics
import time

import psycopg

from demo_shop.sale import PRODUCT_ID
from loadtest.servers.databases import POSTGRESQL_OPTIONS

#: A COMMIT is durable, or there would be nothing to wait for.
DURABLE = POSTGRESQL_OPTIONS | {"fsync": "on"}


def slow_down(database: str, seconds: float) -> None:
    """Have each COMMIT that writes take *seconds* longer.

    ``commit_delay`` is waited while the transaction's rows are still locked, once for each COMMIT and not for
    each row or statement. With it, one that comes meanwhile is written along, as on a disk.
    """
    with psycopg.connect(database, autocommit=True) as connection:
        for name, value in (("commit_siblings", 0), ("commit_delay", round(seconds * 1e6))):
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        connection.execute("SELECT pg_reload_conf()")
    deadline = time.monotonic() + 10.0
    while shown(database) != round(seconds * 1e6):
        assert time.monotonic() < deadline, "PostgreSQL does not read its configuration."


def shown(database: str) -> int:
    """What a new connection has: microseconds."""
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT setting FROM pg_settings WHERE name = 'commit_delay'").fetchone()
        assert row
        return int(row[0])


def measured(database: str, times: int = 21) -> float:
    """Seconds that COMMIT of a sale takes, while nobody else commits: the median of so many *times*."""
    with psycopg.connect(database) as connection:
        taken = []
        for _ in range(times):
            connection.execute("UPDATE product SET stock = stock WHERE id = %s", [PRODUCT_ID])
            began = time.perf_counter()
            connection.commit()
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)
