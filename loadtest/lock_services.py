"""The lock service of a stack: a directory of the run, or a server that is started for it."""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from demo_shop.configuration import IN_THE_DATABASE
from loadtest.child import Child, StackError
from loadtest.mariadb import running_mariadb
from loadtest.ports import free_port
from loadtest.postgresql import running_postgresql
from loadtest.sentinels import open_sentinels
from loadtest.zookeeper import open_zookeeper


@contextlib.contextmanager
def open_file(directory: Path) -> Iterator[str]:
    locks = directory / "locks"
    locks.mkdir()
    yield locks.as_uri()


@contextlib.contextmanager
def open_redis(directory: Path) -> Iterator[str]:
    with running_redis(directory) as (_, port):
        yield f"redis://127.0.0.1:{port}/0"


@contextlib.contextmanager
def running_redis(directory: Path) -> Iterator[tuple[Child, int]]:
    """A server that keeps what it has to in *directory*, and its port."""
    server = shutil.which("redis-server")
    if not server:
        raise StackError("redis-server is not installed. Run: apt-get install redis-server, or scripts/demo.")
    port = free_port()
    command = [server, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
    child = Child("redis", [*command, "--save", "", "--appendonly", "no"], directory / "redis.log")
    try:
        child.wait_until(lambda: redis_answers(port))
        yield child, port
    finally:
        child.stop()


def redis_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(5) == b"+PONG"
    except OSError:
        return False


@contextlib.contextmanager
def open_nothing(directory: Path) -> Iterator[str]:
    """The lock is a row of the shop's own database."""
    yield IN_THE_DATABASE


#: Each makes, in the run's directory, what the lock's URL then leads to.
BACKENDS: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
    "file": open_file,
    "redis": open_redis,
    "zookeeper": open_zookeeper,
    IN_THE_DATABASE: open_nothing,
}


@contextlib.contextmanager
def open_cluster(directory: Path) -> Iterator[str]:
    # What a bare Python has to run is told before there is a client of redis-py.
    from loadtest.redis_cluster import RedisCluster

    with RedisCluster(directory) as cluster:
        yield cluster.url


@contextlib.contextmanager
def open_redlock(directory: Path) -> Iterator[str]:
    with running_redlock(directory) as servers:
        yield redlock_url(servers)


@contextlib.contextmanager
def running_redlock(directory: Path) -> Iterator[dict[int, Child]]:
    """Five Redis servers that know nothing of each other, by their ports."""
    with contextlib.ExitStack() as stop:
        servers = {}
        for number in range(1, 6):
            own = directory / f"redlock-{number}"
            own.mkdir()
            child, port = stop.enter_context(running_redis(own))
            servers[port] = child
        yield servers


def redlock_url(ports: Iterable[int]) -> str:
    return f"redlock://{','.join(f'127.0.0.1:{port}' for port in ports)}/0"


@contextlib.contextmanager
def open_postgresql(directory: Path) -> Iterator[str]:
    """A server beside that of the shop's database, with what locks need."""
    with running_postgresql() as url:
        prepare(url)
        yield url


@contextlib.contextmanager
def open_mysql(directory: Path) -> Iterator[str]:
    """A MariaDB, as `open_postgresql`."""
    with running_mariadb() as url:
        prepare(url)
        yield url


def prepare(url: str) -> None:
    import distlock

    with contextlib.closing(distlock.connect(url)) as locks:
        locks.namespace.prepare()


#: Those of several servers, and what is one of the databases, too, which the matrix leaves out.
TOPOLOGIES: dict[str, Callable[[Path], AbstractContextManager[str]]] = {
    "cluster": open_cluster,
    "mysql": open_mysql,
    "postgresql": open_postgresql,
    "redlock": open_redlock,
    "sentinel": open_sentinels,
}


@contextlib.contextmanager
def open_lock_service(backend: str, directory: Path) -> Iterator[str]:
    """The URL of *backend*, which is one of `BACKENDS` or `TOPOLOGIES`, or a URL already."""
    if "://" in backend:
        yield backend
    else:
        with (BACKENDS | TOPOLOGIES)[backend](directory) as url:
            yield url
