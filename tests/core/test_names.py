"""Names and prefixes: which ones are refused, and why; and no two of them are one lock."""

from __future__ import annotations

import re
import secrets

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import distlock
from distlock.errors import ConfigurationError, InvalidName
from tests.redis_server import RedisServer

#: How many characters a name may have.
MAX_LENGTH = 255


@pytest.mark.parametrize("name", ["product_1", "a", "x" * MAX_LENGTH, "\u00e9", "\U0001f600", " ", "a/b{c}"])
def test_text_is_a_name(name: str) -> None:
    with distlock.connect("memory://names").lock(name) as grant:
        assert grant.names == (name,)


@pytest.mark.attack("A05")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        ("x" * (MAX_LENGTH + 1), "256 characters"),
        ("a\x00b", r"U\+0000"),
        ("a\r\nb", r"U\+000D"),
        ("a\x7f", r"U\+007F"),
        ("a\x85", r"U\+0085"),
        ("\ud83d", r"U\+D83D"),
        ("\ufffe", r"U\+FFFE"),
        (1, "not int"),
        (None, "not NoneType"),
        (b"product_1", "not bytes"),
    ],
)
def test_what_is_not_text_is_refused_with_a_reason(name: str, why: str) -> None:
    with pytest.raises(InvalidName, match=why):
        distlock.connect("memory://names").lock(name)


@pytest.mark.parametrize("prefix", ["a:b", "a b", "\u00e9", "x" * 65, None, 1])
def test_a_prefix_is_plain(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="prefix"):
        distlock.connect("memory://names", prefix=prefix)


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), min_size=1, max_size=MAX_LENGTH)
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="module")
def locks(redis_server: RedisServer) -> distlock.Locks:
    return distlock.connect(redis_server.url, prefix=f"names_{secrets.token_hex(4)}", timeout=0)


@pytest.mark.attack("A08")
@SHARED
@given(TEXT, TEXT)
def test_different_names_are_different_locks(locks: distlock.Locks, one: str, two: str) -> None:
    with locks.lock(one):
        assert locks.lock(two).locked() == (one == two)


@SHARED
@example("x" * MAX_LENGTH)
@given(TEXT)
def test_a_name_is_stored_short_and_plain(redis_server: RedisServer, name: str) -> None:
    prefix = secrets.token_hex(4)
    locks = distlock.connect(redis_server.url, prefix=prefix)
    with locks.lock(name):
        (key,) = redis_server.client.scan_iter(f"dl:2:{{{prefix}%3A*}}", count=10_000)
    locks.close()
    assert re.fullmatch(rb"dl:2:\{[A-Za-z0-9_.%~-]{1,200}\}", key)


def test_names_that_differ_only_in_the_part_that_is_cut_off_stay_different(locks: distlock.Locks) -> None:
    with locks.lock("x" * 250 + "a"):
        assert not locks.lock("x" * 250 + "b").locked()


def test_no_short_name_is_stored_as_a_long_one(redis_server: RedisServer) -> None:
    prefix = secrets.token_hex(4)
    locks = distlock.connect(redis_server.url, prefix=prefix)
    with locks.lock("x" * 250):
        (key,) = redis_server.client.scan_iter(f"dl:2:{{{prefix}%3A*}}", count=10_000)
        stored = key.decode().partition("%3A")[2].removesuffix("}")
        assert not locks.lock(stored).locked()
    locks.close()
