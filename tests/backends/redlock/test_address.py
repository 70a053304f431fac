"""Which servers a URL names."""

from __future__ import annotations

import pytest

import distlock
from distlock.backends.redlock.backend import addresses_in
from distlock.backends.registry import create


def test_login_database_and_query_are_those_of_each_server() -> None:
    found = addresses_in("redlock://shop:p%40ss@a,b:6380,[::1]/3")
    assert [one.url for one in found] == [
        "redis://shop:p%40ss@a/3",
        "redis://shop:p%40ss@b:6380/3",
        "redis://shop:p%40ss@[::1]/3",
    ]
    assert [one.shown for one in found] == ["a:6379", "b:6380", "[::1]:6379"]


def test_tls_is_that_of_each_server() -> None:
    urls = [one.url for one in addresses_in("redlocks://a,b,c/0?ssl_check_hostname=false")]
    assert urls == [f"rediss://{host}/0?ssl_check_hostname=false" for host in "abc"]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("redlock://a", "names 1 server, and needs 3 or more"),
        ("redlock://a,b", "names 2 servers, and needs 3 or more"),
        ("redlock://a,b,c,d", "names 4, an even number"),
        ("redlock://a,b,A:6379", "names a:6379 twice"),
        ("redlock://a,b,", "cannot be read"),
        ("redlock://", "cannot be read"),
        ("redlock:a,b,c", "cannot be read"),
        ("redlock://a,b,c:port", "cannot be read"),
        ("redlock://a,b,c/x", "a database that is not a number"),
        ("redlock://a,b,c?socket_timeout=1", "it is the option io_timeout"),
    ],
)
def test_what_can_not_work_is_refused_and_says_why(url: str, why: str) -> None:
    with pytest.raises(distlock.ConfigurationError, match=why):
        create(url)


def test_a_password_is_never_shown() -> None:
    for hosts in ("a", "a,b", "a,b,c,d", "a,a,b", "a,b,c:port", "a,b,"):
        with pytest.raises(distlock.ConfigurationError) as told:
            create(f"redlock://shop:hunter2@{hosts}")
        assert "hunter2" not in str(told.value)
    assert repr(create("redlock://shop:hunter2@a,b,c")) == "<RedlockBackend a:6379, b:6379, c:6379>"


def test_what_it_can_not_do_is_refused_when_it_is_asked_for() -> None:
    locks = distlock.connect("redlock://a,b,c")
    for call in (
        lambda: locks.read_lock("x"),
        lambda: locks.semaphore("x", limit=2),
        lambda: locks.latch("x", 2),
    ):
        with pytest.raises(distlock.ConfigurationError, match="from the backend 'redlock'"):
            call()
