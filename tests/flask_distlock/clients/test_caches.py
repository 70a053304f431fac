"""``"LOCATION": "cache:default"``: a lock service that Flask-Caching has been told of already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask
from flask_caching import Cache

import distlock
from distlock.errors import ConfigurationError
from flask_distlock import DistLock
from flask_distlock.guarding.app_state import current_state
from tests.redis_server import RedisServer, running
from tests.web.quickstart import snippets

MakeApp = Callable[..., Flask]
SECRET = "s3cr3t-Pa55"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    yield from running("--requirepass", SECRET)


@pytest.mark.parametrize("by", ["url", "host"])
@pytest.mark.parametrize(("location", "db"), [("cache:default", 2), ("cache:default/9", 9)])
def test_a_lock_is_kept_where_the_cache_is(
    by: str,
    location: str,
    db: int,
    server: RedisServer,
    make_app: MakeApp,
    locks: DistLock,
) -> None:
    place = f"127.0.0.1:{server.port}"
    words: dict[str, Any] = {
        "url": {"CACHE_REDIS_URL": f"redis://:{SECRET}@{place}", "CACHE_REDIS_DB": 2},
        "host": {
            "CACHE_REDIS_HOST": "127.0.0.1",
            "CACHE_REDIS_PORT": server.port,
            "CACHE_REDIS_PASSWORD": SECRET,
            "CACHE_REDIS_DB": 2,
        },
    }[by]
    app = make_app(DISTLOCK={"default": {"LOCATION": location}}, CACHE_TYPE="RedisCache", **words)
    # As in a factory: the extensions may come in any order.
    Cache(app)
    direct = distlock.connect(f"redis://:{SECRET}@{place}/{db}")
    locks.check(app)
    with app.app_context(), locks.lock("product_1"):
        assert direct.lock("product_1").locked()
    direct.close()


def test_the_settings_of_the_page_lead_to_its_server(make_app: MakeApp, locks: DistLock) -> None:
    app = make_app()
    exec(compile(snippets("how-to/redis.md")[1], "docs/how-to/redis.md", "exec"), {"app": app})
    Cache(app)
    locks.check(app)
    with app.app_context():
        settings = current_state().clients.settings("default")
    assert settings.location == "redis://shop:secret@redis.example:6379/1"


def test_a_cache_that_asks_sentinels_is_followed_to_the_primary(make_app: MakeApp, locks: DistLock) -> None:
    words = {"CACHE_TYPE": "RedisSentinelCache", "CACHE_REDIS_SENTINELS": [("127.0.0.1", 1)]}
    app = make_app(DISTLOCK={"default": {"LOCATION": "cache:default/1"}}, **words)
    Cache(app)
    locks.check(app)
    with app.app_context():
        settings = current_state().clients.settings("default")
    assert settings.location == "redis+sentinel://127.0.0.1:1/mymaster/1"


REFUSED: dict[str, tuple[str, dict[str, Any] | None, str]] = {
    "another name": ("cache:other", {"CACHE_TYPE": "RedisCache"}, "has no aliases such as 'other'"),
    "no cache": ("cache:default", None, "has 0 caches of Flask-Caching"),
    "a dict": (
        "cache:default",
        {"CACHE_TYPE": "SimpleCache"},
        "is SimpleCache, which keeps nothing in R",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_redis_server_is_refused_before_the_first_request(
    case: str, make_app: MakeApp, locks: DistLock
) -> None:
    location, words, says = REFUSED[case]
    app = make_app(DISTLOCK={"default": {"LOCATION": location}}, **(words or {}))
    if words is not None:
        Cache(app)
    with pytest.raises(ConfigurationError, match=rf"DISTLOCK\['default'\]: .*{says}"):
        locks.check(app)


def test_several_caches_are_told_apart_by_nobody(make_app: MakeApp, locks: DistLock) -> None:
    app = make_app(DISTLOCK="cache:default", CACHE_TYPE="RedisCache")
    Cache(app)
    Cache(app)
    with pytest.raises(ConfigurationError, match=r"has 2 caches .* let LOCATION be a client of redis-py"):
        locks.check(app)
