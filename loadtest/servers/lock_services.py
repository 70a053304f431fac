"""The lock services that a run can have, and the outages that strike them during a sale."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from demo_shop.configuration import IN_THE_DATABASE
from demo_shop.sale import PRODUCT_ID
from loadtest.servers.databases import own_mariadb, own_postgresql, running_mariadb, running_postgresql
from loadtest.servers.processes import ChildProcess
from loadtest.servers.redis_servers import (
    WatchedRedis,
    deafen,
    open_sentinels,
    redlock_url,
    running_redis,
    running_redlock,
    tell,
)
from loadtest.servers.zookeeper import open_ensemble, open_zookeeper

if TYPE_CHECKING:
    from loadtest.servers.redis_cluster import RedisCluster


@contextmanager
def open_file(directory: Path) -> Iterator[str]:
    locks = directory / "locks"
    locks.mkdir()
    yield locks.as_uri()


@contextmanager
def open_redis(directory: Path) -> Iterator[str]:
    with running_redis(directory) as (_, port):
        yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def open_nothing(directory: Path) -> Iterator[str]:
    """Start nothing: the lock is a row of the shop's own database."""
    yield IN_THE_DATABASE


#: The functions that start a lock service in the run's directory, and yield its URL.
BACKENDS: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
    "file": open_file,
    "redis": open_redis,
    "zookeeper": open_zookeeper,
    IN_THE_DATABASE: open_nothing,
}


@contextmanager
def open_cluster(directory: Path) -> Iterator[str]:
    # Import RedisCluster here, because the options are read before redis-py is installed.
    from loadtest.servers.redis_cluster import RedisCluster

    with RedisCluster(directory) as cluster:
        yield cluster.url


@contextmanager
def open_redlock(directory: Path) -> Iterator[str]:
    with running_redlock(directory) as servers:
        yield redlock_url(servers)


@contextmanager
def open_postgresql(directory: Path) -> Iterator[str]:
    """Start a PostgreSQL server for locks, separate from the shop's database, and create its tables."""
    with running_postgresql() as url:
        prepare(url)
        yield url


@contextmanager
def open_mysql(directory: Path) -> Iterator[str]:
    """Start a MariaDB server for locks, and create its tables."""
    with running_mariadb() as url:
        prepare(url)
        yield url


def prepare(url: str) -> None:
    import distlock

    with closing(distlock.connect(url)) as locks:
        locks.namespace.prepare()


#: Lock services of several servers, and databases as lock services. The matrix leaves both out.
TOPOLOGIES: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
    "cluster": open_cluster,
    "mysql": open_mysql,
    "postgresql": open_postgresql,
    "redlock": open_redlock,
    "sentinel": open_sentinels,
}


@contextmanager
def open_lock_service(backend: str, directory: Path) -> Iterator[str]:
    """Yield the URL of *backend*, which is one of `BACKENDS` or `TOPOLOGIES`, or a URL already."""
    if "://" in backend:
        yield backend
    else:
        with (BACKENDS | TOPOLOGIES)[backend](directory) as url:
            yield url


#: The lock that the buyers of the story wait for.
KEY = f"shop:product_{PRODUCT_ID}"
#: After this many milliseconds of silence, the sentinels take a server for dead.
DOWN_AFTER = 1000


def nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class StrikableService:
    """A lock service that can be struck once."""

    url: str
    strike: Callable[[], object]
    #: Called before the sale.
    prepare: Callable[[], object] = nothing


@dataclass(frozen=True, slots=True)
class Outage:
    """What is done to a lock service during a sale, and how the service reacts."""

    slug: str
    #: A key of `BACKENDS` or `TOPOLOGIES`.
    backend: str
    #: What is done, in words.
    what: str
    #: Whether the service forgets who holds the lock.
    forgets: bool
    #: Why it does or does not.
    why: str
    #: How many seconds the service may need to go on, according to its settings.
    takes: float
    #: Starts the service in a directory.
    open: Callable[[Path], AbstractContextManager[StrikableService]]
    #: Whether it may forget holds that it grants during the outage.
    by_chance: bool = False


@contextmanager
def sentinel_killed(directory: Path) -> Iterator[StrikableService]:
    with watched(directory) as found:
        primary = found.primary()
        yield StrikableService(found.url, found.servers[primary].kill, lambda: deafen(primary))


@contextmanager
def sentinel_replaced(directory: Path) -> Iterator[StrikableService]:
    with watched(directory) as found:
        yield StrikableService(found.url, found.fail_over)


@contextmanager
def watched(directory: Path) -> Iterator[WatchedRedis]:
    found = WatchedRedis(directory, down_after=DOWN_AFTER)
    try:
        yield found
    finally:
        found.stop()


@contextmanager
def cluster_killed(directory: Path) -> Iterator[StrikableService]:
    with cluster(directory) as found:
        primary = found.node_of(KEY)
        yield StrikableService(found.url, primary.kill, lambda: deafen(primary.port))


@contextmanager
def cluster_moved(directory: Path) -> Iterator[StrikableService]:
    with cluster(directory) as found:
        yield StrikableService(found.url, lambda: found.move(KEY))


def cluster(directory: Path) -> RedisCluster:
    # Import RedisCluster here, because the options are read before redis-py is installed.
    from loadtest.servers.redis_cluster import RedisCluster

    return RedisCluster(directory)


@contextmanager
def zookeeper_killed(directory: Path) -> Iterator[StrikableService]:
    with open_ensemble(directory) as ensemble:
        yield StrikableService(ensemble.url, lambda: ensemble.leader().kill())


@contextmanager
def redlock_killed(directory: Path) -> Iterator[StrikableService]:
    with running_redlock(directory) as servers:
        one, two, *_ = servers.values()
        yield StrikableService(redlock_url(servers), lambda: kill(one, two))


def kill(*servers: ChildProcess) -> None:
    for child in servers:
        child.kill()


@contextmanager
def redlock_emptied(directory: Path) -> Iterator[StrikableService]:
    with running_redlock(directory) as servers:
        three = list(servers)[:3]
        yield StrikableService(redlock_url(servers), lambda: [tell(port, "FLUSHALL") for port in three])


@contextmanager
def postgresql_restarted(directory: Path) -> Iterator[StrikableService]:
    with own_postgresql() as server:
        prepare(server.url)
        yield StrikableService(server.url, server.restart)


@contextmanager
def mysql_restarted(directory: Path) -> Iterator[StrikableService]:
    with own_mariadb() as server:
        prepare(server.url)
        yield StrikableService(server.url, server.restart)


# A primary grants a hold before its replicas know of the hold. So a replica that takes its place may not know
# the hold.
UNHEARD = "The primary had said yes, and the one that took its place had not heard of it"
ENDED = "The lock is a session's, and a restart ends all sessions"

OUTAGES = (
    Outage(
        "sentinel-killed",
        "sentinel",
        "the primary killed, its replicas behind",
        True,
        UNHEARD,
        4.0,
        sentinel_killed,
    ),
    Outage(
        "sentinel-replaced",
        "sentinel",
        "SENTINEL FAILOVER",
        False,
        "The replica that took over had heard of the hold, and the former primary goes on for a moment",
        4.0,
        sentinel_replaced,
        by_chance=True,
    ),
    Outage(
        "cluster-killed",
        "cluster",
        "the primary of its slot killed, its replica behind",
        True,
        UNHEARD,
        4.0,
        cluster_killed,
    ),
    Outage(
        "cluster-moved",
        "cluster",
        "its slot moved to another primary",
        False,
        "The hold and its line moved along",
        1.0,
        cluster_moved,
    ),
    Outage(
        "zookeeper-killed",
        "zookeeper",
        "the leader of three servers killed",
        False,
        "What a majority has written down the next leader knows",
        5.0,
        zookeeper_killed,
    ),
    Outage(
        "redlock-killed",
        "redlock",
        "two of five servers killed",
        False,
        "Three of five are a majority still",
        0.0,
        redlock_killed,
    ),
    Outage(
        "redlock-emptied",
        "redlock",
        "three of five servers emptied",
        True,
        "A majority that has lost its data said yes to somebody else",
        0.0,
        redlock_emptied,
    ),
    Outage(
        "postgresql-restarted",
        "postgresql",
        "the server restarted",
        True,
        ENDED,
        5.0,
        postgresql_restarted,
    ),
    Outage(
        "mysql-restarted",
        "mysql",
        "the MariaDB server killed and started again",
        True,
        ENDED,
        5.0,
        mysql_restarted,
    ),
)
STRUCK_BACKENDS = tuple(dict.fromkeys(outage.backend for outage in OUTAGES))
