"""``"LOCATION": "cache:default"``: a lock service that ``CACHES`` says already."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import caches
from django.core.checks import run_checks
from redis.connection import ConnectionPool

from distlock.errors import ConfigurationError
from django_distlock import locks
from django_distlock.conf import clients, redis_of
from tests.redis_server import RedisServer, running
from tests.web.quickstart import snippets

SECRET = "s3cr3t:@/?#%+ Pa55"
QUOTED = "s3cr3t%3A%40%2F%3F%23%25%2B%20Pa55"
DJANGO = "django.core.cache.backends.redis.RedisCache"
OTHER = "django_redis.cache.RedisCache"


class OwnPool(ConnectionPool):
    pass


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """It lets only the user *shop* in."""
    for one in running():
        one.tell("ACL", "SETUSER", "shop", "on", f">{SECRET}", "+@all", "~*", "&*")
        one.tell("ACL", "SETUSER", "default", "resetpass", "-@all")
        yield one


#: Cache -> what the documentations of the two have people write, and the number of the database.
CACHES: dict[str, tuple[dict[str, Any], int]] = {
    "url": ({"BACKEND": DJANGO, "LOCATION": "redis://shop:{secret}@{place}"}, 0),
    "options": (
        {
            "BACKEND": DJANGO,
            "LOCATION": ["redis://{place}", "redis://replica.example"],
            "OPTIONS": {"username": "shop", "password": SECRET, "db": 2, "socket_timeout": 3},
        },
        2,
    ),
    "socket": ({"BACKEND": DJANGO, "LOCATION": "unix://shop:{secret}@{socket}?db=3"}, 3),
    "blocking": (
        {
            "BACKEND": DJANGO,
            "LOCATION": "redis://shop:{secret}@{place}/4",
            "OPTIONS": {"pool_class": "redis.BlockingConnectionPool"},
        },
        4,
    ),
    "django-redis": (
        {
            "BACKEND": OTHER,
            "LOCATION": ["redis://{place}/5", "redis://replica.example"],
            "OPTIONS": {
                "CLIENT_CLASS": "django_redis.client.HerdClient",
                "CONNECTION_POOL_KWARGS": {"username": "shop", "password": SECRET},
            },
        },
        5,
    ),
    "django-redis, in its words": (
        {
            "BACKEND": OTHER,
            "LOCATION": "redis://shop@{place}/6",
            "OPTIONS": {"PASSWORD": SECRET, "CLIENT_CLASS": "django_redis.client.DefaultClient"},
        },
        6,
    ),
}


def serve_cache(given: dict[str, Any], server: RedisServer, settings: Any) -> str:
    """Set ``CACHES``, and return how a URL of that server begins."""
    words = {"place": f"127.0.0.1:{server.port}", "secret": QUOTED, "socket": server.socket}
    location = given["LOCATION"]
    urls = [url.format(**words) for url in (location if isinstance(location, list) else [location])]
    settings.CACHES = {"default": given | {"LOCATION": urls if isinstance(location, list) else urls[0]}}
    return f"redis://shop:{QUOTED}@127.0.0.1:{server.port}"


@pytest.mark.parametrize("case", CACHES)
def test_a_lock_is_kept_where_the_cache_is(case: str, server: RedisServer, settings: Any) -> None:
    given, db = CACHES[case]
    url = serve_cache(given, server, settings)
    settings.DISTLOCK = {
        "default": {"LOCATION": "cache:default", "PREFIX": case.partition(",")[0]},
        "direct": {"LOCATION": f"{url}/{db}", "PREFIX": case.partition(",")[0]},
    }
    with locks.lock("product_1"):
        assert locks["direct"].lock("product_1").locked()
    assert not locks["direct"].lock("product_1").locked()


@pytest.mark.parametrize("case", ["url", "django-redis, in its words"])
def test_to_clear_a_cache_frees_no_lock_that_is_beside_it(
    case: str, server: RedisServer, settings: Any
) -> None:
    url = serve_cache(CACHES[case][0], server, settings)
    settings.DISTLOCK = {"default": {"LOCATION": "cache:default/9"}, "direct": {"LOCATION": f"{url}/9"}}
    assert not said()
    with locks.lock("product_1"):
        caches["default"].set("one", 1)
        caches["default"].clear()
        assert caches["default"].get("one") is None
        assert locks["direct"].lock("product_1").locked()
    redis_of("default").connection_pool.disconnect()


def said() -> str:
    """What ``manage.py check`` says."""
    return " ".join(f"{m.id} {m.msg} {m.hint}" for m in run_checks(tags=["distlock"]))


def test_a_lock_that_a_cleared_cache_would_free_is_warned_of(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": DJANGO, "LOCATION": "redis://127.0.0.1:1"}}
    settings.DISTLOCK = "cache:default"
    assert said().startswith("distlock.W007 DISTLOCK['default'] keeps its locks in the database of the cache")
    assert 'Name another database of that server: "LOCATION": "cache:default/1"' in said()


def test_the_other_checks_look_at_such_an_alias_too(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": DJANGO, "LOCATION": "redis://127.0.0.1:1"}}
    settings.DISTLOCK = {"default": {"LOCATION": "cache:default/1", "FENCE": "nowhere"}}
    assert [message.id for message in run_checks() if message.id.startswith("distlock.")] == ["distlock.E013"]


SENTINELS = {
    "CLIENT_CLASS": "django_redis.client.SentinelClient",
    "SENTINELS": [("127.0.0.1", 1)],
    "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another alias": ({}, "The connection 'default' doesn't exist"),
    "this process": (
        {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "LocMemCache, which does not write to one",
    ),
    "nowhere": ({"BACKEND": "no.such.Cache"}, "can't be made: Could not find backend"),
    "a pool of the site's": (
        {"BACKEND": DJANGO, "LOCATION": "redis://h", "OPTIONS": {"pool_class": f"{__name__}.OwnPool"}},
        "It uses .*OwnPool",
    ),
    "several servers": (
        {
            "BACKEND": OTHER,
            "LOCATION": ["redis://one", "redis://two"],
            "OPTIONS": {"CLIENT_CLASS": "django_redis.client.ShardClient"},
        },
        "RedisCache, which does not write to one Redis server",
    ),
    "no URL": ({"BACKEND": DJANGO, "LOCATION": f"redis://h:{QUOTED}/0"}, r"can't be made \(ValueError\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_redis_server_is_found_by_the_checks_and_by_the_first_lock(
    case: str, settings: Any
) -> None:
    cache, says = REFUSED[case]
    settings.CACHES = {"default": cache} if cache else {"other": {"BACKEND": DJANGO}}
    settings.DISTLOCK = {"default": {"LOCATION": "cache:default"}}
    with pytest.raises(ConfigurationError, match=rf"DISTLOCK\['default'\]: .*{says}") as told:
        locks.lock("product_1")
    assert str(told.value) in said()
    assert "distlock.E002" in said()
    assert QUOTED not in said() + "".join(traceback.format_exception(told.value))


def test_the_settings_of_the_page_lead_to_its_server(settings: Any) -> None:
    written: dict[str, Any] = {}
    exec(compile(snippets("how-to/redis.md")[0], "docs/how-to/redis.md", "exec"), written)
    settings.CACHES, settings.DISTLOCK = written["CACHES"], written["DISTLOCK"]
    assert clients.settings("default").location == "redis://shop:secret@redis.example:6379/1"
    assert not said()


def test_a_cache_that_asks_sentinels_is_followed_to_the_primary(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": OTHER, "LOCATION": "redis://shop/0", "OPTIONS": SENTINELS}}
    settings.DISTLOCK = {"default": {"LOCATION": "cache:default/1"}}
    assert clients.settings("default").location == "redis+sentinel://127.0.0.1:1/shop/1"
    assert not said()


def test_each_alias_that_leads_nowhere_is_an_error_of_its_own(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    wrong = {"LOCATION": "cache:default/1", "FENCE": "nowhere"}
    right = {"LOCATION": "redis://127.0.0.1:1", "FENCE": "nowhere"}
    settings.DISTLOCK = {"default": wrong, "other": wrong, "third": right}
    found = sorted(message.id for message in run_checks() if message.id.startswith("distlock."))
    assert found == ["distlock.E002", "distlock.E002", "distlock.E013"]


def test_other_caches_are_other_clients(settings: Any) -> None:
    settings.DISTLOCK = "cache:default"
    settings.CACHES = {"default": {"BACKEND": DJANGO, "LOCATION": "redis://127.0.0.1:1"}}
    before = locks["default"]
    settings.CACHES = {"default": {"BACKEND": DJANGO, "LOCATION": "redis://127.0.0.1:2"}}
    assert locks["default"] is not before
