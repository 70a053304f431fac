"""Which servers a URL names."""

from __future__ import annotations

import pytest

import distlock
from tests.backend_class import new_backend


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
        distlock.connect(url)


def test_a_password_is_never_shown() -> None:
    for hosts in ("a", "a,b", "a,b,c,d", "a,a,b", "a,b,c:port", "a,b,"):
        with pytest.raises(distlock.ConfigurationError) as told:
            distlock.connect(f"redlock://shop:hunter2@{hosts}")
        assert "hunter2" not in str(told.value)
    assert repr(new_backend("redlock://shop:hunter2@a,b,c")) == "<RedlockBackend a:6379, b:6379, c:6379>"


def test_what_it_can_not_do_is_refused_when_it_is_asked_for() -> None:
    locks = distlock.connect("redlock://a,b,c")
    for call in (
        lambda: locks.read_lock("x"),
        lambda: locks.semaphore("x", limit=2),
        lambda: locks.latch("x", 2),
    ):
        with pytest.raises(distlock.ConfigurationError, match="from the backend 'redlock'"):
            call()
