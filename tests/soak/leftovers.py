"""What a soak leaves on its lock services, beyond what the page of each says that stays, and for how long.

Nothing of distlock is used here: the lock services are asked by their own clients.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

import redis
from redis.sentinel import Sentinel

from loadtest.servers.zookeeper import ask
from tests.soak.notes import LATCH_TTL

#: How many are told.
MOST = 5
#: How many names the callers use at most.
NAMES = 20
#: The class of the advisory locks on PostgreSQL.
ADVISORY_CLASS = 1684826929


def find_leftovers(url: str, ttl: float, patience: float) -> list[str]:
    """Return what is left on the lock service *url*, whose clients have ended.

    Leases of *ttl* seconds have the time to end, and *patience* more seconds.
    """
    scheme, deadline, never = url.partition(":")[0], time.monotonic() + 2 * ttl + patience, threading.Event()
    while left := list(SERVICES[scheme](url, ttl)):
        if time.monotonic() > deadline:
            more = [f"and {len(left) - MOST} more"] if len(left) > MOST else []
            return left[:MOST] + more
        never.wait(0.2)
    return []


def _in_redis(url: str, ttl: float) -> Iterator[str]:
    with redis.Redis.from_url(url, decode_responses=True, socket_timeout=10) as client:
        yield from _on_server(client, ttl)


def _in_sentinel(url: str, ttl: float) -> Iterator[str]:
    parts = urlsplit(url)
    watched = Sentinel(_addresses(url), socket_timeout=10)
    primary = parts.path.split("/")[1]
    with watched.master_for(
        primary, redis_class=redis.Redis, decode_responses=True, socket_timeout=10
    ) as client:
        yield from _on_server(client, ttl)


def _in_cluster(url: str, ttl: float) -> Iterator[str]:
    with redis.RedisCluster(*_addresses(url)[0], decode_responses=True, socket_timeout=10) as cluster:
        for node in cluster.get_primaries():
            yield from _on_server(node.redis_connection, ttl)


def _in_redlock(url: str, ttl: float) -> Iterator[str]:
    for host, port in _addresses(url):
        with redis.Redis(host, port, decode_responses=True, socket_timeout=10) as client:
            for said in _on_server(client, ttl):
                yield f"server {port}: {said}"


def _addresses(url: str) -> list[tuple[str, int]]:
    hosts = urlsplit(url).netloc.rpartition("@")[2].split(",")
    return [(host, int(port)) for host, _, port in (one.partition(":") for one in hosts)]


def _on_server(client: redis.Redis, ttl: float) -> Iterator[str]:
    """Yield the keys of the locks that are held, and those that live longer than the page says."""
    #: What follows the name in a key, and how long that may live, seconds. A hold is looked at.
    longest = {
        ":fence": 70.0,
        ":limit": 60.0,
        ":queue": 60.0,
        ":watched": 60.0,
        ":wanted": 60.0 + ttl,
        ":latch": LATCH_TTL,
        "process": 15.0 + ttl,
        "processes": 86400.0,
    }
    for key in client.scan_iter(count=1000):
        if not key.startswith("dl:2:"):
            yield f"the key {key}, which is not of distlock"
            continue
        kind = key.rpartition("}")[2] if "{" in key else key.split(":")[2]
        lives = client.pttl(key) / 1000
        if lives == -0.002:
            continue  # It has expired meanwhile.
        if kind == "":
            kept = client.get(key) or ""
            if len(kept.split()) > 2:
                yield f"the hold {key}: {kept}"
            elif not 0 < lives <= 30:
                yield f"the remnant {key} for {lives:g} s"
        elif kind == ":holders":
            yield f"the holders {key}: {client.zrange(key, 0, -1)}"
        elif not 0 < lives <= longest.get(kind, 0.0):
            yield f"the key {key} for {lives:g} s" if lives >= 0 else f"the key {key} for ever"


def _in_zookeeper(url: str, ttl: float) -> Iterator[str]:
    from kazoo.client import KazooClient

    address = urlsplit(url)
    said = ask(address.port or 2181, b"mntr").decode()
    for word in ("zk_ephemerals_count", "zk_global_sessions"):
        if (found := re.search(rf"^{word}\s+(\d+)$", said, re.MULTILINE)) and found[1] != "0":
            yield f"{found[1]} of {word}"
    client = KazooClient(f"{address.hostname}:{address.port}", timeout=10)
    client.start(timeout=30)
    try:
        root = f"{address.path}/distlock-1"
        # The server deletes the empty nodes of locks, and a later caller those of latches.
        for name in set(client.get_children(root)) - {"%latches"} if client.exists(root) else ():
            for child in client.get_children(f"{root}/{name}") if client.exists(f"{root}/{name}") else ():
                yield f"the node {name}/{child}"
    finally:
        client.stop()
        client.close()


def _in_postgresql(url: str, ttl: float) -> Iterator[str]:
    import psycopg

    with psycopg.connect(url, connect_timeout=10) as connection:
        for (lock,) in connection.execute(
            "SELECT l::text FROM pg_locks l WHERE locktype = 'advisory' AND classid = %s", [ADVISORY_CLASS]
        ):
            yield f"the advisory lock {lock}"
        for session, query in connection.execute(
            "SELECT pid, query FROM pg_stat_activity WHERE application_name LIKE 'distlock%'"
        ):
            yield f"the session {session}: {query}"
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        for (table,) in connection.execute(tables).fetchall():
            if table != "distlock_name":
                yield f"the table {table}"
        yield from _too_many_rows(connection.execute("SELECT count(*) FROM distlock_name").fetchone())


def _in_mysql(url: str, ttl: float) -> Iterator[str]:
    import pymysql

    address = urlsplit(url)
    with (
        closing(
            pymysql.connect(
                host=address.hostname,
                port=address.port or 3306,
                user=address.username,
                password=unquote(address.password or ""),
                database=address.path.strip("/"),
                connect_timeout=10,
                read_timeout=30,
            )
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(
            "SELECT id, info FROM information_schema.processlist "
            "WHERE id <> CONNECTION_ID() AND user = SUBSTRING_INDEX(CURRENT_USER(), '@', 1)"
        )
        for session, query in cursor.fetchall():
            yield f"the session {session}: {query}"
        cursor.execute("SELECT name FROM distlock_name WHERE IS_USED_LOCK(lock_name) IS NOT NULL")
        for (name,) in cursor.fetchall():
            yield f"the lock of {name}"
        cursor.execute("SHOW TABLES")
        for (table,) in cursor.fetchall():
            if table != "distlock_name":
                yield f"the table {table}"
        cursor.execute("SELECT count(*) FROM distlock_name")
        yield from _too_many_rows(cursor.fetchone())


def _too_many_rows(count: tuple[int, ...] | None) -> Iterator[str]:
    if count is not None and count[0] > NAMES:
        yield f"{count[0]} rows of distlock_name"


def _in_directory(url: str, ttl: float) -> Iterator[str]:
    """Yield the files of clients. One that came later has deleted those of clients that were killed."""
    root = Path(unquote(urlsplit(url).path)) / "v2"
    stays = re.compile(r"state|latches/.*")
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if not path.is_dir() and not stays.fullmatch(name):
            yield f"the file {name}"


#: The functions that look at a lock service, by the scheme of its URL.
SERVICES: dict[str, Callable[[str, float], Iterator[str]]] = {
    "file": _in_directory,
    "mysql": _in_mysql,
    "postgresql": _in_postgresql,
    "redis": _in_redis,
    "redis+cluster": _in_cluster,
    "redis+sentinel": _in_sentinel,
    "redlock": _in_redlock,
    "zookeeper": _in_zookeeper,
}
