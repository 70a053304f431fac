"""Where a client of redis-py leads, or a dict of its arguments: both are read, and never talked through."""

from __future__ import annotations

import secrets
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.connection import BlockingConnectionPool, Connection, ConnectionPool
from redis.sentinel import Sentinel

import distlock
from distlock.errors import ConfigurationError
from tests.backend_class import backend_class
from tests.redis_server import RedisServer
from tests.test_docs import DOCS, snippets

REDIS = backend_class("redis://localhost")

SECRET = "s3cr3t:@/?#%+ Pa55"
QUOTED = "s3cr3t%3A%40%2F%3F%23%25%2B%20Pa55"


class Proxy:
    """As Flask-Redis has it."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class OwnPool(ConnectionPool):
    pass


class OwnConnection(Connection):
    pass


URLS: dict[str, tuple[Any, str]] = {
    "nothing said": (redis.Redis(), "redis://localhost:6379/0"),
    "user and password": (
        redis.Redis("redis.example", 7000, 3, username="shop", password=SECRET),
        f"redis://shop:{QUOTED}@redis.example:7000/3",
    ),
    "password alone": (redis.Redis(password=SECRET), f"redis://:{QUOTED}@localhost:6379/0"),
    "a URL": (
        redis.from_url(f"redis://shop:{QUOTED}@localhost:7000/3?socket_timeout=1"),
        f"redis://shop:{QUOTED}@localhost:7000/3",
    ),
    "IPv6": (redis.Redis("::1"), "redis://[::1]:6379/0"),
    "a socket": (
        redis.Redis(unix_socket_path="/run/my redis.sock", db=2, password=SECRET),
        f"unix://:{QUOTED}@/run/my%20redis.sock?db=2",
    ),
    "TLS": (
        redis.from_url("rediss://localhost?ssl_ca_certs=/ca.pem&ssl_certfile=/c&ssl_keyfile=/k"),
        "rediss://localhost:6379/0?ssl_ca_certs=/ca.pem&ssl_certfile=/c&ssl_keyfile=/k",
    ),
    "TLS, not verified": (
        redis.from_url("rediss://localhost", ssl_cert_reqs=None, ssl_check_hostname=False),
        "rediss://localhost:6379/0?ssl_cert_reqs=CERT_NONE&ssl_check_hostname=false",
    ),
    "TLS, as ssl calls it": (
        redis.from_url("rediss://h", ssl_cert_reqs=ssl.CERT_OPTIONAL, ssl_min_version=ssl.TLSVersion.TLSv1_3),
        "rediss://h:6379/0?ssl_cert_reqs=CERT_OPTIONAL&ssl_min_version=TLSv1_3",
    ),
    "probes of the kernel": (
        redis.Redis(
            socket_keepalive=True,
            socket_keepalive_options={
                socket.TCP_KEEPIDLE: 30,
                socket.TCP_KEEPCNT: 2,
                socket.TCP_USER_TIMEOUT: 9,
            },
        ),
        "redis://localhost:6379/0?keepalives_idle=30&keepalives_count=2",
    ),
    "a pool that blocks": (
        redis.Redis(connection_pool=BlockingConnectionPool(host="other")),
        "redis://other:6379/0",
    ),
    "a proxy": (Proxy(redis.Redis(db=1)), "redis://localhost:6379/1"),
    "asyncio": (redis.asyncio.Redis(host="other", password="word"), "redis://:word@other:6379/0"),
    "Sentinel": (
        Sentinel([("h1", 26379), ("::1", 5000)]).master_for("shop", db=3, password=SECRET),
        f"redis+sentinel://:{QUOTED}@h1:26379,[::1]:5000/shop/3",
    ),
    "Sentinel, with a login": (
        Sentinel([("h1", 1)], sentinel_kwargs={"username": "watch", "password": "a&b"}).master_for("shop"),
        "redis+sentinel://h1:1/shop/0?sentinel_username=watch&sentinel_password=a%26b",
    ),
    "Sentinel, with TLS": (
        Sentinel([("h1", 1)], sentinel_kwargs={"ssl": True}, ssl=True, ssl_ca_certs="/ca.pem").master_for(
            "shop"
        ),
        "rediss+sentinel://h1:1/shop/0?ssl_ca_certs=/ca.pem",
    ),
    "Sentinel, in asyncio": (
        redis.asyncio.Sentinel([("h1", 1)]).master_for("shop"),
        "redis+sentinel://h1:1/shop/0",
    ),
    "a dict": (
        {"host": "other", "port": 7000, "db": "2", "password": "word", "socket_timeout": 3},
        "redis://:word@other:7000/2",
    ),
    "a dict, with TLS": (
        {"ssl": True, "ssl_ca_certs": "/ca.pem"},
        "rediss://localhost:6379/0?ssl_ca_certs=/ca.pem",
    ),
    "a dict, with a socket": ({"unix_socket_path": "/run/r.sock"}, "unix:///run/r.sock?db=0"),
}


@pytest.mark.parametrize("case", URLS)
def test_connection_arguments_are_a_url_that_the_backend_takes(case: str) -> None:
    given, url = URLS[case]
    assert REDIS.url_of(given, None) == (url, {})
    ways = [distlock.connect(location).namespace for location in (given, lambda: given, url)]
    assert all(way.is_same(ways[0]) for way in ways)


def test_the_example_of_the_page_shows_three_ways_to_one_server() -> None:
    (lines,) = (lines for lines in snippets(DOCS / "reference/backends/redis.md") if "redis.Redis(" in lines)
    page: dict[str, Any] = {}
    exec(compile(lines, "docs/reference/backends/redis.md", "exec"), page)
    one, same, again = (page[name].namespace for name in ("one", "same", "again"))
    assert one.is_same(same)
    assert one.is_same(again)


def test_another_database_of_the_same_server() -> None:
    assert REDIS.url_of(redis.Redis(db=1), 2) == ("redis://localhost:6379/2", {})


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a replica": (lambda: Sentinel([("h1", 1)]).slave_for("shop"), "asks Sentinel for a replica"),
    "Sentinel with TLS, and a server without": (
        lambda: Sentinel([("h1", 1)], sentinel_kwargs={"ssl": True}).master_for("shop"),
        "and not with both",
    ),
    "a connection of the site's, by Sentinel": (
        lambda: Sentinel([("h1", 1)]).master_for("shop", connection_class=OwnConnection),
        "uses .*OwnConnection",
    ),
    "the Sentinels": (lambda: Sentinel([("localhost", 1)]), "leads to several primaries.*master_for"),
    "a cluster": (
        lambda: object.__new__(redis.RedisCluster),
        r"RedisCluster leads to a cluster.*redis\+cluster://",
    ),
    "a pool of the site's": (lambda: redis.Redis(connection_pool=OwnPool()), "uses .*OwnPool"),
    "a connection of the site's": (
        lambda: redis.Redis(connection_pool=ConnectionPool(connection_class=OwnConnection)),
        "uses .*OwnConnection",
    ),
    "a greeting of the site's": (
        lambda: redis.Redis(redis_connect_func=lambda connection: None),
        "sets redis_connect_func",
    ),
    "OCSP": (lambda: redis.Redis(ssl=True, ssl_validate_ocsp=True), "sets ssl_validate_ocsp"),
    "an old TLS": (
        lambda: redis.from_url("rediss://h", ssl_min_version=ssl.TLSVersion.TLSv1),
        "ssl_min_version has to be TLSv1_2 or TLSv1_3",
    ),
    "bytes": (lambda: {"password": SECRET.encode()}, "Its password is bytes"),
    "a slip": (lambda: {"hots": "localhost"}, "unknown argument 'hots'. Did you mean 'host'"),
    "half of TLS": (lambda: {"ssl_ca_certs": "/ca.pem"}, "sets ssl_ca_certs, and no TLS: add ssl=True"),
    "no number": (lambda: {"db": "shop", "password": SECRET}, "names a database that is not a number"),
    "another's client": (lambda: object(), "object is no client of redis-py"),
    "nothing": (lambda: None, "is None: see whether the variable"),
    "a list": (lambda: [redis.Redis()], "list is no client of redis-py"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_taken_over_is_refused_without_its_password(case: str) -> None:
    make, says = REFUSED[case]
    with pytest.raises(ConfigurationError, match=says) as told:
        distlock.connect(make())
    assert SECRET not in str(told.value)


def nothing() -> Any:
    return None


async def later() -> str:
    raise AssertionError


def away() -> str:
    raise OSError("the vault is sealed")


@pytest.mark.parametrize(
    ("location", "says"),
    [
        (nothing, r"nothing\(\) has to say .* returned a NoneType"),
        (lambda: nothing, "returned a function"),
        (later, "later is async"),
        (away, r"away\(\) .* raised OSError: the vault is sealed"),
        (redis.Redis, "class Redis: give an object of it"),
    ],
)
def test_a_function_that_says_no_location_is_refused(location: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        distlock.connect(location)


def test_another_backend_takes_no_client() -> None:
    with pytest.raises(ConfigurationError, match="memory backend takes a URL, and no Redis"):
        distlock.connect(redis.Redis(), backend="memory")


def taken(location: Any, name: str) -> bool:
    """Whether somebody else has the lock *name* where *location* leads."""
    one = distlock.connect(location, prefix="arguments")
    try:
        return one.lock(name).acquire(timeout=0) is None
    finally:
        one.close()


def test_a_client_a_dict_and_a_url_of_one_server_are_one_lock(own_server: RedisServer) -> None:
    """With a user that may do only what the page says, so that nothing else of the client can be at work."""
    own_server.tell("ACL", "SETUSER", "shop", "on", f">{SECRET}", "+@all", "~dl:*", "&dl:*")
    arguments: Mapping[str, Any] = {"port": own_server.port, "username": "shop", "password": SECRET, "db": 1}
    name = f"product_{secrets.token_hex(4)}"
    site = redis.Redis(**arguments)
    locks = distlock.connect(site, prefix="arguments")
    with locks.lock(name):
        url = f"redis://shop:{QUOTED}@localhost:{own_server.port}/1"
        assert all(taken(one, name) for one in (arguments, lambda: site, url))
        assert not taken({**arguments, "db": 2}, name)
        assert not site.connection_pool._available_connections, "its own sockets were used"  # type: ignore[attr-defined]
        shown = repr(locks.namespace.engine.__dict__)
        assert SECRET not in shown
        assert QUOTED not in shown
    locks.close()
