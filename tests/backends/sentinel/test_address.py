"""URLs of sentinels: refused when they can't work, before anything is connected."""

from __future__ import annotations

import traceback

import pytest

import distlock
from distlock.errors import ConfigurationError
from tests.backend_class import backend_class

SentinelBackend = backend_class("redis+sentinel://localhost/shop")

SECRET = "s3cr3t-Pa55"


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
        distlock.connect("redis://localhost?sentinel_password=x")


def test_it_is_shown_without_its_passwords() -> None:
    url = f"redis+sentinel://user:{SECRET}@h1,h2/shop/3?sentinel_password=an0ther"
    assert repr(SentinelBackend(url)) == "<SentinelBackend redis+sentinel://h1:26379,h2:26379/shop>"
