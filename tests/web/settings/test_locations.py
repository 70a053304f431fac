"""``LOCATION``, where it is no URL."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis

from distlock.errors import ConfigurationError
from distlock.web.settings.aliases import AliasSettings, read
from distlock.web.settings.clients import Clients
from distlock.web.settings.problems import find_problems
from tests.web.quickstart import snippets

SITE = redis.Redis(host="redis.example", db=3, password="hunter2")
URL = "redis://:hunter2@redis.example:6379/3"
HERE = "tests.web.settings.test_locations"


def lock_location() -> redis.Redis:
    return SITE


def login() -> str:
    return "hunter2"


def settings_of(**given: object) -> AliasSettings:
    return read({"default": given}, {"sessions": SITE}.__getitem__)["default"]


@pytest.mark.parametrize(
    "location",
    [
        SITE,
        {"host": "redis.example", "db": 3, "password": "hunter2"},
        lock_location,
        lambda: URL,
        f"{HERE}.lock_location",
        f"{HERE}.SITE",
        f"{HERE}.URL",
        "cache:sessions",
    ],
)
def test_a_site_says_only_once_where_its_redis_is(location: Any) -> None:
    settings = settings_of(LOCATION=location)
    assert (settings.location, settings.scheme) == (URL, "redis")
    assert settings_of(LOCATION=location, BACKEND="redis") == settings
    assert "hunter2" not in repr(settings)


def test_a_cache_lends_its_server_and_not_its_database() -> None:
    assert settings_of(LOCATION="cache:sessions/7").location == "redis://:hunter2@redis.example:6379/7"


def test_what_stands_beside_a_location_goes_before_what_it_brings() -> None:
    brings = {"host": "redis.example", "credential_provider": lock_location}
    assert dict(settings_of(LOCATION=brings).options) == {"credential_provider": lock_location}
    path = {"credential_provider": f"{HERE}.login", "io_timeout": 1}
    options = {"credential_provider": login, "io_timeout": 1}
    for location in (brings, "redis://redis.example"):
        assert dict(settings_of(LOCATION=location, OPTIONS=path).options) == options


def test_the_dotted_paths_of_the_page_lead_to_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As files of a site, each at the path that its first line tells."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    sys.modules["shop"].__path__ = [str(tmp_path / "shop")]
    (tmp_path / "shop").mkdir()
    client, its_settings, login, login_settings = snippets("how-to/redis.md")[2:]
    for lines in (client, login):
        (tmp_path / lines.split()[1]).write_text(lines)
    urls = []
    for lines in (its_settings, login_settings):
        written: dict[str, Any] = {}
        exec(compile(lines, "docs/how-to/redis.md", "exec"), written)
        settings = read(written["DISTLOCK"])["default"]
        urls.append(settings.location)
    assert urls == ["redis://shop:secret@redis.example:6379/1", "redis://redis.example:6379/1"]
    assert settings.options["credential_provider"].__name__ == "login"
    for name in ("shop.connections", "shop.login"):
        del sys.modules[name]


def test_two_aliases_of_one_server_are_one_lock() -> None:
    site = Clients(lambda: read({"default": {"LOCATION": SITE}, "other": {"LOCATION": URL}}))
    assert site["default"].namespace.is_same(site["other"].namespace)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"LOCATION": 6379}, "is a int. It has to be a URL, .* a cache, as 'cache:default'"),
        ({"LOCATION": [URL]}, "is a list. It has to be a URL"),
        ({"LOCATION": object()}, "is a object. It has to be a URL"),
        ({"LOCATION": "cache"}, "is no URL"),
        ({"LOCATION": "cache:"}, 'is no URL.*The Redis of a cache is "cache:default"'),
        ({"LOCATION": "cache:sessions/x"}, "is no URL"),
        ({"LOCATION": "cache://sessions"}, "No lock service is known as 'cache'"),
        ({"LOCATION": SITE, "BACKEND": "zookeeper"}, "no URL. Leave BACKEND out"),
        ({"LOCATION": "cache:sessions", "BACKEND": "file"}, "no URL. Leave BACKEND out"),
        ({"LOCATION": SITE, "BACKEND": "database"}, "keeps its locks in the site's own database"),
        (
            {"LOCATION": "redis.example.com"},
            r"DISTLOCK\['default'\]: LOCATION, which is no URL, .* No mod",
        ),
        ({"LOCATION": f"{HERE}.nowhere"}, "which can't be imported: .*nowhere"),
        ({"LOCATION": f"{HERE}.HERE"}, "has no scheme"),
        (
            {"LOCATION": URL, "OPTIONS": {"credential_provider": f"{HERE}.nobody"}},
            "r is '.*nobody', which",
        ),
    ],
)
def test_what_leads_nowhere_is_refused_when_it_is_configured(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as told:
        Clients(lambda: {"default": settings_of(**given)})["default"]
    assert "hunter2" not in str(told.value)


def test_an_alias_that_leads_nowhere_is_no_concern_of_the_others() -> None:
    site = Clients(lambda: read({"default": {"LOCATION": "memory://"}, "other": {"LOCATION": "no.such"}}))
    assert site["default"] is not None
    with pytest.raises(ConfigurationError, match=r"no\.such"):
        site["other"]
    with pytest.raises(ConfigurationError, match="has no alias 'third', only 'default', 'other'"):
        site["third"]


def test_a_site_without_caches_is_told_so() -> None:
    with pytest.raises(ConfigurationError, match="names a cache, and this site has none"):
        read({"default": {"LOCATION": "cache:default"}})["default"]


def test_to_look_for_problems_looks_nothing_up() -> None:
    assert not list(find_problems({"default": {"LOCATION": "no.such.module"}, "b": {"LOCATION": exit}}))
