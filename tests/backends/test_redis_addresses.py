"""What a URL of Redis, of sentinels, of a cluster or of Redlock is read into: servers, logins, TLS."""

from __future__ import annotations

import ssl

import pytest

from distlock.backends.redis.address import (
    ClusterAddress,
    Endpoint,
    RedisAddress,
    SentinelAddress,
    redlock_addresses,
)
from distlock.backends.redis.failures import unavailable

HOSTS = "a:7000,[::1]:7001,c"
SECRET = "s3cr3t-Pa55"


@pytest.mark.parametrize("error", [ConnectionResetError(), BrokenPipeError(), ssl.SSLEOFError()])
def test_a_refusal_that_a_reset_has_overtaken_has_the_same_remedy(error: OSError) -> None:
    told = str(unavailable(RedisAddress("rediss://localhost"), error))
    assert "?ssl_certfile=/path" in told
    assert "redis://" not in told


def test_it_names_the_nodes_and_no_secret() -> None:
    address = ClusterAddress(f"redis+cluster://shop:s%40cret@{HOSTS}/0")
    assert address.places == [Endpoint("a", 7000), Endpoint("::1", 7001), Endpoint("c", 6379)]
    assert address.shown == "a:7000,[::1]:7001,c:6379"


@pytest.mark.parametrize(
    ("url", "node"),
    [
        ("redis+cluster://a,b", "redis://::1:7000"),
        ("redis+cluster://shop:s%40cret@a,b", "redis://shop:s%40cret@[::1]:7000"),
        ("rediss+cluster://:x@a?ssl_cert_reqs=none", "rediss://:x@[::1]:7000?ssl_cert_reqs=none"),
    ],
)
def test_the_url_of_a_node_has_the_login_and_the_query(url: str, node: str) -> None:
    assert ClusterAddress(url).url_of(Endpoint("::1", 7000)) == node.replace("redis://::1:", "redis://[::1]:")


def test_login_database_and_query_are_those_of_each_server() -> None:
    found = redlock_addresses("redlock://shop:p%40ss@a,b:6380,[::1]/3")
    assert [one.url for one in found] == [
        "redis://shop:p%40ss@a/3",
        "redis://shop:p%40ss@b:6380/3",
        "redis://shop:p%40ss@[::1]/3",
    ]
    assert [one.shown for one in found] == ["a:6379", "b:6380", "[::1]:6379"]


def test_tls_is_that_of_each_server() -> None:
    urls = [one.url for one in redlock_addresses("redlocks://a,b,c/0?ssl_check_hostname=false")]
    assert urls == [f"rediss://{host}/0?ssl_check_hostname=false" for host in "abc"]


@pytest.mark.parametrize(
    ("url", "sentinels", "db"),
    [
        ("redis+sentinel://localhost/shop", ["localhost:26379"], 0),
        ("redis+sentinel://h1:5000,h2,[::1]:7/my-shop.1/3", ["h1:5000", "h2:26379", "[::1]:7"], 3),
        ("REDIS+Sentinel://h1/shop?db=4", ["h1:26379"], 4),
        ("rediss+sentinel://h1/shop/", ["h1:26379"], 0),
    ],
)
def test_a_url_says_where_the_sentinels_are(url: str, sentinels: list[str], db: int) -> None:
    address = SentinelAddress(url)
    assert [one.shown for one in address.sentinels] == sentinels
    assert (address.db, [one.db for one in address.sentinels]) == (db, [0] * len(sentinels))
    assert (address.tls is not None) == url.startswith("rediss")


def test_the_primary_is_told_its_own_login_and_the_sentinels_theirs() -> None:
    address = SentinelAddress("redis+sentinel://shop:a%2Fb@h1,h2/shop?sentinel_password=c%40d")
    assert (address.login, address.at("h9", 1).login) == (("shop", "a/b"), ("shop", "a/b"))
    assert [one.login for one in address.sentinels] == [("c@d",), ("c@d",)]
    named = SentinelAddress("redis+sentinel://h1/shop?sentinel_username=watch&sentinel_password=x")
    assert (named.login, named.sentinels[0].login) == ((), ("watch", "x"))


def test_what_the_servers_say_is_quoted_without_the_passwords() -> None:
    url = f"redis+sentinel://user:{SECRET}@h1,h2/shop/3?sentinel_password=an0ther"
    address = SentinelAddress(url)
    for one in (address, address.at("h9", 1), *address.sentinels):
        assert one.redact(f"a {SECRET} b an0ther c") == "a *** b *** c"
