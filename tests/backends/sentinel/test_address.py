"""URLs of sentinels: refused when they can't work, before anything is connected."""

from __future__ import annotations

import traceback

import pytest

from distlock.backends.registry import create
from distlock.backends.sentinel import SentinelBackend
from distlock.backends.sentinel.sentinels import SentinelAddress
from distlock.errors import ConfigurationError

SECRET = "s3cr3t-Pa55"


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
    backend = create(url)
    address = SentinelAddress(url)
    assert isinstance(backend, SentinelBackend)
    assert [one.shown for one in address.sentinels] == sentinels
    assert (address.db, [one.db for one in address.sentinels]) == (db, [0] * len(sentinels))
    assert (address.tls is not None) == url.startswith("rediss")


def test_the_primary_is_told_its_own_login_and_the_sentinels_theirs() -> None:
    address = SentinelAddress("redis+sentinel://shop:a%2Fb@h1,h2/shop?sentinel_password=c%40d")
    assert (address.login, address.at("h9", 1).login) == (("shop", "a/b"), ("shop", "a/b"))
    assert [one.login for one in address.sentinels] == [("c@d",), ("c@d",)]
    named = SentinelAddress("redis+sentinel://h1/shop?sentinel_username=watch&sentinel_password=x")
    assert (named.login, named.sentinels[0].login) == ((), ("watch", "x"))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"redis+sentinel://:{SECRET}@h1", "cannot be read"),
        (f"redis+sentinel://:{SECRET}@h1/", "cannot be read"),
        (f"redis+sentinel://:{SECRET}@/shop", "cannot be read"),
        (f"redis+sentinel://:{SECRET}@h1,,h2/shop", "cannot be read"),
        (f"redis+sentinel://:{SECRET}@h1:0/shop", "cannot be read"),
        (f"redis+sentinel://:{SECRET}@h1:70000/shop", "cannot be read"),
        (f"redis+sentinel://:{SECRET}@h1/sh%20op", "cannot be read"),
        (f"redis+sentinel://user:12/{SECRET}@h1/shop", "cannot be read"),
        (f"redis+sentinel://user:12?{SECRET}=1@h1/shop", "cannot be read"),
        (f"redis+sentinel://user:12#{SECRET}@h1/shop", "cannot be read"),
        (f"redis+sentinel://user:{SECRET}@x@h1/shop?a@b", "cannot be read"),
        (f"redis+sentinel://:{SECRET}@h1,h2/shop/one", "write redis.sentinel://h1:26379,h2:26379/shop/0"),
        (f"redis+sentinel://:{SECRET}@h1/shop/1?db=2", "at redis.sentinel://h1:26379/shop can't.*twice"),
        (f"redis+sentinel://:{SECRET}@h1/shop?colour=red", "Known are .*sentinel_password"),
        (f"redis+sentinel://:{SECRET}@h1/shop?socket_timeout=3", "it is the option io_timeout"),
        (f"redis+sentinel://:{SECRET}@h1/shop?ssl_ca_certs=/ca.pem", "write rediss"),
        (f"redis+sentinel://:{SECRET}@h1/shop?sentinel_username=a", "no sentinel_password"),
    ],
)
def test_a_url_that_cannot_work_is_refused_without_its_password(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as told:
        SentinelBackend(url)
    assert SECRET not in "".join(traceback.format_exception(told.value))


def test_a_plain_server_has_no_login_for_sentinels() -> None:
    with pytest.raises(ConfigurationError, match="unknown parameter: 'sentinel_password'"):
        create("redis://localhost?sentinel_password=x")


def test_it_is_shown_without_its_passwords() -> None:
    url = f"redis+sentinel://user:{SECRET}@h1,h2/shop/3?sentinel_password=an0ther"
    assert repr(SentinelBackend(url)) == "<SentinelBackend redis+sentinel://h1:26379,h2:26379/shop>"
    address = SentinelAddress(url)
    for one in (address, address.at("h9", 1), *address.sentinels):
        assert one.redact(f"a {SECRET} b an0ther c") == "a *** b *** c"
