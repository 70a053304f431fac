"""URLs and options: refused when they can't work, before anything is connected."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

import distlock
from distlock.errors import ConfigurationError
from tests.backend_class import backend_class, new_backend

RedisBackend = backend_class("redis://localhost")

SECRET = "s3cr3t-Pa55"


@pytest.mark.parametrize("scheme", ["redis://localhost", "rediss://localhost", "unix:///run/redis.sock"])
def test_a_url_is_enough(scheme: str) -> None:
    assert isinstance(new_backend(scheme), RedisBackend)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"redis://:{SECRET}@localhost:port/0", "cannot be read"),
        (f"redis://:{SECRET}@localhost:99999999/0", "cannot be read"),
        (f"redis://:{SECRET}@[::1/0", "cannot be read"),
        (f"http://:{SECRET}@localhost", "cannot be read"),
        (f"redis://:{SECRET}@localhost/shop", "not a number: write localhost:6379/0"),
        (f"redis://:{SECRET}@localhost?db=shop", "not a number: write localhost:6379/0"),
        (f"redis://:{SECRET}@localhost/0?socket_timeout=3", "it is the option io_timeout"),
        (f"redis://:{SECRET}@localhost/0?colour=red", "unknown parameter: 'colour'"),
        (f"redis://:{SECRET}@localhost/0?decode_responses=True", "Known are db, username, password, ssl_"),
        (f"redis://:{SECRET}@localhost:0/0", "cannot be read"),
        (f"redis://:{SECRET}@localhost:-1/0", "cannot be read"),
        (f"redis://:{SECRET}@localhost/-1", "not a number"),
        (f"redis://:{SECRET}@localhost/+1", "not a number"),
        (f"redis://:{SECRET}@localhost/\u0661", "not a number"),
        (f"redis://:{SECRET}@localhost/0/1", "not a number"),
        (f"redis://:{SECRET}@localhost/{'1' * 5000}", "not a number"),
        (f"redis://:{SECRET}@localhost/1?db=2", "twice"),
        (f"redis://:{SECRET}@localhost?db=1&db=2", "twice"),
        (f"redis://:{SECRET}@localhost?db", "cannot be read"),
        (f"redis://:{SECRET}@localhost?db=1&", "an & too many"),
        (f"redis://:{SECRET}@localhost?&db=1", "an & too many"),
        (f"redis://localhost?db=1&password={SECRET}@", "write %40 for @"),
        (f"redis://:{SECRET}@localhost?username=a@b", "write %40 for @"),
        (f"redis://:1{SECRET}/x@localhost/0", "cannot be read"),
        (f"redis://user:12/{SECRET}@localhost/0", "cannot be read"),
        (f"redis://user:12?{SECRET}=1@localhost/0", "cannot be read"),
        (f"redis://user:12#{SECRET}@localhost/0", "cannot be read"),
        (f"redis://:{SECRET}@a..b/0", "cannot be read"),
        (f"redis://:{SECRET}@{'x' * 64}.example/0", "cannot be read"),
        (f"redis://:{SECRET}@local%00host/0", "cannot be read"),
        (f"redis://:{SECRET}@localhost?ssl_ca_certs=/ca.pem", "write rediss://"),
        (f"rediss://:{SECRET}@localhost?ssl_cert_reqs=maybe", "required, optional or none"),
        (f"rediss://:{SECRET}@localhost?ssl_check_hostname=perhaps", "true or false"),
        (f"rediss://:{SECRET}@localhost?ssl_min_version=SSLv3", "has to be TLSv1_2 or TLSv1_3"),
        (f"rediss://:{SECRET}@localhost?ssl_ciphers=rot13", "none that OpenSSL knows"),
        (
            f"redis://:{SECRET}@localhost?keepalives_idle=1m",
            "keepalives_idle is '1m', and has to be a number",
        ),
        (f"redis://:{SECRET}@localhost?keepalives_interval=0", "a number from 1 to 32767"),
        (f"redis://:{SECRET}@localhost?keepalives_count=128", "a number from 1 to 127"),
        (f"unix://:{SECRET}@/redis.sock?keepalives_idle=9", "keepalives_idle is for TCP"),
        (f"unix://:{SECRET}@relative/redis.sock", "cannot be read"),
        (f"unix://:{SECRET}@/redis.sock?db=x", r"write unix:///redis.sock\?db=0"),
    ],
)
def test_a_url_that_cannot_work_is_refused_without_its_password(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as told:
        RedisBackend(url)
    assert SECRET not in "".join(traceback.format_exception(told.value))


@pytest.mark.parametrize(
    "options",
    [
        {"io_timeout": 0},
        {"io_timeout": "2"},
        {"io_timeout": True},
        {"io_timeout": float("nan")},
        {"io_timeout": float("inf")},
        {"ack_window": -1},
        {"fence_ttl": None},
        {"max_connections": 0},
        {"max_connections": 2.5},
    ],
)
def test_an_option_that_cannot_work_is_refused_by_its_name(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        RedisBackend("redis://localhost", **options)


def test_an_unknown_option_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"'iotimeout'.*io_timeout.*max_connections"):
        distlock.connect("redis://localhost", iotimeout=3)


def test_a_backend_shows_where_it_leads_and_no_more() -> None:
    assert (
        repr(RedisBackend(f"redis://user:{SECRET}@shop.example:7000/3")) == "<RedisBackend shop.example:7000>"
    )
    assert repr(RedisBackend("unix:///run/redis.sock")) == "<RedisBackend unix:///run/redis.sock>"
